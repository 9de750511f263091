//! Processes of the examples.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Time limit for a line of a process on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// A process of an example, which is killed when it is dropped.
pub(crate) struct Example {
    child: Child,
    lines: Receiver<String>,
    name: String,
}

impl Drop for Example {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the program of an example, which cargo builds beside the tests.
fn program(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("a path");
    path.pop();
    path.pop();
    path.push("examples");
    path.push(name);
    assert!(
        path.exists(),
        "{} is missing: build it by `cargo build -p udapl --examples --all-features`",
        path.display()
    );
    path
}

impl Example {
    /// Starts a process.
    pub(crate) fn start(name: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program(name));
        command.args(arguments).env_remove("DAT_OVERRIDE");
        command.stdout(Stdio::piped()).stdin(Stdio::null());
        let mut child = command.spawn().expect("starts");
        let output = child.stdout.take().expect("piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            lines,
            name: format!("{name} {arguments:?}"),
        }
    }

    /// Returns the next line of its output.
    pub(crate) fn line(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(error) => panic!("{} says nothing more: {error}", self.name),
        }
    }

    /// Starts a server, and returns the words after "listens": its address, and where it listens.
    pub(crate) fn server(name: &str, arguments: &[&str]) -> (Self, Vec<String>) {
        let mut server = Self::start(name, arguments);
        let line = server.line();
        let Some(at) = line.strip_prefix("listens ") else {
            panic!("{}: {line}", server.name)
        };
        let at = at.split(' ').map(str::to_owned).collect();
        (server, at)
    }

    /// Waits for its end, which must be a success, and returns the remaining lines.
    pub(crate) fn finish(mut self) -> Vec<String> {
        let lines: Vec<String> =
            std::iter::from_fn(|| self.lines.recv_timeout(PATIENCE).ok()).collect();
        let status = self.child.wait().expect("ended");
        assert!(status.success(), "{}: {status}, {lines:?}", self.name);
        lines
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
