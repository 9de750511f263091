//! A test that cannot run where it is, as one that takes the superuser, must not look like a test that passed.
//!
//! Such a test calls [`untested`] and returns. It fails there, unless [`LIST`] names a file: then the file gets a line. `make test` and
//! `make check` set the variable, and print the file at their end.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Environment variable with the path of the list.
pub const LIST: &str = "DAT_UNTESTED";

/// Lists the test at hand as not run because of `why`.
///
/// # Panics
/// Without a list, or if it cannot be written.
#[track_caller]
pub fn untested(why: impl Display) {
    let Some(path) = std::env::var_os(LIST) else {
        panic!(
            "not tested: {why}. To leave such tests out, set {LIST} to a file, which lists them"
        );
    };
    // The harness names the thread of a test after the test.
    let thread = std::thread::current();
    let place = std::panic::Location::caller();
    let test = thread.name().unwrap_or("main");
    let line = format!("{} ({}): {why}\n", test, place.file());
    let opened = OpenOptions::new().append(true).create(true).open(&path);
    // One write, as tests of several processes share the file.
    let written = opened.and_then(|mut list| list.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!(
            "not tested: {why}, and {} cannot list it: {error}",
            path.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const ALONE: &str = "tests::a_test_that_cannot_run";

    fn run(list: Option<&std::path::Path>) -> std::process::Output {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program
            .args(["--exact", "--ignored", ALONE])
            .env_remove(LIST);
        if let Some(path) = list {
            program.env(LIST, path);
        }
        program.output().unwrap()
    }

    #[test]
    #[ignore = "the tests below run it in a process of its own"]
    fn a_test_that_cannot_run() {
        untested("it takes two moons");
    }

    #[test]
    fn without_a_list_it_fails_and_names_the_variable() {
        let output = run(None);
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.contains(
                "not tested: it takes two moons. To leave such tests out, set DAT_UNTESTED"
            ),
            "{said}"
        );
    }

    #[test]
    fn with_a_list_it_passes_and_is_on_the_list() {
        let list = std::env::temp_dir().join(format!("dat-untested-{}", std::process::id()));
        let _ = std::fs::remove_file(&list);
        for _ in 0..2 {
            assert!(run(Some(&list)).status.success());
        }
        let text = std::fs::read_to_string(&list).unwrap();
        std::fs::remove_file(&list).unwrap();
        let line = "tests::a_test_that_cannot_run (tests/untested/src/lib.rs): it takes two moons";
        assert_eq!(text.lines().collect::<Vec<_>>(), [line; 2]);
    }

    #[test]
    fn a_list_that_cannot_be_written_fails_the_test() {
        assert!(
            !run(Some(std::path::Path::new("/nonexistent/list")))
                .status
                .success()
        );
    }
}
