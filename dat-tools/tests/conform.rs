//! `dat conform` as a user runs it, on a C provider that crashes, hangs and lacks most functions.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Compiles `tests/c/NAME.c`.
fn provider(dir: &Path, name: &str) -> PathBuf {
    let library = dir.join(name).with_extension("so");
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg("-I")
        .arg(top.join("capi/include"))
        .arg(top.join("tests/c").join(name).with_extension("c"))
        .status();
    assert!(made.expect("cc runs").success());
    library
}

fn conform(subject: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dat"))
        .arg("conform")
        .arg(subject)
        .args(arguments)
        .output()
        .expect("dat runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn report(output: &Output) -> Value {
    let out = text(&output.stdout);
    serde_json::from_str(&out)
        .unwrap_or_else(|error| panic!("{error}: {out}{}", text(&output.stderr)))
}

/// Returns the results of a page's statements, each with its reason.
fn results(report: &Value, page: &str) -> Vec<(String, String)> {
    let statements = report["runs"][0]["statements"].as_array().expect("a list");
    statements
        .iter()
        .filter(|s| s["page"] == page)
        .map(|s| {
            let word = |key: &str| s[key].as_str().unwrap_or_default().to_owned();
            (word("result"), word("why"))
        })
        .collect()
}

#[test]
fn a_crash_is_a_verdict_on_its_statement_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let library = provider(dir.path(), "unsteady_provider");
    let pages = [
        "--page",
        "dat_pz_create",
        "--page",
        "dat_ia_open",
        "--json",
        "--params",
        "crash",
    ];
    let output = conform(&library, &pages);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report = report(&output);
    let pz = results(&report, "dat_pz_create");
    assert!(
        pz.iter()
            .all(|(result, why)| result == "crashed" && why.contains("SIGSEGV"))
            && !pz.is_empty(),
        "{report}"
    );
    let open = results(&report, "dat_ia_open");
    assert_eq!(open.len(), 2, "{report}");
    assert!(
        open.iter().any(|(result, _)| result == "broken"),
        "{report}"
    );
    assert_eq!(
        report["runs"][0]["counts"]["crashed"],
        pz.len() + open.iter().filter(|(r, _)| r == "crashed").count()
    );
}

#[test]
fn a_hang_is_a_verdict_with_the_time_limit() {
    let dir = tempfile::tempdir().expect("a folder");
    let library = provider(dir.path(), "unsteady_provider");
    let pages = [
        "--page",
        "dat_pz_create",
        "--timeout",
        "2",
        "--junit",
        "--params",
        "hang",
    ];
    let output = conform(&library, &pages);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    for part in [
        "<testsuite name=\"uDAPL 2.0 of",
        "tests=\"3\" failures=\"0\" errors=\"3\"",
        "classname=\"dat_pz_create\"",
        "<error message=\"no progress within the time limit of 2 s; under way: dat_pz_create\"/>",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

#[test]
fn what_cannot_be_tested_has_a_status_of_its_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let library = provider(dir.path(), "unsteady_provider");
    let exits = conform(&library, &["--params", "exit"]);
    assert_eq!(exits.status.code(), Some(3));
    assert!(
        text(&exits.stdout).contains("exited with status 3"),
        "{}",
        text(&exits.stdout)
    );
    let missing = conform(&dir.path().join("none.so"), &[]);
    assert_eq!(missing.status.code(), Some(3));
    assert!(
        text(&missing.stdout).contains("cannot load"),
        "{}",
        text(&missing.stdout)
    );
    let list = conform(&library, &["--list", "--page", "dat_no_such_page"]);
    assert_eq!(list.status.code(), Some(2));
    let page = conform(&library, &["--page", "dat_no_such_page"]);
    assert_eq!(page.status.code(), Some(2));
    assert!(
        text(&page.stderr).contains("dat_no_such_page"),
        "{}",
        text(&page.stderr)
    );
}

#[test]
fn an_entry_of_dat_conf_is_judged_in_its_version() {
    let dir = tempfile::tempdir().expect("a folder");
    let library = provider(dir.path(), "classic_provider");
    let conf = dir.path().join("dat.conf");
    let line = format!(
        "mine u2.0 nonthreadsafe default {} c.1.0 \"\" \"\"\n",
        library.display()
    );
    std::fs::write(&conf, line).expect("written");
    let run = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_dat"))
            .arg("conform")
            .args(arguments)
            .env("DAT_OVERRIDE", &conf)
            .output()
            .expect("dat runs")
    };
    let report = report(&run(&["mine", "--page", "dat_ia_close", "--json"]));
    assert_eq!(report["runs"][0]["ia"], "mine");
    assert_eq!(report["runs"][0]["api"], "2.0");
    assert!(results(&report, "dat_ia_close").len() >= 5, "{report}");
    let missing = run(&["other", "--page", "dat_ia_close"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        text(&missing.stderr).contains("no IA \"other\""),
        "{}",
        text(&missing.stderr)
    );
    let list = text(&run(&["--list"]).stdout);
    assert!(list.contains("dat_ib_post_send_ud (2.0): "), "{list}");
    assert!(list.contains("dat_ia_close: "), "{list}");
}
