//! Starts and controls the processes of a test.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::identity::{Identity, this_program};
use crate::old_kernel::mask_pass_rights;
use crate::usage::Usage;
use crate::{PART, STEP_TIMEOUT};

/// Common setup of a test's processes: a folder that every user can read, with the provider and a `dat.conf`.
#[derive(Debug)]
pub struct Stage {
    test: String,
    folder: tempfile::TempDir,
    on_old_kernel: Cell<bool>,
}

impl Stage {
    /// Prepares the test function `test` (its path within the test binary). The IA `user` of its dat.conf is the user
    /// engine on `address` with the settings `more`.
    ///
    /// # Panics
    /// When the provider cannot be built or copied.
    #[must_use]
    pub fn new(test: &str, address: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let everyone = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), everyone).expect("the folder is ours");
        let built = dat_tests::softrxe();
        let provider = folder.path().join("provider.so");
        // The folder of the build may be closed to other users.
        std::fs::hard_link(&built, &provider)
            .or_else(|_| std::fs::copy(&built, &provider).map(drop))
            .expect("the provider is copied");
        let stage = Self {
            test: test.to_owned(),
            folder,
            on_old_kernel: Cell::new(false),
        };
        stage.adapter("user", address, more);
        stage
    }

    /// Adds the IA `name` to dat.conf: the user engine on `address` with the settings `more`. Processes that are
    /// started afterwards see it.
    ///
    /// # Panics
    /// When dat.conf cannot be written.
    pub fn adapter(&self, name: &str, address: &str, more: &str) {
        let params = format!("{address} 0 engine=user {more}");
        let line = dat_tests::line(name, &self.path("provider.so"), params.trim());
        let mut conf = std::fs::OpenOptions::new();
        let conf = conf.append(true).create(true).open(self.path("dat.conf"));
        let written = conf.and_then(|mut file| file.write_all(line.as_bytes()));
        written.expect("dat.conf is written");
    }

    /// Returns the path of a file in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sets whether processes that are started from now on see a kernel without `SO_PASSRIGHTS`.
    pub fn on_old_kernel(&self, old: bool) {
        self.on_old_kernel.set(old);
    }

    /// Starts the test once more, with the role `part`, as `identity`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(&self, part: &str, identity: Identity) -> Actor {
        let (mut command, _program) = this_program().expect("this test has a file");
        command
            .args(["--exact", &self.test, "--nocapture"])
            .env(PART, part);
        self.run(part, command, identity)
    }

    /// Starts `command` as `identity`, with the role `part` and the dat.conf of this stage.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn run(&self, part: &str, mut command: Command, identity: Identity) -> Actor {
        if self.on_old_kernel.get() {
            mask_pass_rights(&mut command);
        }
        identity.apply(&mut command);
        let level = std::env::var("DAT_LOG");
        let mut child = command
            .env("DAT_OVERRIDE", self.path("dat.conf"))
            .env("DAT_LOG", level.as_deref().unwrap_or("warn"))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{part} as {identity:?} does not start: {error}"));
        let said = listen(part, child.stdout.take().expect("piped"));
        let logged = listen(part, child.stderr.take().expect("piped"));
        Actor {
            part: part.to_owned(),
            input: child.stdin.take(),
            child,
            said,
            logged,
        }
    }
}

/// Collects the lines of `from` and prints them.
fn listen(part: &str, from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    let part = part.to_owned();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            eprintln!("[{part}] {line}");
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// A process of a test. Dropping this kills it.
#[derive(Debug)]
pub struct Actor {
    part: String,
    child: Child,
    input: Option<ChildStdin>,
    said: Receiver<String>,
    logged: Receiver<String>,
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Actor {
    /// Waits for a line that begins with `word` on standard output; returns the rest of the line.
    ///
    /// # Panics
    /// When the process ends first, or the line does not arrive within [`STEP_TIMEOUT`].
    pub fn expect_line(&self, word: &str) -> String {
        match find(&self.said, STEP_TIMEOUT, |line| line.strip_prefix(word)) {
            Ok(rest) => rest,
            Err(error) => panic!("{} does not print {word:?}: {error}", self.part),
        }
    }

    /// Waits for such a line, as [`expect_line`](Self::expect_line) does, for a time. Returns `None` if none arrives `within` it, or
    /// before the process ends.
    #[must_use]
    pub fn line_within(&self, word: &str, within: Duration) -> Option<String> {
        find(&self.said, within, |line| line.strip_prefix(word)).ok()
    }

    /// Waits for a line that contains `word` on standard error, where the library logs; returns what follows the word.
    ///
    /// # Panics
    /// When the process ends first, or the line does not arrive within [`STEP_TIMEOUT`].
    pub fn expect_log(&self, word: &str) -> String {
        match find(&self.logged, STEP_TIMEOUT, |line| {
            Some(line.split_once(word)?.1)
        }) {
            Ok(rest) => rest,
            Err(error) => panic!("{} does not log {word:?}: {error}", self.part),
        }
    }

    /// Writes a line to the standard input of the process.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn send_line(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it is open until the end");
        writeln!(input, "{line}").unwrap_or_else(|error| panic!("{}: {error}", self.part));
    }

    /// Returns the pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns what the process uses now.
    ///
    /// # Panics
    /// When the process has ended.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage::of(self.pid()).unwrap_or_else(|error| panic!("{}: {error}", self.part))
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When that fails.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: a plain system call on a child that was not waited for.
        let done = unsafe { libc::kill(self.pid().cast_signed(), signal) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// Returns true if the process has not ended.
    ///
    /// # Panics
    /// When the system does not show it.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Closes the standard input, at which processes of a test end, and waits for the end.
    ///
    /// # Panics
    /// When the process does not end within [`STEP_TIMEOUT`].
    pub fn close_input_and_wait(mut self) -> ExitStatus {
        self.input = None;
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(begin.elapsed() < STEP_TIMEOUT, "{} does not end", self.part);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the process with SIGKILL and waits for its end.
    pub fn kill(self) {
        drop(self);
    }
}

/// Returns the first result of `rest` for a line.
fn find(
    lines: &Receiver<String>,
    within: Duration,
    rest: impl for<'a> Fn(&'a str) -> Option<&'a str>,
) -> Result<String, RecvTimeoutError> {
    let end = Instant::now() + within;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left)?;
        if let Some(rest) = rest(&line) {
            return Ok(rest.trim().to_owned());
        }
    }
}
