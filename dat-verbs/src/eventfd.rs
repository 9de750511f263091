//! Wake-ups through a descriptor.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A non-blocking eventfd.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers are involved.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just created and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes the descriptor readable.
    pub(crate) fn signal(&self) {
        let one = 1_u64;
        // Not libc's function, which is a cancellation point: posts and polls call this, too.
        // SAFETY: eight bytes are readable at `one`. Failure means that the descriptor is readable already.
        unsafe { libc::syscall(libc::SYS_write, self.fd(), &raw const one, 8_usize) };
    }

    /// Makes the descriptor unreadable.
    pub(crate) fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: eight bytes are writable at `count`. Failure means that nothing was signalled.
        unsafe { libc::read(self.fd(), (&raw mut count).cast(), 8) };
    }
}

/// Makes `fd` non-blocking.
pub(crate) fn set_nonblocking(fd: RawFd) {
    // SAFETY: no pointers are involved; a wrong descriptor is an error return.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
    }
}
