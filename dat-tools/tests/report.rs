//! `dat report` as a user runs it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// No other test uses it.
const ADDRESS: &str = "127.88.9.1";

fn report(words: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dat"))
        .arg("report")
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("dat runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read(folder: &Path, file: &str) -> Value {
    let bytes = fs::read(folder.join(file)).expect("the report");
    serde_json::from_slice(&bytes).expect("JSON")
}

#[test]
fn a_report_has_every_part_of_an_ia_that_works() {
    let line = || {
        let params = format!("{ADDRESS} 0 engine=user");
        dat_tests::line("reported", &dat_tests::softrxe(), &params)
    };
    let name = "a_report_has_every_part_of_an_ia_that_works";
    let body = || {
        let dir = tempfile::tempdir().expect("a folder");
        let words = ["reported", "--page", "dat_ia_query", "-n", "20"];
        let done = report(&words, dir.path());
        let said = text(&done.stdout);
        assert!(done.status.success(), "{said}{}", text(&done.stderr));
        assert!(said.contains("28 measurements"), "{said}");
        assert!(said.contains("dat-report.json is complete"), "{said}");
        let report = read(dir.path(), "dat-report.json");
        let parts = &report["parts"];
        for part in ["devices", "doctor", "info", "conform", "perf"] {
            assert_eq!(parts[part]["status"], 0, "{part}: {}", parts[part]);
        }
        assert_eq!(parts["conform"]["output"]["runs"][0]["counts"]["holds"], 1);
        assert_eq!(parts["info"]["output"]["attributes"]["ia_address"], ADDRESS);
        assert!(report["machine"]["kernel"].is_string(), "{report}");
        let again = self::report(&words, dir.path());
        assert_eq!(again.status.code(), Some(1));
        assert!(text(&again.stderr).contains("dat-report.json exists; --force"));
    };
    dat_tests::inside(name, line, body);
}

/// Writes a report to `r.json` in `dir`, where dat.conf has no entries.
fn report_without_entries(dir: &Path, arguments: &[&str]) -> Output {
    let conf = dir.join("dat.conf");
    fs::write(&conf, "").expect("written");
    let done = Command::new(env!("CARGO_BIN_EXE_dat"))
        .arg("report")
        .args(arguments)
        .arg("-o")
        .arg(dir.join("r.json"))
        .env("DAT_OVERRIDE", &conf)
        .stdin(Stdio::null())
        .output()
        .expect("dat runs");
    assert!(done.status.success(), "{}", text(&done.stderr));
    done
}

#[test]
fn a_report_on_an_ia_that_does_not_open_says_why() {
    let dir = tempfile::tempdir().expect("a folder");
    let done = report_without_entries(dir.path(), &["absent", "--json"]);
    let summary: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let info = summary["parts"]["info"].as_str().expect("a line");
    assert!(info.contains("dat.conf has no IA \"absent\""), "{summary}");
    let report = read(dir.path(), "r.json");
    assert_eq!(report["parts"]["doctor"]["status"], 1);
    let perf = report["parts"]["perf"]["failed"]
        .as_str()
        .expect("a reason");
    assert!(perf.contains("`dat serve` does not listen"), "{perf}");
}

#[test]
fn a_report_does_not_name_an_address_that_the_ia_has_in_its_name() {
    let dir = tempfile::tempdir().expect("a folder");
    report_without_entries(dir.path(), &["softrxe-192.0.2.7"]);
    let report = read(dir.path(), "r.json");
    assert_eq!(report["ia"], "softrxe-ADDRESS-1");
    assert!(!report.to_string().contains("192.0.2.7"), "{report}");
}
