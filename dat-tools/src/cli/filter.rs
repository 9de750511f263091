//! Command lines of the commands that run a program over a filter.

use std::path::PathBuf;

use clap::Args;

use super::value;

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Rules {
    /// File with the faults: a rule a line, TARGET WHEN WHAT.
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// Seed of the rules' chances. Without a script, the rules are: rare failures of posts and connects, rare disconnects, delays.
    #[arg(short, long, value_name = "NUMBER", value_parser = value::number(0..=i64::MAX as u64))]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Fault {
    /// Name of the IA in dat.conf.
    pub(crate) ia: String,
    #[command(flatten)]
    pub(crate) rules: Rules,
    /// File for the log of the faults; standard output if it is not given.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) program: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// Name of the IA in dat.conf.
    pub(crate) ia: String,
    /// File for the report; standard output if it is not given, or is `-`.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) program: Vec<String>,
}
