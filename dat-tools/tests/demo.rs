//! `dat demo` and `dat list` where IAs do not open, and what `dat doctor` says of them.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn dat(words: &str, conf: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dat"))
        .args(words.split(' '))
        .env("DAT_OVERRIDE", conf)
        .env_remove("DAT_LOG")
        .stdin(Stdio::null())
        .output()
        .expect("dat runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Takes UDP port 4791 of an address that no other test uses, as a program that is no engine does, and writes a dat.conf with an IA without
/// a device, one whose port is taken, and more lines.
fn conf(taken: &str, more: &str) -> (UdpSocket, tempfile::TempDir, PathBuf) {
    let stranger = UdpSocket::bind((taken, 4791)).expect("the port is free");
    let dir = tempfile::tempdir().expect("a folder");
    let line = |ia, params: &str| dat_tests::line(ia, &dat_tests::softrxe(), params);
    let absent = line("absent", "nosuch0 0 engine=user");
    let taken = line("taken", &format!("{taken} 0 engine=user"));
    let path = dir.path().join("dat.conf");
    fs::write(&path, absent + &taken + more).expect("written");
    (stranger, dir, path)
}

#[test]
fn what_the_demo_skips_is_one_line_and_no_error() {
    let params = "127.88.10.2 0 engine=user";
    let free = dat_tests::line("free", &dat_tests::softrxe(), params);
    let (_stranger, _dir, conf) = conf("127.88.10.1", &free);
    let done = dat("demo", &conf);
    let said = text(&done.stdout);
    assert!(done.status.success(), "{said}{}", text(&done.stderr));
    assert_eq!(text(&done.stderr), "");
    let first = said.lines().next().unwrap_or_default();
    for part in [
        "demo: absent has no device here (",
        "; taken does not open here (UDP port 4791 of 127.88.10.1 belongs to ",
        "; using free",
    ] {
        assert!(first.contains(part), "{first} lacks {part}");
    }
    assert!(said.ends_with("demo: PASS\n"), "{said}");
    for words in ["demo free", "demo --ia free"] {
        let done = dat(words, &conf);
        assert!(done.status.success(), "{words}: {}", text(&done.stderr));
        assert!(text(&done.stdout).starts_with("IA free: "), "{words}");
    }
    let both = dat("demo free --ia free", &conf);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn a_port_that_another_program_has_is_told_once_with_what_to_do() {
    let (_stranger, _dir, conf) = conf("127.88.10.3", "");
    let named = dat("demo taken", &conf);
    assert_eq!(named.status.code(), Some(1));
    let said = text(&named.stderr);
    let wants = "dat: IA taken does not open: UDP port 4791 of 127.88.10.3 belongs to ";
    assert!(said.starts_with(wants), "{said}");
    assert!(said.contains("dat serve-port 127.88.10.3"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for command in ["demo", "serve"] {
        let none = dat(command, &conf);
        assert_eq!(none.status.code(), Some(1));
        let said = text(&none.stderr);
        assert!(said.contains("no IA of dat.conf opens"), "{said}");
        assert!(said.contains("\n  taken: UDP port 4791"), "{said}");
        assert!(said.contains("\n  absent: no device here"), "{said}");
        assert_eq!(said.lines().count(), 3, "{said}");
    }
    let listed = dat("list --open", &conf);
    let reason = ":2: UDP port 4791 of 127.88.10.3 belongs to ";
    assert!(
        text(&listed.stdout).contains(reason),
        "{}",
        text(&listed.stdout)
    );
    assert_eq!(text(&listed.stderr), "");
    // Other commands log the reason; the last line does not lead away from it.
    let said = text(&dat("info taken", &conf).stderr);
    assert!(said.contains("its message says which"), "{said}");
}

#[test]
fn each_remedy_of_the_doctor_is_a_command_for_the_shell() {
    let line = |ia, library: &str, params: &str| {
        format!("{ia} u2.0 threadsafe default {library} t.1.0 \"{params}\" \"\"\n")
    };
    let softrxe = dat_tests::softrxe();
    let more = [
        line("gone", "/no/such/library.so", ""),
        line("wrong", &softrxe.display().to_string(), "lo 0 colour=red"),
    ];
    let (_stranger, _dir, conf) = conf("127.88.10.4", &more.concat());
    for (ia, check, wants) in [
        ("taken", "open", "ss -ulpn"),
        ("absent", "open", "dat devices; dat init"),
        ("gone", "library", "${EDITOR:-vi} "),
        ("wrong", "library", "${EDITOR:-vi} "),
        ("nothing", "entry", "dat list; dat devices"),
    ] {
        let done = dat(&format!("doctor {ia} --json"), &conf);
        let findings: Value = serde_json::from_str(&text(&done.stdout)).expect("JSON");
        let findings = findings.as_array().expect("findings");
        let remedies = findings.iter().filter(|f| f["state"] != "ok");
        for finding in remedies {
            let remedy = finding["remedy"].as_str().expect("a remedy");
            let read = Command::new("sh").args(["-n", "-c", remedy]).status();
            assert!(read.expect("sh runs").success(), "{finding}");
        }
        let found = findings
            .iter()
            .find(|f| f["check"] == check && f["state"] == "fault");
        let remedy = found.and_then(|f| f["remedy"].as_str()).unwrap_or_default();
        assert!(remedy.starts_with(wants), "{ia}: {findings:?}");
    }
}
