//! Command lines of the commands that run a program over a filter.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// Name of the IA in dat.conf.
    pub(crate) ia: String,
    /// File for the report; standard output if it is not given.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) program: Vec<String>,
}
