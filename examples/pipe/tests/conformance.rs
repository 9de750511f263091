//! Runs the statements and the storm on the pipe's shared object, through the tables of both versions.

use std::path::PathBuf;

use dat_conformance::{Api, Dat, STATEMENTS, Verdict, host, judge, of_version, storm};

/// Returns the shared object, which cargo builds beside this test.
fn library() -> PathBuf {
    let here = std::env::current_exe().expect("this test has a path");
    here.with_file_name("libdat_pipe.so")
}

fn pipe(address: &str, api: Api) -> Dat {
    let table = host::load(&library(), address, address, api).expect("the provider registers");
    Dat::new(table, address)
}

/// Puts every statement to the pipe. Returns how many hold, and the first call of each that it lacks.
fn put(dat: &Dat, api: Api) -> (usize, Vec<String>) {
    let (mut held, mut lacks, mut broken) = (0, Vec::new(), Vec::new());
    for statement in STATEMENTS.iter().flat_map(|group| of_version(group, api)) {
        match judge(statement, dat) {
            Ok(()) => held += 1,
            Err(Verdict::Lacks(why)) => lacks.push(format!("{}: {why}", statement.page)),
            // Those need the program `dat-conformance`; `tests/dtest.rs` has two processes.
            Err(Verdict::Broken(why)) if why.contains("starts no second process") => {}
            Err(Verdict::Broken(why)) => {
                broken.push(format!("{}: {}\n  {why}", statement.page, statement.says));
            }
        }
    }
    assert!(broken.is_empty(), "uDAPL {api}:\n{}", broken.join("\n"));
    (held, lacks)
}

/// What the pipe lacks is optional: windows, shared receive queues, datagrams, and what core has not.
fn holds(address: &str, api: Api) {
    let (held, lacks) = put(&pipe(address, api), api);
    let optional = [
        "rmr",
        "srq",
        "RMR",
        "SRQ",
        "DATAGRAM",
        "datagram",
        "ud",
        "qos",
        "multipath",
        "invalidate",
        "ah",
        "collective",
    ];
    let other: Vec<_> = lacks
        .iter()
        .filter(|why| !optional.iter().any(|word| why.contains(word)))
        .collect();
    assert!(other.is_empty(), "lacks more than the options: {other:#?}");
    assert!(held > 150, "only {held} statements hold");
}

#[test]
fn in_1_2_every_statement_holds_or_is_about_an_option() {
    holds("127.0.7.1", Api::V1_2);
}

#[test]
fn in_2_0_every_statement_holds_or_is_about_an_option() {
    holds("127.0.7.2", Api::V2_0);
}

#[test]
fn handles_are_freed_and_reused_by_several_threads() {
    storm(&pipe("127.0.7.3", Api::V2_0), 3, 20).unwrap();
}
