//! Tools of the conformance suite for this project; `dat conform` is the command for users.
//!
//! * `dat-conformance --matrix` prints MATRIX.md.
//! * `dat-conformance --random SECONDS PROVIDER.so [IA-NAME [IA-PARAMS]] [--api 1.2|2.0]` makes random calls, and checks that no
//!   descriptor and no thread is left when all IAs are closed.
//! * `dat-conformance --test-process ...` is started by tests of the suite.

mod leaks;

use std::path::Path;
use std::process::ExitCode;

use dat_conformance::{Api, host, matrix, suite};

const USAGE: &str = "usage: dat-conformance --matrix\n       dat-conformance --random SECONDS PROVIDER.so [IA-NAME [IA-PARAMS]] [--api 1.2|2.0]\n`dat conform` judges a provider";

/// Removes `option` and its value from the command line and returns the value.
fn option(words: &mut Vec<String>, option: &str) -> Option<String> {
    let at = words.iter().position(|w| w == option)?;
    let mut taken = words.drain(at..(at + 2).min(words.len()));
    Some(taken.nth(1).unwrap_or_default())
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("--matrix") if words.len() == 1 => {
            print!("{}", matrix::markdown());
            return ExitCode::SUCCESS;
        }
        Some("--test-process") => return suite::serve(&words[1..]),
        _ => {}
    }
    let api = option(&mut words, "--api").map_or(Ok(Api::V2_0), |word| word.parse());
    let random = option(&mut words, "--random").map(|seconds| seconds.parse());
    let (Ok(api), Some(Ok(seconds)), Some(library)) = (api, random, words.first()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let name = words.get(1).map_or("conformance0", String::as_str);
    let params = words.get(2).map_or("", String::as_str);
    match host::load(Path::new(library), name, params, api) {
        Ok(table) => leaks::check(table, name, seconds),
        Err(error) => {
            eprintln!("{library}: {error}");
            ExitCode::from(2)
        }
    }
}
