//! The `dat` command: lists, configures, examines and tries interface adapters.
//!
//! `cli.rs` is the command line; each subcommand has a file, and this one selects it. `read.rs` reads dat.conf, `assess.rs` judges its
//! entries and `open.rs` opens them or says why not, for several of them; `out.rs` prints. `measure` is the machinery of `dat serve`, `dat
//! ping` and `dat perf`. The crate imports the Rust API (`udapl`, here `dat`), dat-registry for dat.conf, dat-os for the netdevs,
//! dat-conformance for `dat conform`, and softrxe-port for `dat serve-port` and for whose UDP port 4791 is.
#![forbid(unsafe_code)]

#[macro_use]
mod out;

mod assess;
mod check;
mod cli;
mod conform;
mod convert;
mod counters;
mod demo;
mod devices;
mod doctor;
mod fault;
mod info;
mod init;
mod list;
mod machine;
mod manual;
mod measure;
mod new_provider;
mod open;
mod outcome;
mod perf;
mod ping;
mod read;
mod report;
mod serve;
mod serve_port;
mod trace;
mod wrapped;

use std::process::{Command as Process, ExitCode};

use clap::Parser as _;
use clap::error::ErrorKind;

use cli::{Cli, Command};
pub(crate) use outcome::{Outcome, Reported, Status, Usage};

/// Status of a process whose command line is wrong.
const WRONG_COMMAND_LINE: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    if std::env::var_os("DAT_LOG").is_none() {
        // A provider logs why it cannot open only if the environment requests it before the provider is loaded, and a process
        // cannot safely change its own environment. So the command executes itself again.
        use std::os::unix::process::CommandExt;
        if let Ok(exe) = std::env::current_exe() {
            let error = Process::new(exe)
                .args(std::env::args_os().skip(1))
                .env("DAT_LOG", "error")
                .exec();
            eprintln!(
                "dat: cannot execute itself again with DAT_LOG=error, so providers' messages are missing: {error}"
            );
        }
    }
    dat::log::install();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(status) = error.downcast_ref::<Status>() {
                return ExitCode::from(status.0);
            }
            if !error.is::<Reported>() {
                if cli.json {
                    out::json(&serde_json::json!({ "error": error.to_string() }), false);
                }
                eprintln!("dat: {error}");
            }
            if error.is::<Usage>() {
                return ExitCode::from(WRONG_COMMAND_LINE);
            }
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Outcome {
    let json = cli.json;
    match &cli.command {
        Command::List(arguments) => list::run(arguments, json),
        Command::Devices => devices::run(json),
        Command::Init(arguments) => init::run(arguments, json),
        Command::Info { ia } => info::run(ia, json),
        Command::Counters(arguments) => counters::run(arguments, json),
        Command::Check(arguments) => check::run(arguments, json),
        Command::Convert(arguments) => convert::run(arguments, json),
        Command::Conform(arguments) => conform::run(arguments, json),
        Command::ConformProcess { words } => Ok(conform::process(words)?),
        Command::NewProvider(arguments) => new_provider::run(arguments, json),
        Command::Doctor { ia } => doctor::run(ia.as_deref(), json),
        Command::Report(arguments) => report::run(arguments, json),
        Command::Demo(arguments) => demo::run(arguments.name(), json),
        Command::DemoPeer { ia } => demo::peer(ia),
        Command::TryOpen { ia } => open::in_own_process(ia).map(drop),
        Command::Serve(arguments) => serve::run(arguments, json),
        Command::Ping(arguments) => ping::run(arguments, json),
        Command::Perf(arguments) => perf::run(arguments, json),
        Command::Fault(arguments) => fault::run(arguments, json),
        Command::Trace(arguments) => trace::run(arguments, json),
        Command::ServePort { state, addresses } => serve_port::run(state.as_deref(), addresses),
        Command::Completions { shell } => manual::completions(*shell),
        Command::Man { folder } => manual::man(folder),
    }
}

/// Prints help, version or what is wrong with the command line. clap's own function panics where standard output is closed.
fn usage(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            out::text(&text);
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{text}");
            ExitCode::from(WRONG_COMMAND_LINE)
        }
    }
}
