//! Arguments of `dat serve`, `dat ping` and `dat perf`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::value::{number, seconds, size};
use crate::measure::protocol::{MAX_DEPTH, PORT};

/// Greatest number of operations of a measurement.
pub(super) const MAX_ITERATIONS: u64 = 1_000_000_000;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Serve {
    /// Name of the IA in dat.conf; without it, the first one that opens.
    pub(crate) ia: Option<String>,
    /// Connection qualifier to listen on.
    #[arg(short, long, default_value_t = PORT, value_parser = number(1..=u64::MAX))]
    pub(crate) port: u64,
}

#[derive(Debug, Args)]
#[command(allow_missing_positional = true, allow_negative_numbers = true)]
pub(crate) struct Ping {
    /// Name of the IA in dat.conf; without it, the first one that opens.
    pub(crate) ia: Option<String>,
    /// Address or name of the host where `dat serve` runs.
    pub(crate) host: String,
    /// Connection qualifier of `dat serve`.
    #[arg(short, long, default_value_t = PORT, value_parser = number(1..=u64::MAX))]
    pub(crate) port: u64,
    /// Number of messages; 0 for no end.
    #[arg(short, long, value_name = "NUMBER", default_value_t = 5, value_parser = number(0..=u64::MAX))]
    pub(crate) count: u64,
    /// Time between two messages.
    #[arg(short, long, default_value = "1", value_name = "SECONDS", value_parser = seconds(0.0))]
    pub(crate) interval: Duration,
    /// Bytes of a message, with an optional K or M (1024, 1024^2).
    #[arg(short, long, default_value = "64", value_name = "BYTES", value_parser = size)]
    pub(crate) size: usize,
    /// Poll for the answer instead of sleeping until it arrives.
    #[arg(long)]
    pub(crate) poll: bool,
    /// Print the summary only.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
#[command(allow_missing_positional = true, allow_negative_numbers = true)]
pub(crate) struct Perf {
    /// Name of the IA in dat.conf; without it, the first one that opens.
    pub(crate) ia: Option<String>,
    /// Address or name of the host where `dat serve` runs.
    pub(crate) host: String,
    /// Connection qualifier of `dat serve`.
    #[arg(short, long, default_value_t = PORT, value_parser = number(1..=u64::MAX))]
    pub(crate) port: u64,
    /// Operations to measure, separated by commas.
    #[arg(short, long, value_enum, value_delimiter = ',', default_value = "send")]
    pub(crate) op: Vec<OpArgument>,
    /// What to measure of each, separated by commas.
    #[arg(
        short,
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "latency,bandwidth"
    )]
    pub(crate) measure: Vec<Measure>,
    /// Bytes of a message, with an optional K or M (1024, 1024^2). Several are separated by commas. An atomic has 8.
    #[arg(short, long, value_name = "BYTES", value_delimiter = ',', value_parser = size,
          default_value = "64", conflicts_with = "all_sizes")]
    pub(crate) size: Vec<usize>,
    /// Measure all sizes from 1 byte to 8 MiB, each twice the one before.
    #[arg(short, long)]
    pub(crate) all_sizes: bool,
    /// Operations of each measurement and connection. By default 1000 for latency and 5000 for bandwidth, fewer for large messages.
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = number(1..=MAX_ITERATIONS))]
    pub(crate) iterations: Option<u64>,
    /// Measure for a time instead of a number of operations.
    #[arg(short = 'D', long, value_name = "SECONDS", value_parser = seconds(0.001), conflicts_with = "iterations")]
    pub(crate) duration: Option<Duration>,
    /// Operations of each connection before the measurement, which do not count. By default a tenth of the iterations, at most 100.
    #[arg(short, long, value_name = "NUMBER", value_parser = number(0..=MAX_ITERATIONS))]
    pub(crate) warm_up: Option<u64>,
    /// Number of connections that are used at the same time.
    #[arg(short = 'q', long, value_name = "NUMBER", default_value_t = 1, value_parser = number(1..=1024_u32))]
    pub(crate) connections: u32,
    /// Outstanding operations of each connection while bandwidth is measured.
    #[arg(short = 't', long, value_name = "NUMBER", default_value_t = 128, value_parser = number(1..=MAX_DEPTH))]
    pub(crate) depth: u32,
    /// Sleep until events arrive, on both sides, instead of polling.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Compare every byte that is transferred. The time for that is not counted.
    #[arg(long)]
    pub(crate) validate: bool,
    /// Print comma-separated values.
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
    /// Write a plot of the results to this SVG file.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Replace the plot if the file exists.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Also print a plot as text.
    #[arg(short, long, conflicts_with_all = ["csv", "json"])]
    pub(crate) graph: bool,
}

/// An operation as it is named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OpArgument {
    /// Messages to posted receives.
    Send,
    /// RDMA Writes.
    Write,
    /// RDMA Reads.
    Read,
    /// Atomic additions.
    FetchAdd,
    /// Atomic comparisons with exchange.
    CompareSwap,
    /// All of these that the IA has.
    All,
}

/// What is measured of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measure {
    /// The time of one operation while no other is outstanding.
    Latency,
    /// Bytes and messages per second while many are outstanding.
    Bandwidth,
}
