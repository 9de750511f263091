//! Arguments of `dat report`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::measure::MAX_ITERATIONS;
use super::value::number;
use crate::measure::protocol::PORT;

pub(super) const HELP: &str = "\
The file is JSON. It has no host name, user name, home folder, IP address, MAC address or GUID: HOST, USER, ~ and \
ADDRESS-1, ADDRESS-2 ... stand for them. A part that fails is in the file with its messages, and the others go on.

Exit status:
  0 if the file is written, whatever it says; 1 if it cannot be written, 2 for a wrong command line.";

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Name of the IA in dat.conf.
    pub(crate) ia: String,
    /// File to write; `-` is standard output.
    #[arg(short, long, default_value = "dat-report.json")]
    pub(crate) output: PathBuf,
    /// Replace a file that exists.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Measure against `dat serve` on this host, instead of on this machine.
    #[arg(long, value_name = "HOST")]
    pub(crate) peer: Option<String>,
    /// Connection qualifier of `dat serve`.
    #[arg(short, long, default_value_t = PORT, value_parser = number(1..=u64::MAX))]
    pub(crate) port: u64,
    /// Operations of each measurement, as in `dat perf`.
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = number(1..=MAX_ITERATIONS))]
    pub(crate) iterations: Option<u64>,
    /// Leave out a part; may be repeated.
    #[arg(long, value_enum, value_name = "PART")]
    pub(crate) without: Vec<ReportPart>,
    /// In `dat conform`, test only the statements of this page; may be repeated.
    #[arg(long, value_name = "PAGE")]
    pub(crate) page: Vec<String>,
    /// Time limit of a statement of `dat conform` in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = number(1..=86_400_u64))]
    pub(crate) timeout: u64,
}

/// A part of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportPart {
    /// What of the machine can be an IA.
    Devices,
    /// `dat doctor`.
    Doctor,
    /// Attributes and counters.
    Info,
    /// `dat conform`.
    Conform,
    /// `dat perf`.
    Perf,
}

impl ReportPart {
    /// The parts in their order.
    pub(crate) const ALL: [Self; 5] = [
        Self::Devices,
        Self::Doctor,
        Self::Info,
        Self::Conform,
        Self::Perf,
    ];

    /// Returns the part's key in the file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::Doctor => "doctor",
            Self::Info => "info",
            Self::Conform => "conform",
            Self::Perf => "perf",
        }
    }

    /// Returns the name of the part in the lines about progress.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::Doctor => "doctor",
            Self::Info => "attributes",
            Self::Conform => "conformance, which takes minutes",
            Self::Perf => "performance",
        }
    }
}
