//! A descriptor that one thread makes readable to wake another one (eventfd(2)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A non-blocking event descriptor, closed on exec.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Creates a descriptor that is not readable.
    ///
    /// # Errors
    /// The errors of `eventfd`, such as `EMFILE`.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are involved.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is new and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the descriptor readable until [`EventFd::clear`]. It is not a cancellation point: calls on the fast path use it
    /// while they hold locks.
    pub fn signal(&self) {
        let one = 1_u64;
        // SAFETY: `one` has eight readable bytes. The only failure is a full counter, and then the descriptor is readable.
        let _ =
            unsafe { libc::syscall(libc::SYS_write, self.as_raw_fd(), &raw const one, 8_usize) };
    }

    /// Makes the descriptor unreadable. It is not a cancellation point.
    pub fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: `count` has eight writable bytes. The only failure is a counter of 0: the descriptor was not readable.
        let _ = unsafe { libc::syscall(libc::SYS_read, self.as_raw_fd(), &raw mut count, 8_usize) };
    }
}

impl From<OwnedFd> for EventFd {
    /// Takes a descriptor that another process has created. Whoever has it can change what its calls do.
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sleep::{Slept, on_readable};

    #[test]
    fn a_signal_stays_until_it_is_cleared() {
        let event = EventFd::new().unwrap();
        let readable = || on_readable([event.as_raw_fd()], Some(Duration::ZERO)) == Slept::Woken;
        assert!(!readable());
        event.signal();
        event.signal();
        assert!(readable() && readable());
        event.clear();
        assert!(!readable());
        event.clear();
        assert!(!readable());
    }
}
