//! A part of the report: a subcommand that ran in a process of its own.

use std::io::{self, BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Time between two looks at whether a process has ended.
const SLICE: Duration = Duration::from_millis(50);
/// Time for the last output of a process that has ended: a process that it left behind may hold the pipe.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Time for `dat serve` to open its IA.
const SERVER_LIMIT: Duration = Duration::from_secs(60);

/// What a subcommand printed.
pub(super) struct Part {
    /// Exit status; none if a signal or the time limit ended it.
    status: Option<i32>,
    seconds: f64,
    stdout: String,
    stderr: String,
    /// Why the part is missing or incomplete.
    failed: Option<String>,
}

impl Part {
    /// Returns a part that could not be run.
    pub(super) fn failed(error: &io::Error) -> Self {
        Self {
            status: None,
            seconds: 0.0,
            stdout: String::new(),
            stderr: String::new(),
            failed: Some(error.to_string()),
        }
    }

    /// Returns the part for the file: `output` is what was printed as JSON, or the text if it is none.
    pub(super) fn json(self) -> Value {
        let output: Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|_| self.stdout.into());
        json!({
            "status": self.status,
            "seconds": self.seconds,
            "failed": self.failed,
            "output": output,
            "messages": self.stderr,
        })
    }
}

/// Runs this command with other words, and ends it after the limit.
pub(super) fn run(words: &[&str], limit: Duration) -> io::Result<Part> {
    let begin = Instant::now();
    let mut child = this_command(words)?;
    let stdout = gather(child.stdout.take());
    let stderr = gather(child.stderr.take());
    let mut failed = None;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            if status.code().is_none() {
                failed = Some(format!("`dat {}` was ended: {status}", words.join(" ")));
            }
            break status.code();
        }
        if begin.elapsed() > limit {
            failed = Some(format!(
                "`dat {}` did not end within {} s",
                words.join(" "),
                limit.as_secs()
            ));
            end(&mut child);
            break None;
        }
        thread::sleep(SLICE);
    };
    Ok(Part {
        status,
        seconds: begin.elapsed().as_secs_f64(),
        stdout: stdout.recv_timeout(LAST_WORDS).unwrap_or_default(),
        stderr: stderr.recv_timeout(LAST_WORDS).unwrap_or_default(),
        failed,
    })
}

/// `dat serve` on this machine; dropping it ends it.
pub(super) struct Server {
    child: Child,
    /// The address to connect to.
    pub(super) address: String,
}

impl Server {
    /// Starts the server, and returns when it listens.
    pub(super) fn start(ia: &str, port: &str) -> io::Result<Self> {
        let mut child = this_command(&["serve", ia, "--port", port, "--json"])?;
        let lines = child.stdout.take().map(BufReader::new);
        let stderr = gather(child.stderr.take());
        let (send, first) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            if let Some(mut lines) = lines {
                let _ = lines.read_line(&mut line);
                let _ = send.send(line);
                // The lines about its clients must not fill the pipe.
                let _ = io::copy(&mut lines, &mut io::sink());
            }
        });
        let line = first.recv_timeout(SERVER_LIMIT).unwrap_or_default();
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        match said["address"].as_str() {
            Some(address) => Ok(Self {
                child,
                address: address.to_owned(),
            }),
            None => {
                end(&mut child);
                let why = stderr.recv_timeout(LAST_WORDS).unwrap_or_default();
                Err(io::Error::other(format!(
                    "`dat serve` does not listen: {}",
                    why.trim()
                )))
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn this_command(words: &[&str]) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Reads a pipe to its end in a thread.
fn gather(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (send, gathered) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What came before an error is worth having.
            let _ = pipe.read_to_end(&mut bytes);
        }
        let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    gathered
}

fn end(child: &mut Child) {
    // A process that has ended cannot be killed, and is waited for all the same.
    let _ = child.kill();
    let _ = child.wait();
}
