//! Proof of the suite: each fault that can be planted in the loopback is found by a statement that names it. docs/planted-faults.md
//! is the table; `DAT_BLESS=1` writes it.

mod expected;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dat_conformance::suite::{self, Outcome, Plan, Subject};
use dat_conformance::{Api, STATEMENTS};
use dat_faulty_loopback::faults::FAULTS;

use expected::EXPECTED;

/// Faults that are tested at the same time: most of the time is spent in waits for what never comes.
const WORKERS: usize = 8;

/// Time limit of silence: a statement waits 10 s for an event, and a busy machine takes longer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time limit of silence for faults that hang. It also covers the start of the process.
const HANG: Duration = Duration::from_secs(20);

fn provider() -> PathBuf {
    dat_tests::built().join("libdat_faulty_provider.so")
}

/// Tests one statement with this fault, or without one; returns its result.
fn judge(library: &Path, fault: Option<&str>, page: &str, says: &str, limit: Duration) -> Outcome {
    let subject = Subject {
        library: library.to_owned(),
        name: "faulty".into(),
        params: fault.map_or_else(String::new, |word| format!("127.0.4.60 0 fault={word}")),
        api: Api::V2_0,
    };
    let plan = Plan {
        program: vec![
            env!("CARGO_BIN_EXE_dat-conformance").into(),
            "--test-process".into(),
        ],
        pages: vec![page.to_owned()],
        says: vec![says.to_owned()],
        timeout: limit,
    };
    let judged = suite::judge_all(&subject, &plan, |_| ())
        .unwrap_or_else(|error| panic!("{fault:?}: {page}: {says}: {error}"));
    // A crash after the statement is a judgement of its own.
    let of_statement = judged
        .into_iter()
        .find(|one| one.page == page && one.says == says);
    of_statement
        .unwrap_or_else(|| panic!("{fault:?}: {page}: {says}: not judged"))
        .outcome
}

/// Returns what differs from the table; `None` if the statement holds without the fault, and has the expected result with it.
fn differs(
    library: &Path,
    (word, page, says, expected): &(&str, &str, &str, &str),
) -> Option<String> {
    // A fault that hangs always lasts as long as the limit.
    let limit = if *expected == Outcome::Hung(String::new()).word() {
        HANG
    } else {
        PATIENCE
    };
    let with = judge(library, Some(word), page, says, limit);
    let without = judge(library, None, page, says, PATIENCE);
    let found = with.is_failure() && with.word() == *expected && without == Outcome::Holds;
    // Of the faults that hang, this one hangs in a call.
    let named = *word != "hang-in-swap" || with.why().is_some_and(|why| why.contains(page));
    let found = found && named;
    (!found).then(|| {
        format!("{word}: {page}: {says}\n    with the fault: {with:?}, expected {expected:?}\n    without: {without:?}")
    })
}

#[test]
fn each_planted_fault_is_found_by_a_statement_that_names_it() {
    let library = provider();
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(one) = EXPECTED.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(why) = differs(&library, one) {
                        wrong.lock().expect("no panic").push(why);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_names_each_fault_once_and_statements_that_exist() {
    let planted: Vec<&str> = FAULTS.iter().map(|(word, ..)| *word).collect();
    let named: Vec<&str> = EXPECTED.iter().map(|(word, ..)| *word).collect();
    assert_eq!(planted, named);
    assert!(planted.len() >= 40, "only {} faults", planted.len());
    for (word, page, says, _) in EXPECTED {
        let mut all = STATEMENTS.iter().copied().flatten();
        assert!(
            all.any(|s| s.page == *page && s.says == *says),
            "{word}: {page}: {says}"
        );
    }
}

#[test]
fn only_the_provider_of_this_proof_has_the_faults() {
    let folder = dat_tests::built();
    let (_, _, what) = FAULTS.first().expect("a fault");
    let mut with = Vec::new();
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).expect("the folder of the libraries") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.extension().is_none_or(|ext| ext != "so") && name != "dat" {
            continue;
        }
        files += 1;
        let mut grep = Command::new("grep");
        let grep = grep.args(["--quiet", "--fixed-strings", what]).arg(&path);
        match grep.status().expect("grep runs").code() {
            Some(0) => with.push(name),
            Some(1) => {}
            other => panic!("grep of {name} ended with {other:?}"),
        }
    }
    assert_eq!(with, ["libdat_faulty_provider.so"]);
    assert!(files >= 7, "only {files} files in {folder:?}");
}

const HEAD: &str = "\
# Planted faults

Written by a test (`DAT_BLESS=1 cargo test -p dat-conformance --test planted_faults`); it compares. Do not edit.

These faults can be planted in the loopback, one at a time, by a build for this proof only (`tests/faulty-provider`). No other
library knows them, which the test checks.
The test runs the conformance suite against each, and demands that the statement in its row finds it, with this result, and that the
same statement holds without the fault.

| fault | what is wrong | page | statement that finds it | result |
|---|---|---|---|---|
";

fn table() -> String {
    let mut out = String::from(HEAD);
    for ((word, page, says, result), (_, _, what)) in EXPECTED.iter().zip(FAULTS) {
        // A write to a `String` cannot fail.
        let _ = writeln!(out, "| `{word}` | {what} | {page} | {says} | {result} |");
    }
    let _ = writeln!(out, "\n{} faults.", EXPECTED.len());
    out
}

#[test]
fn the_page_is_this_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/planted-faults.md");
    if std::env::var_os("DAT_BLESS").is_some() {
        std::fs::write(&path, table()).expect("the page is written");
    }
    let page = std::fs::read_to_string(&path).expect("the page");
    assert!(
        page == table(),
        "docs/planted-faults.md is out of date: DAT_BLESS=1 writes it"
    );
}
