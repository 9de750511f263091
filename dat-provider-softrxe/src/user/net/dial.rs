//! Connecting to a name of the abstract UNIX namespace without ever waiting.
//!
//! Where the queue of the listener is full, connect(2) waits until its process takes somebody in. That one may be stopped, or may
//! be waiting for us in the same way.

use std::io;
use std::mem::{offset_of, size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

/// A connection, which does not block.
///
/// # Errors
/// `ConnectionRefused` when nobody listens, `WouldBlock` when the listener's queue is full; `InvalidInput` for a name of another kind.
pub(super) fn dial(name: &SocketAddr) -> io::Result<UnixStream> {
    // SAFETY: all-zero is a valid sockaddr_un.
    let mut c: libc::sockaddr_un = unsafe { zeroed() };
    c.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let name = name.as_abstract_name().unwrap_or_default();
    // The first byte stays 0.
    let room = c.sun_path.get_mut(1..=name.len());
    let Some(room) = room.filter(|_| !name.is_empty()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    for (to, from) in room.iter_mut().zip(name) {
        *to = from.cast_signed();
    }
    let length = offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    debug_assert!(length <= size_of::<libc::sockaddr_un>());
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: a plain system call.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let at = (&raw const c).cast();
    // SAFETY: `length` bytes are within `c`, which is read only.
    if unsafe { libc::connect(fd.as_raw_fd(), at, length as libc::socklen_t) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd.into())
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn named(name: &str) -> SocketAddr {
        SocketAddr::from_abstract_name(name).unwrap()
    }

    #[test]
    fn who_listens_is_reached_and_who_does_not_is_not() {
        let name = named(&format!("dial/{}", std::process::id()));
        assert_eq!(
            dial(&name).unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
        let listener = UnixListener::bind_addr(&name).unwrap();
        let mut near = dial(&name).unwrap();
        assert_eq!(
            near.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        let mut far = listener.accept().unwrap().0;
        far.write_all(b"x").unwrap();
        let mut got = [0];
        assert_eq!((near.read(&mut got).unwrap(), got), (1, *b"x"));
        let path = SocketAddr::from_pathname("/tmp/x").unwrap();
        assert_eq!(dial(&path).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn a_full_queue_is_an_error_and_not_a_wait() {
        let name = named(&format!("dial/full/{}", std::process::id()));
        let listener = UnixListener::bind_addr(&name).unwrap();
        // The queue of std's own is as long as the system allows, and may be longer than we may have descriptors.
        // SAFETY: a plain system call; asking again changes the queue's length.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 3) }, 0);
        let mut queued = Vec::new();
        let error = loop {
            match dial(&name) {
                Ok(stream) => queued.push(stream),
                Err(error) => break error,
            }
            assert!(queued.len() < 100, "the queue has no end");
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        listener.accept().unwrap();
        dial(&name).unwrap();
    }
}
