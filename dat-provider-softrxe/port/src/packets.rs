//! Sends and receives packets with descriptors on UNIX sockets. No call waits.

use std::io::{self, ErrorKind};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::unix_socket;

/// Maximum number of descriptors in a packet.
const MAX_DESCRIPTORS: usize = 3;

/// Buffer for a control message with [`MAX_DESCRIPTORS`] descriptors, aligned as `cmsghdr` must be.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Result of [`receive`].
#[derive(Debug)]
pub enum Incoming {
    /// No packet waits.
    Empty,
    /// The other end is closed.
    Closed,
    /// A packet of this length, and the descriptors that came with it.
    Packet(usize, Vec<OwnedFd>),
}

/// Sends a packet.
///
/// # Errors
/// `WouldBlock` when the receiver's queue is full; else as `sendmsg`.
pub fn send(to: BorrowedFd<'_>, packet: &[u8], with: &[RawFd]) -> io::Result<()> {
    let mut piece = libc::iovec {
        iov_base: packet.as_ptr().cast_mut().cast(),
        iov_len: packet.len(),
    };
    let mut control = Control([0; 64]);
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    if !with.is_empty() {
        if with.len() > MAX_DESCRIPTORS {
            return Err(ErrorKind::InvalidInput.into());
        }
        let bytes = size_of_val(with) as u32;
        let header: *mut libc::cmsghdr = control.0.as_mut_ptr().cast();
        message.msg_control = header.cast();
        // SAFETY: `control` is aligned for a cmsghdr and has room for one with MAX_DESCRIPTORS descriptors.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(bytes) as _;
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(bytes) as _;
            let to = libc::CMSG_DATA(header).cast::<RawFd>();
            for (index, fd) in with.iter().enumerate() {
                to.add(index).write_unaligned(*fd);
            }
        }
    }
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // A plain system call: libc's function is a cancellation point, and callers hold locks. SAFETY: the packet and the
    // control message live until the call returns.
    let sent =
        unsafe { libc::syscall(libc::SYS_sendmsg, to.as_raw_fd(), &raw const message, flags) };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Takes the next packet into `into`. Without `descriptors` the kernel closes those that came with it.
///
/// # Errors
/// As `recvmsg`.
pub fn receive(from: BorrowedFd<'_>, into: &mut [u8], descriptors: bool) -> io::Result<Incoming> {
    loop {
        let mut piece = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        let mut control = Control([0; 64]);
        // SAFETY: all-zero is a valid msghdr.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        if descriptors {
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = control.0.len() as _;
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: buffer and control live until the call returns and have the lengths given.
        let got =
            unsafe { libc::syscall(libc::SYS_recvmsg, from.as_raw_fd(), &raw mut message, flags) };
        if got < 0 {
            let error = io::Error::last_os_error();
            match error.kind() {
                ErrorKind::WouldBlock => return Ok(Incoming::Empty),
                ErrorKind::Interrupted => continue,
                ErrorKind::ConnectionReset => return Ok(Incoming::Closed),
                _ => return Err(error),
            }
        }
        let with = if descriptors {
            take_descriptors(&message)
        } else {
            Vec::new()
        };
        return Ok(match got {
            0 => Incoming::Closed,
            got => Incoming::Packet(got as usize, with),
        });
    }
}

/// Returns true if the next packet carries descriptors, which [`receive`] would close. Always false if the kernel
/// refuses descriptors.
pub(crate) fn would_close_descriptors(from: BorrowedFd<'_>) -> bool {
    if unix_socket::refuses_descriptors() {
        return false;
    }
    // SAFETY: all-zero is a valid msghdr: no room for bytes, and none for descriptors.
    let mut message: libc::msghdr = unsafe { zeroed() };
    let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
    // SAFETY: `message` lives until the return. The packet stays in the queue with its descriptors, so nothing is closed.
    let got =
        unsafe { libc::syscall(libc::SYS_recvmsg, from.as_raw_fd(), &raw mut message, flags) };
    got >= 0 && message.msg_flags & libc::MSG_CTRUNC != 0
}

/// Takes the descriptors that came with `message`, which [`receive`] filled.
fn take_descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    // SAFETY: the kernel filled the control part up to its length; the macros stay inside. Each descriptor is new and
    // has no other owner.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let first = libc::CMSG_DATA(header).cast::<RawFd>();
                for index in 0..bytes / size_of::<RawFd>() {
                    found.push(OwnedFd::from_raw_fd(first.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    found
}

/// Waits until `socket` has one of the poll(2) `events`, an error or a hang-up; returns false if `timeout` expires first.
pub(crate) fn wait(socket: BorrowedFd<'_>, events: libc::c_short, timeout: Duration) -> bool {
    dat_os::sleep::without_cancellation(socket.as_raw_fd(), events, timeout)
}

/// Returns true if the other end of a connection is closed, even while its packets wait.
#[must_use]
pub fn is_closed(socket: BorrowedFd<'_>) -> bool {
    wait(socket, libc::POLLRDHUP, Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let mut fds = [0; 2];
        // SAFETY: room for two descriptors, which are new.
        unsafe {
            let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
            assert_eq!(
                libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()),
                0
            );
            (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))
        }
    }

    #[test]
    fn packets_and_descriptors_arrive_in_order() {
        let (near, far) = pair();
        let mut buffer = [0; 100];
        let mut got = |descriptors| receive(far.as_fd(), &mut buffer, descriptors).unwrap();
        assert!(matches!(got(true), Incoming::Empty));
        let file = File::open("/dev/null").unwrap();
        let fds = [file.as_raw_fd(), near.as_raw_fd()];
        for _ in 0..2 {
            send(near.as_fd(), b"with", &fds).unwrap();
        }
        send(near.as_fd(), b"without", &[]).unwrap();
        assert!(send(near.as_fd(), b"x", &[0; MAX_DESCRIPTORS + 1]).is_err());
        assert!(matches!(got(true), Incoming::Packet(4, with) if with.len() == 2));
        assert!(matches!(got(false), Incoming::Packet(4, with) if with.is_empty()));
        assert!(!is_closed(far.as_fd()));
        drop(near);
        assert!(is_closed(far.as_fd()));
        assert!(matches!(got(true), Incoming::Packet(7, with) if with.is_empty()));
        assert!(matches!(got(true), Incoming::Closed));
        assert!(send(far.as_fd(), b"x", &[]).is_err());
    }

    #[test]
    fn a_full_connection_is_an_error_without_a_wait() {
        let (near, _far) = pair();
        let error = loop {
            if let Err(error) = send(near.as_fd(), &[0; 4096], &[]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(!wait(near.as_fd(), libc::POLLOUT, Duration::from_millis(1)));
    }
}
