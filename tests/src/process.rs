//! Tests of several processes: each runs the test program again, with its role in an environment variable.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::line;

const ROLE: &str = "DAT_TEST_ROLE";

/// Returns the role of this process; `None` in the process that nextest started.
#[must_use]
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Prints a line that [`Process::says`] finds, in a process that has a role.
///
/// # Panics
/// If the process that started this one has ended.
pub fn say(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}").expect("the scenario reads");
    out.flush().expect("the scenario reads");
}

/// Returns the Soft-RoCE provider of the built prefix, for the lab, which has no cargo.
///
/// # Panics
/// If `make dist` did not run.
#[must_use]
pub fn dist_softrxe() -> PathBuf {
    let exe = std::env::current_exe().expect("this test has a path");
    let dist = exe.ancestors().nth(3).expect("target").join("dist");
    let library = dist.join("lib/libdat-provider-softrxe.so.2");
    assert!(library.exists(), "run make dist first");
    library
}

/// Returns a folder with a dat.conf, and its path, for a test in the lab. The IA `kernel` is on the kernel's rdma_rxe, `user` on the user engine in the
/// namespace `peer`, with `settings`.
///
/// # Panics
/// If `make dist` did not run, or the file cannot be written.
#[must_use]
pub fn kernel_and_user(settings: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let conf = dir.path().join("dat.conf");
    let library = dist_softrxe();
    let user = format!("10.9.0.2 0 engine=user {settings}");
    let lines = line("kernel", &library, "v0 0 engine=kernel") + &line("user", &library, &user);
    std::fs::write(&conf, lines).expect("written");
    (dir, conf)
}

/// A process that is killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts the test `name` of this program as `role`, with `conf` as dat.conf. `within` is a command that runs it,
    /// if not empty.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(name: &str, role: &str, conf: &Path, within: &[&str]) -> Self {
        let exe = std::env::current_exe().expect("this test has a path");
        let exe = exe.to_str().expect("a path of words");
        let words = [
            within,
            &[exe, "--exact", name, "--include-ignored", "--nocapture"],
        ]
        .concat();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .env("DAT_OVERRIDE", conf)
            .env("DAT_LOG", "warn")
            .env(ROLE, role)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test runs");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// Waits for the first line that begins with `word`; returns the rest of it.
    #[must_use]
    pub fn says(&self, word: &str, within: Duration) -> Option<String> {
        let end = Instant::now() + within;
        while let Ok(line) = self.lines.recv_timeout(end - Instant::now().min(end)) {
            if let Some(rest) = line.strip_prefix(word) {
                return Some(rest.trim().to_owned());
            }
        }
        None
    }
}
