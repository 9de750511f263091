//! Checks that MATRIX.md is the generator's output, and that it names every function and statement.

use std::collections::BTreeSet;
use std::path::Path;

use dat_conformance::matrix::{self, REFUSALS};
use dat_conformance::{Api, STATEMENTS};

fn top(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_file_is_what_the_generator_prints() {
    assert!(
        top("MATRIX.md") == matrix::markdown(),
        "MATRIX.md is out of date: run `make matrix`"
    );
}

#[test]
fn each_function_has_a_statement_of_its_page() {
    let pages: BTreeSet<&str> = STATEMENTS
        .iter()
        .copied()
        .flatten()
        .map(|s| s.page)
        .collect();
    for api in Api::ALL {
        for row in matrix::rows(api) {
            let page = row.page();
            assert!(pages.contains(page.as_str()), "no statement of {page}");
        }
    }
}

#[test]
fn each_page_is_a_function_or_all() {
    let functions: BTreeSet<String> = matrix::rows(Api::V2_0)
        .into_iter()
        .map(matrix::Row::page)
        .collect();
    for s in STATEMENTS.iter().copied().flatten() {
        assert!(
            s.page == "every page" || functions.contains(s.page),
            "{} is no function",
            s.page
        );
    }
}

#[test]
fn declarations_name_what_there_is() {
    let names: BTreeSet<&str> = matrix::rows(Api::V2_0)
        .into_iter()
        .flat_map(|row| [Some(row.function), row.with])
        .flatten()
        .collect();
    for refusal in REFUSALS {
        for function in refusal.functions {
            assert!(names.contains(function), "{function} is in no table");
        }
    }
    for e in matrix::all_exceptions() {
        let known = |s: &&dat_conformance::Statement| (s.page, s.says) == (e.page, e.says);
        let found = STATEMENTS.iter().copied().flatten().find(known);
        assert!(found.is_some(), "{}: {} is no statement", e.page, e.says);
    }
}
