//! Standard error of the process, kept in memory for a while (memfd_create(2), dup2(2)).

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// Keeps what all threads of this process and its children write to standard error, until [`HeldStderr::end`] or the drop.
#[derive(Debug)]
pub struct HeldStderr {
    /// Standard error as it was.
    before: OwnedFd,
    kept: File,
}

impl HeldStderr {
    /// Begins to keep what is written to standard error.
    ///
    /// # Errors
    /// Those of the system calls: standard error is closed, or there is no descriptor left. Nothing is kept then.
    pub fn begin() -> io::Result<Self> {
        // SAFETY: no pointers are involved.
        let before = owned(unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, 3) })?;
        // SAFETY: the name is a C string.
        let kept = owned(unsafe { libc::memfd_create(c"stderr".as_ptr(), libc::MFD_CLOEXEC) })?;
        replace(&kept)?;
        let kept = File::from(kept);
        Ok(Self { before, kept })
    }

    /// Restores standard error, and returns what was written meanwhile.
    #[must_use]
    pub fn end(mut self) -> String {
        let mut bytes = Vec::new();
        let read = self
            .kept
            .rewind()
            .and_then(|()| self.kept.read_to_end(&mut bytes));
        // A file in memory can be read.
        debug_assert!(read.is_ok(), "{read:?}");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for HeldStderr {
    fn drop(&mut self) {
        // Both descriptors are open: only a signal could disturb it, and dup2 on Linux has no such error.
        let _ = replace(&self.before);
    }
}

/// Takes a new descriptor, or the error of the call that was to make it.
fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes standard error the file of `fd`.
fn replace(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: no pointers are involved, and standard error has no owner that would close it.
    let done = unsafe { libc::dup2(fd.as_raw_fd(), libc::STDERR_FILENO) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_written_to_standard_error_is_kept_until_the_end() {
        let place = || std::fs::read_link("/proc/self/fd/2").unwrap();
        let before = place();
        let held = HeldStderr::begin().unwrap();
        writeln!(io::stderr(), "one").unwrap();
        let child = Command::new("sh").args(["-c", "echo two >&2"]).status();
        assert!(child.unwrap().success());
        assert_eq!(held.end(), "one\ntwo\n");
        assert_eq!(place(), before);
        drop(HeldStderr::begin().unwrap());
        assert_eq!(place(), before);
    }
}
