//! Starts the second process, and passes on what it says.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::{Outcome, open};

/// The other process; dropping this kills it.
pub(super) struct Peer {
    pub(super) child: Child,
    /// Set when it has opened the IA.
    has_opened: Arc<AtomicBool>,
    /// Returns what it wrote to standard error before.
    reader: Option<JoinHandle<String>>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Peer {
    /// Starts the process, and returns its address and connection qualifier.
    pub(super) fn start(name: &str) -> Outcome<(Self, String)> {
        // A limit stops these first of all.
        let cannot = |error| {
            format!(
                "cannot start the second process: {error}; the limits of processes (`ulimit -u`, the control group's pids.max) \
                 and of descriptors (`ulimit -n`) may be too low, or /dev and /proc missing"
            )
        };
        let own = std::env::current_exe().map_err(cannot)?;
        let mut child = Command::new(own)
            .args(["demo-peer", name])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(cannot)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let has_opened = Arc::new(AtomicBool::new(false));
        let reader = {
            let has_opened = Arc::clone(&has_opened);
            let follow = move || follow(stderr, &has_opened);
            thread::Builder::new().spawn(follow).map_err(cannot)?
        };
        let mut peer = Self {
            child,
            has_opened,
            reader: Some(reader),
        };
        let mut line = String::new();
        BufReader::new(stdout.ok_or("no pipe to the other process")?).read_line(&mut line)?;
        if line.ends_with('\n') {
            peer.has_opened.store(true, Ordering::Relaxed);
            return Ok((peer, line));
        }
        let status = peer.child.wait()?;
        let log = peer.reader.take().and_then(|reader| reader.join().ok());
        let why = open::Unopened::of(name, &log.unwrap_or_default(), status);
        Err(why.message(name).into())
    }
}

/// Passes on what the other process writes to standard error. While it opens the IA, errors are kept and returned: the caller tells them.
fn follow(stderr: Option<ChildStderr>, has_opened: &AtomicBool) -> String {
    let mut kept = String::new();
    let lines = stderr.map(BufReader::new).map(BufRead::lines);
    for line in lines.into_iter().flatten().map_while(Result::ok) {
        let is_open = has_opened.load(Ordering::Relaxed);
        if !is_open {
            kept.push_str(&line);
            kept.push('\n');
        }
        if is_open || open::is_verbose() {
            // Without standard error there is nothing to tell it to.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
    kept
}
