//! `dat counters --watch --json` as another program reads it.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

/// No other test uses it.
const ADDRESS: &str = "127.88.9.1";

#[test]
fn a_watch_prints_one_object_a_line_and_ends_with_its_reader() {
    let dir = tempfile::tempdir().expect("a folder");
    let conf = dir.path().join("dat.conf");
    let params = format!("{ADDRESS} 0 engine=user");
    let line = dat_tests::line("a", &dat_tests::softrxe(), &params);
    std::fs::write(&conf, line).expect("written");
    let mut child = Command::new(env!("CARGO_BIN_EXE_dat"))
        .args(["counters", "a", "--watch", "--json", "--interval", "0.01"])
        .env("DAT_OVERRIDE", &conf)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dat runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for _ in 0..3 {
        let line = lines.next().expect("a line").expect("text");
        let one: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert_eq!(one["seconds"], 0.01);
        let changes = one["changes"].as_object().expect("an object");
        assert!(changes.contains_key("DCNT_IA_EVD_CREATE"), "{line}");
        assert!(changes.values().all(Value::is_u64), "{line}");
    }
    drop(lines);
    let done = child.wait_with_output().expect("dat ends");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!((done.status.code(), &*said), (Some(141), ""));
}
