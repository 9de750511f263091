//! The model of the API (tests/c/model) on real rdma_rxe: fixed seeds over both connection managers, by one process and by two.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the target folder of this test, `target/debug/deps/NAME`.
fn target() -> PathBuf {
    let here = std::env::current_exe().expect("this test has a path");
    here.ancestors().nth(3).expect("target").to_owned()
}

/// Returns the last lines of the trace, with the failures of all seeds before them.
fn failures(trace: &Path) -> String {
    let trace = std::fs::read(trace).expect("a trace");
    let trace = String::from_utf8_lossy(&trace);
    let lines: Vec<&str> = trace.lines().collect();
    let failed = lines.iter().filter(|line| line.contains("model: FAIL"));
    let last = &lines[lines.len().saturating_sub(40)..];
    failed
        .chain(last)
        .fold(String::new(), |all, line| all + line + "\n")
}

/// Runs `seeds` seeds from `first` by `processes` processes, over an IA with the parameters `params`. scripts/lab-tests.sh has compiled the program
/// on the host.
fn agrees(name: &str, params: &str, processes: &str, first: u32, seeds: u32) {
    let (target, folder) = (target(), tempfile::tempdir().expect("a folder"));
    let (dist, program) = (target.join("dist/lib"), target.join("lab/model"));
    assert!(
        program.exists(),
        "run make dist first, then scripts/lab-tests.sh, which compiles {}",
        program.display()
    );
    let conf = folder.path().join("dat.conf");
    let library = dist.join("libdat-provider-ibverbs.so.2");
    std::fs::write(&conf, dat_tests::line("ia", &library, params)).expect("written");
    let kept = PathBuf::from(std::env::var("DAT_LAB_OUT").expect("DAT_LAB_OUT is set"));
    let file = format!("model-{name}.trace");
    let trace = File::create(kept.join(&file)).expect("DAT_LAB_OUT takes files");
    let status = Command::new(program)
        .args(["--rxe", "--trace", "--processes", processes])
        .args(["--seed", &first.to_string(), "--runs", &seeds.to_string()])
        .arg("ia")
        .env("LD_LIBRARY_PATH", dist)
        .env("DAT_OVERRIDE", conf)
        .env("DAT_LOG", "error")
        .stdout(trace.try_clone().expect("a descriptor"))
        .stderr(trace)
        .status()
        .expect("the model starts");
    assert!(
        status.success(),
        "{}\nall calls: {} on the host",
        failures(&kept.join(&file)),
        target.join("lab/out").join(&file).display()
    );
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn rdma_rxe_does_what_the_model_says() {
    agrees("rdma-1", "v0 0", "1", 1, 4);
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn rdma_rxe_does_what_the_model_says_of_two_processes() {
    agrees("rdma-2", "v0 0", "2", 1, 2);
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn rdma_rxe_does_what_the_model_says_over_sockets() {
    agrees("socket-1", "v0 0 cm=socket", "1", 5, 2);
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn rdma_rxe_does_what_the_model_says_of_two_processes_over_sockets() {
    agrees("socket-2", "v0 0 cm=socket", "2", 1, 2);
}
