//! Runs the statements on a provider's shared object:
//! `dat-conformance PROVIDER.so [IA-NAME [IA-PARAMS]] [--api 1.2|2.0] [--page PAGE]`.
//!
//! `dat-conformance --matrix` prints MATRIX.md.
//!
//! With `--random SECONDS` it makes random calls instead, and checks that no descriptor and no thread is left when all
//! IAs are closed.

mod leaks;

use std::ffi::c_void;
use std::path::Path;
use std::process::ExitCode;

use dat_abi::types::DatProviderInfo;
use dat_core::error::Error;

use dat_conformance::{Api, Dat, STATEMENTS, Verdict, host, judge, matrix, of_version};

const USAGE: &str = "usage: dat-conformance PROVIDER.so [IA-NAME [IA-PARAMS]] [--api 1.2|2.0] [--page PAGE | --random SECONDS]\n       dat-conformance --matrix";

/// Registry function that a classic provider calls from its init.
///
/// # Safety
/// As [`host::add_provider`].
#[unsafe(no_mangle)]
unsafe extern "C" fn dat_registry_add_provider(
    table: *const c_void,
    info: *const DatProviderInfo,
) -> u32 {
    // SAFETY: the contract is the same.
    unsafe { host::add_provider(table, info) }
}

/// Registry function that a provider calls from its fini.
#[unsafe(no_mangle)]
extern "C" fn dat_registry_remove_provider(
    _table: *const c_void,
    _info: *const DatProviderInfo,
) -> u32 {
    0
}

/// Removes `option` and its value from the command line and returns the value.
fn option(words: &mut Vec<String>, option: &str) -> Option<String> {
    let at = words.iter().position(|w| w == option)?;
    let mut taken = words.drain(at..(at + 2).min(words.len()));
    Some(taken.nth(1).unwrap_or_default())
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if words == ["--matrix"] {
        print!("{}", matrix::markdown());
        return ExitCode::SUCCESS;
    }
    let page = option(&mut words, "--page");
    let random = option(&mut words, "--random");
    let api = option(&mut words, "--api").map_or(Ok(Api::V2_0), |word| word.parse());
    let api = match api {
        Ok(api) => api,
        Err(why) => {
            eprintln!("{why}; {USAGE}");
            return ExitCode::from(2);
        }
    };
    let Some(library) = words.first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let name = words.get(1).map_or("conformance0", String::as_str);
    let params = words.get(2).map_or("", String::as_str);
    let table = match host::load(Path::new(library), name, params, api) {
        Ok(table) => table,
        Err(error) => {
            eprintln!("{library}: {error}");
            return ExitCode::from(2);
        }
    };
    if let Some(seconds) = random {
        return leaks::check(table, name, seconds.parse().unwrap_or(1));
    }
    let dat = Dat::new(table, name);
    match dat.ia_open() {
        Ok((ia, _)) => {
            dat.ia_close(ia, 0);
        }
        Err(code) => {
            let why = Error::from_code(code).map_or_else(String::new, |e| e.to_string());
            eprintln!("dat_ia_open of {name:?} returned {why}; DAT_LOG=error shows details");
            return ExitCode::from(2);
        }
    }
    let (mut held, mut lacks, mut broken) = (0, 0, 0);
    let chosen = STATEMENTS
        .iter()
        .flat_map(|group| of_version(group, api))
        .filter(|s| page.as_deref().is_none_or(|page| page == s.page));
    for statement in chosen {
        let (word, why) = match judge(statement, &dat) {
            Ok(()) => {
                held += 1;
                ("holds ", String::new())
            }
            Err(Verdict::Lacks(why)) => {
                lacks += 1;
                ("lacks ", why)
            }
            Err(Verdict::Broken(why)) => {
                broken += 1;
                ("BROKEN", why)
            }
        };
        println!("{word} {}: {}", statement.page, statement.says);
        if !why.is_empty() {
            println!("       {why}");
        }
    }
    println!(
        "uDAPL {api}: {held} statements hold, {lacks} concern what the provider lacks, {broken} are broken"
    );
    if held + lacks + broken == 0 {
        eprintln!("no statement for that page; {USAGE}");
        return ExitCode::from(2);
    }
    if broken == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
