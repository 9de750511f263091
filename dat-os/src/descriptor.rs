//! Numbers and flags of descriptors (fcntl(2)).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Returns `fd`, or in its place a copy with a number above those of the standard streams. Where a program has closed one of these, the
/// next descriptor gets its number: what the program prints would go there, and a later `dup2` of /dev/null would close it.
///
/// # Errors
/// `EMFILE` if there is no such number left.
pub fn above_streams(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() > libc::STDERR_FILENO {
        return Ok(fd);
    }
    let least = libc::STDERR_FILENO + 1;
    // SAFETY: no pointers are involved.
    let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `copy` is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Makes `fd` non-blocking. A descriptor that is not open is ignored.
pub fn set_nonblocking(fd: RawFd) {
    // SAFETY: no pointers are involved; a wrong descriptor is an error return.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_read_of_a_non_blocking_descriptor_does_not_wait() {
        let (mut near, _far) = UnixStream::pair().unwrap();
        set_nonblocking(near.as_raw_fd());
        let error = near.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}
