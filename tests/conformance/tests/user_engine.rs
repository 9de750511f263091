//! The statements, put to softrxe's user engine: RoCEv2 over UDP between two IAs of this process.

use std::path::{Path, PathBuf};
use std::process::Command;

use dat_conformance::matrix::{self, Provider};
use dat_conformance::{Api, Dat, host};

/// The provider's shared object, which tests reach as programs do: as a file.
fn provider() -> PathBuf {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--offline",
            "-p",
            "dat-provider-softrxe",
        ])
        .current_dir(top)
        .output()
        .expect("cargo runs");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    // Where cargo put this test, less `deps/NAME`.
    let here = std::env::current_exe().expect("this test has a path");
    here.ancestors()
        .nth(2)
        .expect("a target folder")
        .join("libdat_provider_softrxe.so")
}

fn is_as_declared(api: Api, address: &str) {
    let params = format!("{address} 0 engine=user");
    let table = host::load(&provider(), "user", &params, api).expect("the provider registers");
    let wrong = matrix::put(&Dat::new(table, "user"), Provider::User);
    assert!(wrong.is_empty(), "uDAPL {api}:\n{}", wrong.join("\n"));
}

#[test]
fn in_1_2_it_does_what_the_matrix_says() {
    is_as_declared(Api::V1_2, "127.0.5.1");
}

#[test]
fn in_2_0_it_does_what_the_matrix_says() {
    is_as_declared(Api::V2_0, "127.0.5.2");
}
