//! The memory that carries the lock of a [`SharedSocket`](crate::shared_socket::SharedSocket).

use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use dat_os::signals::while_growing;

const NAME: &CStr = c"dat-rs-port";
/// Length of the lock's memory. Length and seals identify it in a forked child.
const LENGTH: libc::off_t = 4791;
const SEALS: libc::c_int =
    libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;

/// Creates memory that cannot change.
pub(crate) fn memory() -> io::Result<OwnedFd> {
    // SAFETY: plain system calls on a new descriptor, which is owned at once.
    unsafe {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let fd = libc::memfd_create(NAME.as_ptr(), flags);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let owned = OwnedFd::from_raw_fd(fd);
        if while_growing(|| libc::ftruncate(fd, LENGTH)) != 0
            || libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) != 0
        {
            return Err(io::Error::last_os_error());
        }
        Ok(owned)
    }
}

/// Returns true if `fd` is the memory of a lock. Takes no lock and no memory.
pub(crate) fn is_memory(fd: RawFd) -> bool {
    // SAFETY: plain system calls, which write to `status` only.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        libc::fcntl(fd, libc::F_GET_SEALS) == SEALS
            && libc::fstat(fd, &raw mut status) == 0
            && status.st_size == LENGTH
    }
}
