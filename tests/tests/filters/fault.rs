//! The filter `fault`: each kind of fault has its effect.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use dat_tests::prefix::PREFIX;
use serde_json::Value;

use crate::common::{Conf, DTEST, dat, json, text};

/// Runs `tests/c/faulty.c` under a script of faults. Returns its lines, the report, and the status of `dat fault`.
fn faulty(script: &str, seed: u64) -> (Vec<String>, Value, Option<i32>) {
    static PROGRAM: LazyLock<PathBuf> =
        LazyLock::new(|| PREFIX.compile("gcc", "faulty.c", &["-ldat2"], "filters-faulty"));
    let conf = Conf::new();
    fs::write(conf.path("script"), script).expect("the script is written");
    let mut command = Command::new(dat());
    command
        .args([
            "fault",
            "loop",
            "--script",
            "script",
            "--json",
            "-o",
            "report.json",
        ])
        .args(["--seed", &seed.to_string(), "--"])
        .arg(&*PROGRAM)
        .arg("loop")
        .env("LD_LIBRARY_PATH", PREFIX.path(""));
    let output = conf.run(&mut command);
    let report = fs::read(conf.path("report.json")).unwrap_or_default();
    assert!(!report.is_empty(), "{}", text(&output));
    let lines = String::from_utf8_lossy(&output.stdout);
    (
        lines.lines().map(str::to_owned).collect(),
        json(&report),
        output.status.code(),
    )
}

#[test]
fn a_wrong_rule_is_named_before_the_program_runs() {
    let conf = Conf::new();
    fs::write(
        conf.path("script"),
        "# first\ncompletion:send nth=3 explode\n",
    )
    .expect("the script is written");
    let mut command = Command::new(dat());
    let words = [
        "fault", "loop", "--script", "script", "--", "touch", "it-ran",
    ];
    command.args(words).env("LD_LIBRARY_PATH", PREFIX.path(""));
    let output = conf.run(&mut command);
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    for part in [
        "script\", line 2: \"explode\" is not possible",
        "the program was not run",
    ] {
        assert!(said.contains(part), "no {part:?}: {said}");
    }
    assert!(!conf.path("it-ran").exists(), "{said}");
}

/// Returns what the program says of a message.
fn message(lines: &[String], number: u32) -> &str {
    let begin = format!("message {number}: ");
    let found = lines.iter().find_map(|line| line.strip_prefix(&begin));
    found.unwrap_or_else(|| panic!("no {begin:?}: {lines:#?}"))
}

const WELL: &str = "post 0, request 0, receive 0, bytes right";

/// Runs a script with one rule, checks that its fault was logged once, and that all messages but `odd` went well.
fn one_fault(rule: &str, odd: u32) -> Vec<String> {
    let (lines, report, status) = faulty(rule, 1);
    assert_eq!(status, Some(0), "{rule}: {lines:#?}");
    let faults = report["faults"].as_array().expect("a list");
    assert_eq!(
        (faults.len(), &faults[0]["rule"]),
        (1, &rule.into()),
        "{report}"
    );
    for number in (1..=6).filter(|number| *number != odd) {
        assert_eq!(message(&lines, number), WELL, "{rule}: message {number}");
    }
    assert!(
        lines.contains(&"connection up".into()),
        "{rule}: {lines:#?}"
    );
    lines
}

#[test]
fn without_a_fault_all_messages_arrive() {
    let (lines, report, status) = faulty("# nothing\n", 1);
    assert_eq!(
        (status, report["faults"].as_array().map(Vec::len)),
        (Some(0), Some(0))
    );
    (1..=6).for_each(|number| assert_eq!(message(&lines, number), WELL));
    assert!(
        lines.contains(&"read: request 0, bytes right".into()),
        "{lines:#?}"
    );
}

#[test]
fn a_call_fails_with_the_error_of_the_rule_and_does_nothing() {
    let lines = one_fault("dat_ep_post_send nth=3 fail=DAT_INSUFFICIENT_RESOURCES", 3);
    assert!(
        message(&lines, 3).starts_with("post 0x80030000, request none, receive none"),
        "{lines:#?}"
    );
}

#[test]
fn a_dropped_request_succeeds_and_never_completes() {
    let lines = one_fault("dat_ep_post_send nth=2 drop", 2);
    assert_eq!(
        message(&lines, 2),
        "post 0, request none, receive none, bytes wrong"
    );
}

#[test]
fn a_dropped_completion_does_not_come_but_the_bytes_do() {
    let lines = one_fault("completion:receive nth=4 drop", 4);
    assert_eq!(
        message(&lines, 4),
        "post 0, request 0, receive none, bytes right"
    );
    let lines = one_fault("completion:send nth=4 drop", 4);
    assert_eq!(
        message(&lines, 4),
        "post 0, request none, receive 0, bytes right"
    );
}

#[test]
fn a_completion_has_the_status_of_the_rule() {
    let lines = one_fault("completion:send nth=5 fail=DAT_DTO_ERR_TRANSPORT", 5);
    assert_eq!(
        message(&lines, 5),
        "post 0, request 8, receive 0, bytes right"
    );
}

#[test]
fn what_was_received_or_read_is_corrupted() {
    let lines = one_fault("completion:receive nth=6 corrupt=3", 6);
    assert_eq!(
        message(&lines, 6),
        "post 0, request 0, receive 0, bytes wrong"
    );
    let lines = one_fault("completion:rdma_read nth=1 corrupt", 0);
    assert!(
        lines.contains(&"read: request 0, bytes wrong".into()),
        "{lines:#?}"
    );
}

#[test]
fn a_call_is_delayed() {
    let lines = one_fault("dat_pz_create nth=1 delay=50", 0);
    let time = lines[0].split_whitespace().nth(2).expect("a time");
    assert!(
        time.parse::<u32>().expect("milliseconds") >= 50,
        "{lines:#?}"
    );
}

#[test]
fn a_connection_is_ended() {
    let (lines, report, status) = faulty("completion:receive nth=2 disconnect", 1);
    assert_eq!(
        (status, lines.last().map(String::as_str)),
        (Some(0), Some("connection down")),
        "{lines:#?}"
    );
    assert_eq!(
        report["faults"][0]["detail"],
        "dat_ep_disconnect returned 0x0"
    );
}

#[test]
fn a_process_is_killed_after_its_fault_was_logged() {
    let (lines, report, status) = faulty("completion:send nth=3 kill", 1);
    assert_eq!(status, Some(128 + 9), "{lines:#?}");
    assert_eq!(
        (&report["faults"][0]["number"], message(&lines, 2)),
        (&3.into(), WELL)
    );
    assert!(
        !lines.iter().any(|line| line.starts_with("message 3")),
        "{lines:#?}"
    );
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let script = "dat_ep_post_send chance=0.5 fail=DAT_INTERNAL_ERROR\n";
    let of = |seed| {
        let (lines, report, _) = faulty(script, seed);
        let faults = report["faults"].as_array().expect("a list").clone();
        let numbers: Vec<_> = faults
            .iter()
            .map(|fault| fault["number"].as_u64())
            .collect();
        (lines[1..].to_vec(), numbers)
    };
    let first = of(3);
    assert!(!first.1.is_empty() && first.1.len() < 6, "{first:?}");
    assert_eq!(first, of(3));
    assert_ne!(first.1, of(4).1);
}

#[test]
fn a_wrong_script_is_explained_with_its_line() {
    let conf = Conf::new();
    fs::write(conf.path("script"), "\ncompletion:send nth=1 dorp\n").expect("written");
    let mut command = Command::new(dat());
    command.args(["fault", "loop", "--script", "script", "--"]);
    let output = conf.run(command.arg(dat()).args(["info", "loop"]));
    assert!(!output.status.success(), "{}", text(&output));
    assert!(
        text(&output).contains("line 2") && text(&output).contains("\"dorp\""),
        "{}",
        text(&output)
    );
}

#[test]
fn dtest_runs_unmodified_under_delays_and_dies_of_a_kill() {
    let run = |script: &str| {
        let conf = Conf::new();
        fs::write(conf.path("script"), script).expect("written");
        let namespace = "ip link set lo up 2>/dev/null; exec \"$0\" fault user --script script --json -o report.json -- sh -c \"$1\"";
        let mut command = Command::new("unshare");
        command
            .args(["--net", "--map-root-user", "sh", "-c", namespace])
            .arg(dat())
            .arg(DTEST)
            .env("LD_LIBRARY_PATH", PREFIX.path(""));
        let output = conf.run(&mut command);
        let report = fs::read(conf.path("report.json")).unwrap_or_default();
        assert!(!report.is_empty(), "{}", text(&output));
        (
            output.status.success(),
            json(&report)["faults"].as_array().expect("a list").len(),
        )
    };
    let (passed, faults) = run("completion:any every=50 delay=1\n");
    assert!(passed && faults >= 4, "{faults} faults, passed: {passed}");
    let (passed, faults) = run("completion:receive nth=20 kill\n");
    assert!(!passed && faults >= 1, "{faults} faults, passed: {passed}");
}
