//! The `dat` command: lists and opens interface adapters, checks dat.conf, and shows that data moves.
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
       dat info IA                  open one and say what it can do
       dat check [FILE]             check a dat.conf, line by line
       dat demo [--ia IA]           move data between two processes through an IA, and verify it
       dat serve-port [--state DIR] [ADDRESS...]
                                    hold UDP port 4791 for the user engine's processes of all users; run by root

dat.conf is the file of DAT_OVERRIDE, else ../etc/dat.conf beside the command, else /etc/dat.conf.
DAT_LOG=off|error|warn|info|debug|trace says how much the libraries tell on stderr.";

fn main() -> ExitCode {
    if std::env::var_os("DAT_LOG").is_none() {
        // A provider says why it cannot open only when it is asked to; the asking must stand in the environment before it is
        // loaded, and a process cannot safely change its own.
        use std::os::unix::process::CommandExt;
        if let Ok(exe) = std::env::current_exe() {
            let error = Command::new(exe)
                .args(std::env::args_os().skip(1))
                .env("DAT_LOG", "error")
                .exec();
            eprintln!("dat: {error}");
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
