//! The example in C, `examples/c-transport`: the suite, and Debian's dtest as two processes under Debian's libdat2.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use dat_tests::scratch::folder_of_process;
use dat_tests::{TOP, built};

/// The example as a shared object, linked as its Makefile links it.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let library = folder_of_process().join("libsockets.so");
    link(
        &Path::new(TOP).join("examples/c-transport/sockets.c"),
        &library,
    );
    library
});

/// Links a transport in C with the static library.
fn link(source: &Path, to: &Path) {
    let top = Path::new(TOP);
    let done = Command::new("gcc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"])
        .arg(format!(
            "-I{}",
            top.join("dat-provider/c/include").display()
        ))
        .arg(format!("-I{}", top.join("capi/include").display()))
        .arg("-o")
        .arg(to)
        .arg(source)
        .arg(format!("-L{}", built().display()))
        .args(
            fs::read_to_string(top.join("dat-provider/c/link-flags"))
                .expect("flags")
                .split_whitespace(),
        )
        .output()
        .expect("a C compiler");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Runs the suite on the shared object, with an address of its own; returns its exit status and its closing line.
fn conform(library: &Path, address: &str, options: &[&str]) -> (Option<i32>, String) {
    let done = Command::new(built().join("dat"))
        .args(["conform", "--params", address])
        .args(options)
        .arg(library)
        .output()
        .expect("the suite runs");
    let said =
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    (done.status.code(), said)
}

#[test]
fn what_the_example_claims_holds_in_both_versions() {
    for (api, address) in [("1.2", "127.0.8.1 0"), ("2.0", "127.0.8.2 0")] {
        let (status, said) = conform(&LIBRARY, address, &["--api", api]);
        let wrong: Vec<&str> = said
            .lines()
            .filter(|line| !line.starts_with("holds") && !line.starts_with("lacks"))
            .collect();
        assert_eq!(status, Some(0), "{wrong:#?}");
        let last = said
            .lines()
            .find(|line| line.contains("statements hold"))
            .unwrap_or_default();
        let holds = last
            .split_whitespace()
            .find_map(|word| word.parse::<u32>().ok());
        assert!(holds > Some(150), "{last}");
    }
}

#[test]
fn it_exports_the_functions_of_a_provider_and_nothing_else() {
    let done = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&*LIBRARY)
        .output()
        .expect("nm");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let mut names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "dat_provider_fini",
            "dat_provider_init",
            "dat_rs_forked",
            "dat_rs_interface",
            "dat_rs_owns",
            "dat_rs_provider_init"
        ]
    );
}

#[test]
fn a_table_without_a_required_slot_does_not_register_and_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, library) = (
        folder.path().join("half.c"),
        folder.path().join("libhalf.so"),
    );
    fs::write(&source, "#include <dat_transport.h>\nstatic const struct dat_transport half = { .version = DAT_TRANSPORT_VERSION, .size = sizeof half, .name = \"half\" };\nDAT_TRANSPORT_EXPORT(half)\n").expect("written");
    link(&source, &library);
    let (status, said) = conform(&library, "x 0", &[]);
    assert_eq!(status, Some(3), "{said}");
    assert!(
        said.contains("post_send") && said.contains("required"),
        "{said}"
    );
}

/// Runs dtest with the C library of `libraries`; empty is Debian's.
fn dtest(libraries: &str) {
    let line = format!(
        "sockets0 u2.0 nonthreadsafe default {} sockets.1.0 \"127.0.8.9 0\" \"\"\n",
        LIBRARY.display()
    );
    dat_tests::dtest::pair(&line, "sockets0", "127.0.8.9", libraries);
}

#[test]
fn dtest_passes_under_debians_library() {
    dtest("");
}

#[test]
fn dtest_passes_under_our_library() {
    dtest(&dat_tests::prefix::PREFIX.path("").display().to_string());
}
