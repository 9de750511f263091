//! The model of the API (tests/c/model) on real rdma_rxe: fixed seeds over both connection managers, by one process and by two.

use std::path::{Path, PathBuf};
use std::process::Command;

use dat_tests::c_sources;

/// Returns the folder that `make dist` has filled.
fn dist() -> PathBuf {
    let exe = std::env::current_exe().expect("this test has a path");
    let dist = exe.ancestors().nth(3).expect("target").join("dist");
    assert!(dist.join("lib").exists(), "run make dist first");
    dist
}

/// Compiles the model for uDAPL 2.0.
fn compiled(dist: &Path, program: &Path) {
    let status = Command::new("gcc")
        .args(c_sources("model"))
        .arg("-I")
        .arg(dist.join("include"))
        .arg("-L")
        .arg(dist.join("lib"))
        .args(["-ldat2", "-lpthread", "-o"])
        .arg(program)
        .status();
    assert!(status.expect("gcc starts").success());
}

fn agrees(params: &str, processes: &str, first: &str, seeds: &str) {
    let dist = dist();
    let folder = tempfile::tempdir().expect("a folder");
    let (program, conf) = (folder.path().join("model"), folder.path().join("dat.conf"));
    compiled(&dist, &program);
    let library = dist.join("lib/libdat-provider-ibverbs.so.2");
    std::fs::write(&conf, dat_tests::line("ia", &library, params)).expect("written");
    let out = Command::new(program)
        .args([
            "--rxe",
            "--processes",
            processes,
            "--seed",
            first,
            "--runs",
            seeds,
            "ia",
        ])
        .env("LD_LIBRARY_PATH", dist.join("lib"))
        .env("DAT_OVERRIDE", conf)
        .output()
        .expect("the model starts");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{params}: {said}");
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn rdma_rxe_does_what_the_model_says() {
    agrees("v0 0", "1", "1001", "2");
}

#[test]
#[ignore = "needs rdma_rxe: `make lab-test` runs it in the lab"]
fn rdma_rxe_does_what_the_model_says_of_two_processes_over_sockets() {
    agrees("v0 0 cm=socket", "2", "202", "1");
}
