//! The other process of a measurement, and the processors of both.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::Result;

/// Binds this process and the threads it will start to one processor: 0 measures, 1 serves. On a machine with one
/// processor both share it.
pub(crate) fn pin(processor: usize) {
    // SAFETY: an all-zero set is an empty one; the set lives until the call returns.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        // A machine without that processor refuses, and the process stays unbound.
        let _ = libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// A child process that is killed when dropped.
pub(crate) struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Peer {
    /// Starts this program with `arguments`; returns it and its first line of output.
    pub(crate) fn ourselves(arguments: &[&str]) -> Result<(Self, String)> {
        Self::speaking(Command::new(std::env::current_exe()?).args(arguments))
    }

    /// Starts a program; returns it and its first line of output.
    pub(crate) fn speaking(command: &mut Command) -> Result<(Self, String)> {
        let mut child = command
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("no pipe to the other process")?;
        let peer = Self(child);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        match line.trim() {
            "" => Err("the other process did not start; its message is above".into()),
            line => Ok((peer, line.to_owned())),
        }
    }

    /// Starts a tool's server in the background.
    pub(crate) fn tool(command: &mut Command) -> Result<Self> {
        Ok(Self(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?,
        ))
    }
}
