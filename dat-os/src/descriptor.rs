//! Flags of descriptors (fcntl(2)).

use std::os::fd::RawFd;

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
