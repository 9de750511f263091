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
    Ok(receive_with(from, into, descriptors, 0)?.0)
}

/// Receives with further flags. Returns also whether there was room for all descriptors. A packet without bytes counts as the end of the
/// connection, unless descriptors were cut off.
fn receive_with(
    from: BorrowedFd<'_>,
    into: &mut [u8],
    descriptors: bool,
    flags: libc::c_int,
) -> io::Result<(Incoming, bool)> {
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
        let flags = flags | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: buffer and control live until the call returns and have the lengths given.
        let got =
            unsafe { libc::syscall(libc::SYS_recvmsg, from.as_raw_fd(), &raw mut message, flags) };
        if got < 0 {
            let error = io::Error::last_os_error();
            match error.kind() {
                ErrorKind::WouldBlock => return Ok((Incoming::Empty, true)),
                ErrorKind::Interrupted => continue,
                ErrorKind::ConnectionReset => return Ok((Incoming::Closed, true)),
                _ => return Err(error),
            }
        }
        let with = if descriptors {
            take_descriptors(&message)
        } else {
            Vec::new()
        };
        let complete = message.msg_flags & libc::MSG_CTRUNC == 0;
        let incoming = match got {
            0 if complete => Incoming::Closed,
            got => Incoming::Packet(got as usize, with),
        };
        return Ok((incoming, complete));
    }
}

/// Takes the next packet into `into`, with all its descriptors. If this process cannot open all of them, the packet stays in the queue and the
/// result has those that it could. So none is closed for the last time here.
///
/// # Errors
/// As `recvmsg`.
pub fn receive_all(from: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<Incoming> {
    let (seen, complete) = receive_with(from, into, true, libc::MSG_PEEK)?;
    match seen {
        // The packet has the same descriptors, and those that were opened stay open.
        Incoming::Packet(length, descriptors) if complete => {
            receive(from, into, false)?;
            Ok(Incoming::Packet(length, descriptors))
        }
        seen => Ok(seen),
    }
}

/// Takes the next packet into `into`, unless it carries descriptors, which [`receive`] would close: then it stays in the queue. No other thread
/// may read the connection meanwhile.
///
/// # Errors
/// `InvalidData` for a packet with descriptors; else as `recvmsg`.
pub fn receive_without_descriptors(from: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<Incoming> {
    // Where the look finds nothing, or an error, a read could find a packet.
    match receive_with(from, &mut [0], false, libc::MSG_PEEK)? {
        (_, false) => Err(ErrorKind::InvalidData.into()),
        (Incoming::Packet(..), true) => receive(from, into, false),
        (none, true) => Ok(none),
    }
}

/// Like [`receive_without_descriptors`], but without a look at packets that can have none, as the kernel refuses descriptors.
pub(crate) fn receive_refusing(from: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<Incoming> {
    if unix_socket::refuses_descriptors() {
        receive(from, into, false)
    } else {
        receive_without_descriptors(from, into)
    }
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
    use std::io::Read;
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

    #[test]
    fn a_packet_with_descriptors_stays_also_behind_an_error() {
        for is_closed in [false, true] {
            let (near, far) = pair();
            send(far.as_fd(), b"unread", &[]).unwrap();
            send(near.as_fd(), b"bare", &[]).unwrap();
            let (mut reader, writer) = io::pipe().unwrap();
            send(near.as_fd(), b"with", &[writer.as_raw_fd()]).unwrap();
            drop(writer);
            if is_closed {
                // The packet that it has not read is an error at the other end, which comes before the packets.
                drop(near);
            }
            let mut buffer = [0; 100];
            let mut got = || receive_without_descriptors(far.as_fd(), &mut buffer);
            if is_closed {
                assert!(matches!(got(), Ok(Incoming::Closed)));
            }
            assert!(matches!(got(), Ok(Incoming::Packet(4, _))));
            for _ in 0..2 {
                assert_eq!(got().unwrap_err().kind(), ErrorKind::InvalidData);
            }
            assert!(unix_socket::end(far.as_fd()), "it is there");
            drop(far);
            assert_eq!(
                reader.read(&mut [0]).unwrap(),
                0,
                "and closed with the queue"
            );
        }
    }

    #[test]
    fn all_descriptors_of_a_packet_are_taken_or_it_stays() {
        let (near, far) = pair();
        let file = File::open("/dev/null").unwrap();
        send(near.as_fd(), b"with", &[file.as_raw_fd(); 3]).unwrap();
        let mut buffer = [0; 100];
        let got = receive_all(far.as_fd(), &mut buffer).unwrap();
        assert!(matches!(got, Incoming::Packet(4, with) if with.len() == 3));
        assert!(!unix_socket::end(far.as_fd()), "it was taken");
    }

    #[test]
    fn descriptors_that_wait_at_the_end_are_seen_behind_an_error_and_other_packets() {
        for (packets, is_closed) in [(0, false), (0, true), (3, false), (3, true)] {
            for with in [false, true] {
                let (near, far) = pair();
                send(far.as_fd(), b"unread", &[]).unwrap();
                for index in 0..packets {
                    send(near.as_fd(), &[1][..index % 2], &[]).unwrap();
                }
                if with {
                    let file = File::open("/dev/null").unwrap();
                    send(near.as_fd(), &[], &[file.as_raw_fd()]).unwrap();
                }
                let _open = (!is_closed).then_some(near);
                let waits = unix_socket::end(far.as_fd());
                assert_eq!(waits, with, "{packets} {is_closed}");
            }
        }
    }
}
