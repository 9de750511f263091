//! The `dat` command: lists and opens interface adapters, checks dat.conf, and demonstrates data transfer.
//!
//! Each subcommand has a file: `info.rs` (`dat list`, `dat info`), `check.rs`, `demo.rs`, `serve_port.rs`; this one selects it. The
//! crate imports the Rust API (`dat`), dat-registry for the grammar of dat.conf, and softrxe-port for `dat serve-port`.
#![forbid(unsafe_code)]

mod check;
mod demo;
mod info;
mod outcome;
mod serve_port;

use std::process::{Command, ExitCode};

pub(crate) use outcome::Outcome;

const USAGE: &str = "\
usage: dat list                     the IAs of dat.conf
       dat info IA                  open an IA and print its attributes
       dat check [FILE]             check a dat.conf, line by line
       dat demo [--ia IA]           transfer data between two processes through an IA, and verify it
       dat serve-port [--state DIR] [ADDRESS...]
                                    hold UDP port 4791 for the user engine's processes of all users; run by root

dat.conf is the file of DAT_OVERRIDE, else ../etc/dat.conf beside the command, else /etc/dat.conf.
DAT_LOG=off|error|warn|info|debug|trace is the level of the libraries' messages on stderr.";

fn main() -> ExitCode {
    if std::env::var_os("DAT_LOG").is_none() {
        // A provider logs why it cannot open only if the environment requests it before the provider is loaded, and a process
        // cannot safely change its own environment. So the command executes itself again.
        use std::os::unix::process::CommandExt;
        if let Ok(exe) = std::env::current_exe() {
            let error = Command::new(exe)
                .args(std::env::args_os().skip(1))
                .env("DAT_LOG", "error")
                .exec();
            eprintln!(
                "dat: cannot execute itself again with DAT_LOG=error, so providers' messages are missing: {error}"
            );
        }
    }
    dat::log::install();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["list"] => info::list(),
        ["info", ia] => info::info(ia),
        ["check"] => check::check(None),
        ["check", file] => check::check(Some(file)),
        ["demo"] => demo::run(None),
        ["demo", "--ia", ia] => demo::run(Some(ia)),
        ["demo-peer", ia] => demo::peer(ia),
        ["serve-port", ref rest @ ..] => serve_port::run(rest),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dat: {error}");
            ExitCode::FAILURE
        }
    }
}
