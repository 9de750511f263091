//! A second process with the provider under test: it listens, accepts one connection, and returns each message; or it never answers.
//! Statements connect to it and kill it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, ExitCode, Stdio};

use dat_core::event::ConnectionEvent;
use dat_core::flags::MemPriv;

use crate::dat::{Dat, Post};
use crate::event::SUCCESS;
use crate::fixture::{FOREVER, Side, expect_ok};
use crate::verdict::{Check, Verdict, broken, ok};

/// What a second process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// It accepts a connection and returns each message.
    Echo,
    /// It takes a connection request and never answers it.
    Mute,
}

impl Role {
    const fn word(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Mute => "mute",
        }
    }

    /// Returns the role of a command line's word.
    pub(crate) fn of(word: &str) -> Option<Self> {
        [Self::Echo, Self::Mute]
            .into_iter()
            .find(|role| role.word() == word)
    }
}

/// Receives that the second process keeps posted.
const RECEIVES: u64 = 4;
/// Longest message in bytes.
const LONGEST: usize = 64;

/// A running second process; it is killed when this is dropped.
pub(crate) struct Peer {
    child: Child,
    lines: BufReader<std::io::PipeReader>,
    /// Qualifier that it listens on.
    pub(crate) conn_qual: u64,
}

impl Peer {
    /// Starts the process and waits until it listens.
    pub(crate) fn start(dat: &Dat, role: Role) -> Check<Self> {
        let Some(launcher) = dat.launcher() else {
            return broken("this program starts no second process; `dat conform` does");
        };
        let failed = |error: std::io::Error| {
            Verdict::Broken(format!("cannot start a second process: {error}"))
        };
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        let output = std::io::stderr()
            .as_fd()
            .try_clone_to_owned()
            .map_err(failed)?;
        let mut words = launcher.command.iter();
        let child = Command::new(words.next().map_or("", String::as_str))
            .args(words)
            .arg(role.word())
            .stdin(Stdio::from(OwnedFd::from(writer)))
            .stdout(Stdio::from(output))
            .spawn()
            .map_err(failed)?;
        let mut peer = Self {
            child,
            lines: BufReader::new(reader),
            conn_qual: 0,
        };
        let line = peer.line()?;
        let number = line.strip_prefix("listens ").map(str::parse);
        let Some(Ok(conn_qual)) = number else {
            return broken(format!("the second process failed: {line}"));
        };
        peer.conn_qual = conn_qual;
        Ok(peer)
    }

    /// Waits until the process says that a connection request is there.
    pub(crate) fn is_asked(&mut self) -> Check {
        match self.line()?.as_str() {
            "asked" => Ok(()),
            other => broken(format!("the second process failed: {other}")),
        }
    }

    /// Stops the process as by `kill -STOP`.
    pub(crate) fn stop(&self) {
        let Ok(number) = libc::pid_t::try_from(self.child.id()) else {
            return;
        };
        // SAFETY: a plain call; the child was not waited for, so the number is its.
        unsafe { libc::kill(number, libc::SIGSTOP) };
    }

    /// Kills the process as by `kill -9`, and waits for its end.
    pub(crate) fn kill(&mut self) {
        // It fails only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn line(&mut self) -> Check<String> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) | Err(_) => broken("the second process ended without a word"),
            Ok(_) => Ok(line.trim_end().to_owned()),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs the second process. Descriptor 0 is the pipe to the first.
pub(crate) fn run(dat: &Result<Dat, String>, role: Role, mut pipe: File) -> ExitCode {
    let done = match dat {
        Ok(dat) => play(dat, role, &mut pipe),
        Err(why) => broken(why.as_str()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // The first process may have gone, and needs no reason then.
            let _ = writeln!(pipe, "{why:?}");
            ExitCode::FAILURE
        }
    }
}

fn play(dat: &Dat, role: Role, pipe: &mut File) -> Check {
    let mut say = |line: &str| {
        writeln!(pipe, "{line}").or_else(|error| broken(format!("the pipe is closed: {error}")))
    };
    let side = Side::open(dat)?;
    let (_psp, conn_qual) = side.listen()?;
    let ep = side.ep()?;
    let memory = side.memory(LONGEST, MemPriv::ALL.bits())?;
    for cookie in 0..RECEIVES {
        side.post(ep, Post::Recv, &[memory.local()], cookie)?;
    }
    say(&format!("listens {conn_qual}"))?;
    let cr = side.request()?;
    say("asked")?;
    if role == Role::Mute {
        // Until it is killed: nothing comes here.
        let _ = dat.evd_wait(side.conn, FOREVER, 1);
        return Ok(());
    }
    ok(dat.cr_accept(cr, ep, b""), "dat_cr_accept")?;
    side.connection(ep, ConnectionEvent::Established)?;
    loop {
        let (seen, _) = expect_ok(dat.evd_wait(side.recv, FOREVER, 1), "dat_evd_wait")?;
        match seen.completion() {
            Some((cookie, SUCCESS)) => side.post(ep, Post::Recv, &[memory.local()], cookie)?,
            _ => return Ok(()),
        }
        side.post(ep, Post::Send, &[memory.local()], 100)?;
        side.completes(side.request, 100, SUCCESS)?;
    }
}
