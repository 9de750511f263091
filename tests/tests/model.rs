//! The model of the API (tests/c/model): random calls whose results follow from those before. Fixed seeds over the engine's links, by one
//! process and by two, in both versions; and the proof that the model finds planted faults.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use dat_tests::prefix::PREFIX;

/// Settings of the user engine.
const SETTINGS: [(&str, &str); 4] = [
    ("near", "near=auto"),
    ("udp", "near=off"),
    ("noring", "near=off ring=off"),
    ("lanes", "near=auto lanes=3"),
];

/// Compiles the model for a version of uDAPL.
fn compiled(version: &str) -> PathBuf {
    let arguments: &[&str] = if version == "1.2" {
        &["-DUDAPL_1_2", "-ldat", "-lpthread"]
    } else {
        &["-ldat2", "-lpthread"]
    };
    PREFIX.compile("gcc", "model", arguments, &format!("model-{version}"))
}

/// Runs the program with a dat.conf that has IA `ia` of both versions.
fn run(program: &Path, arguments: &[&str], ia: &str, library: &Path, params: &str) -> Output {
    let conf = PREFIX.path(&format!("{ia}.conf"));
    let mut lines = String::new();
    for version in ["u1.2", "u2.0"] {
        // A write to a `String` cannot fail.
        let line = dat_tests::line(ia, library, params).replace("u2.0", version);
        let _ = write!(lines, "{line}");
    }
    std::fs::write(&conf, lines).expect("dat.conf is written");
    let mut command: Command = PREFIX.command(program, arguments);
    let output = command.arg(ia).env("DAT_OVERRIDE", conf).output();
    output.expect("the program starts")
}

/// Returns the address 127.x.y.`host` of this process. Another run of this test on the host has others: its requests would come here.
fn address(host: usize) -> String {
    let id = std::process::id();
    format!("127.{}.{}.{host}", 100 + (id >> 8) % 100, id & 255)
}

/// Runs `seeds` seeds from `first` with each of the settings, which have the addresses from `host` on.
fn agrees(version: &str, host: usize, processes: &str, first: u32, seeds: u32) {
    let program = compiled(version);
    let (first, seeds) = (first.to_string(), seeds.to_string());
    let arguments = ["--seed", &first, "--runs", &seeds, "--processes", processes];
    for (at, (name, settings)) in SETTINGS.iter().enumerate() {
        let ia = format!("model-{name}");
        let params = format!("{} 0 engine=user {settings}", address(host + at));
        let out = run(&program, &arguments, &ia, &dat_tests::softrxe(), &params);
        assert!(
            out.status.success(),
            "{version} {settings}: {}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
    }
}

#[test]
fn the_engine_does_what_the_model_says() {
    agrees("2.0", 1, "1", 1, 8);
}

#[test]
fn the_engine_does_what_the_model_says_of_two_processes() {
    agrees("2.0", 11, "2", 101, 6);
}

#[test]
fn in_1_2_the_engine_does_what_the_model_says() {
    agrees("1.2", 21, "2", 201, 6);
}

/// Faults of the loopback that the model finds within these seeds. The faults of rare calls are the conformance suite's.
const PLANTED: [&str; 8] = [
    "short-copy",
    "receives-reversed",
    "write-is-lost",
    "read-nothing",
    "failure-is-success",
    "flush-reversed",
    "bind-overtakes",
    "immediate-swapped",
];

#[test]
fn the_model_finds_planted_faults() {
    let program = compiled("2.0");
    let library = dat_tests::built().join("libdat_faulty_provider.so");
    let arguments = ["--seed", "1", "--runs", "20"];
    let found = |params: &str| {
        let out = run(&program, &arguments, "model-faulty", &library, params);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        // A failure says how to repeat it.
        assert_eq!(out.status.success(), said.is_empty(), "{params}: {said}");
        said.contains("again: model --seed ")
    };
    assert!(
        !found("127.0.4.63 0"),
        "without a fault the loopback agrees"
    );
    for word in PLANTED {
        assert!(found(&format!("127.0.4.63 0 fault={word}")), "{word}");
    }
}
