//! Support of the end-to-end tests in `tests/tests`, and of tests in other crates that load our shared objects. The
//! objects are built, and dat.conf is written, before a process that uses them starts.
//!
//! The crate imports `udapl` only. Begin reading here: `built` and `inside` are the base; `dtest` runs that program; `engine` gives connected
//! endpoints on the user engine, `first_message` a client and a server, `process` tests of several processes, `prefix` the C libraries,
//! `socket_cm` endpoints on real rdma_rxe.

pub mod dtest;
pub mod engine;
pub mod first_message;
pub mod prefix;
mod process;
pub mod scratch;
pub mod socket_cm;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

pub use process::{Process, dist_softrxe, kernel_and_user, role, say};

/// Root folder of the workspace.
pub const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Packages with a shared object or command that tests load or run. scripts/test.sh names the same.
const PACKAGES: [&str; 9] = [
    "dat1",
    "dat2",
    "dat-loopback-provider",
    "dat-faulty-provider",
    "dat-provider-softrxe",
    "dat-provider-ibverbs",
    "dat-provider-c",
    "dat-provider-filter",
    "dat-tools",
];

/// Builds our shared objects and the command `dat`, which tests load as programs do: as files. Returns their folder.
///
/// The folder belongs to this function, and each call builds the same packages. Otherwise cargo would select other
/// features of dependencies with each selection of packages, and replace files that a test beside this one loads.
///
/// # Panics
/// If cargo fails, with its output.
#[must_use]
pub fn built() -> PathBuf {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(build);
    BUILT.clone()
}

/// Builds for [`built`], once in each process.
fn build() -> PathBuf {
    // Cargo put this test into the sub-folder `deps` of a profile's folder.
    let here = std::env::current_exe().expect("this test has a path");
    let target = here.ancestors().nth(3).expect("a target folder");
    let target = target.join("built");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--offline", "--locked", "--target-dir"]);
    cargo.arg(&target);
    for package in PACKAGES {
        cargo.args(["-p", package]);
    }
    let output = cargo.current_dir(TOP).output().expect("cargo runs");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    target.join("debug")
}

/// Returns the output of `cargo metadata` with `arguments`.
///
/// # Panics
/// If cargo fails, with its output.
#[must_use]
pub fn cargo_metadata(arguments: &[&str]) -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(arguments)
        .current_dir(TOP)
        .output()
        .expect("cargo runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

/// Returns the path of the provider for Soft-RoCE.
#[must_use]
pub fn softrxe() -> PathBuf {
    built().join("libdat_provider_softrxe.so")
}

/// Returns the path of the loopback provider from `examples`, which runs everywhere.
#[must_use]
pub fn loopback() -> PathBuf {
    built().join("libdat_loopback_provider.so")
}

/// Returns the source files of a C program of `tests/c`: one file, or all of a folder.
///
/// # Panics
/// If there is no such program.
#[must_use]
pub fn c_sources(name: &str) -> Vec<PathBuf> {
    let path = Path::new(TOP).join("tests/c").join(name);
    if path.is_file() {
        return vec![path];
    }
    let entries = std::fs::read_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    files
        .filter(|file| file.extension().is_some_and(|ext| ext == "c"))
        .collect()
}

/// Returns a line of dat.conf for uDAPL 2.0.
#[must_use]
pub fn line(ia: &str, library: &Path, params: &str) -> String {
    let library = library.display();
    format!("{ia} u2.0 threadsafe default {library} t.1.0 \"{params}\" \"\"\n")
}

/// Returns the command that runs the test `name` of this test program in a process whose dat.conf holds `lines`. The
/// variable is set before the process starts, since the registry reads it once.
///
/// # Panics
/// If dat.conf cannot be written.
#[must_use]
pub fn again(name: &str, lines: &str) -> (Command, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let conf = dir.path().join("dat.conf");
    std::fs::write(&conf, lines).expect("dat.conf is written");
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    command
        .args(["--exact", name, "--include-ignored", "--nocapture"])
        .env("DAT_OVERRIDE", &conf)
        .env(INNER, "1");
    (command, dir)
}

/// Runs `body` in a process of its own whose dat.conf holds `lines`: the process runs the test `name`, which calls
/// this function.
///
/// # Panics
/// If that process fails.
pub fn inside(name: &str, lines: impl FnOnce() -> String, body: impl FnOnce()) {
    if is_inner() {
        return body();
    }
    let (mut inner, _conf) = again(name, &lines());
    assert!(inner.status().expect("the test runs").success());
}

const INNER: &str = "DAT_TEST_INNER";

/// Lets the calling test run while no other test of its process that calls this does. nextest starts a process for each
/// test; with `cargo test` all tests of a file share one, its memory and its names.
pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    // A test that failed leaves nothing behind in the lock.
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns true in the process that [`again`] starts.
#[must_use]
pub fn is_inner() -> bool {
    std::env::var_os(INNER).is_some()
}
