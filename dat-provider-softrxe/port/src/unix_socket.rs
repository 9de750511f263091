//! Opens sockets of the abstract UNIX namespace that do not block.
//!
//! With a full queue at the listener a blocking connect(2) waits until the listening process accepts. That process may
//! be stopped, or may wait for this one in the same way.
//!
//! Sockets of this module refuse descriptors until [`allow_descriptors`]. The kernel closes a descriptor that is not
//! taken, in the thread that reads or closes the connection. It may be a TCP socket of another user with SO_LINGER and
//! unsent data, and its close lasts as long as that user chose.

use std::io;
use std::mem::{offset_of, size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fork;

/// Kind of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A byte stream without message boundaries.
    Stream,
    /// Messages with boundaries, in order.
    Packets,
}

/// Length of a listener's queue; the kernel may allow less (net.core.somaxconn).
const QUEUE: libc::c_int = 4096;
/// From Linux's include/uapi/asm-generic/socket.h.
const SO_PASSRIGHTS: libc::c_int = 83;

/// False if the kernel has no `SO_PASSRIGHTS`. Each socket of this module sets the option before its first use and so
/// finds out.
static REFUSES: AtomicBool = AtomicBool::new(true);

/// Returns true if the kernel refuses descriptors for sockets of this module.
pub(crate) fn refuses_descriptors() -> bool {
    REFUSES.load(Ordering::Relaxed)
}

/// Lets this process take the kernel for one without `SO_PASSRIGHTS`, as far as its own calls are concerned.
#[cfg(test)]
pub(crate) fn act_as_an_old_kernel() {
    REFUSES.store(false, Ordering::Relaxed);
}

fn socket(kind: Kind) -> io::Result<OwnedFd> {
    let kind = match kind {
        Kind::Stream => libc::SOCK_STREAM,
        Kind::Packets => libc::SOCK_SEQPACKET,
    };
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: a plain system call.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor without another owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    fork::mark(fd);
    // A connection inherits the option of its listener when it enters the queue.
    pass_rights(socket.as_fd(), false)?;
    Ok(socket)
}

/// Allows descriptors on a connection that this process made. The process at the other end must belong to a trusted
/// user.
///
/// # Errors
/// As `setsockopt`.
pub(super) fn allow_descriptors(connection: BorrowedFd<'_>) -> io::Result<()> {
    pass_rights(connection, true)
}

/// Sets whether the other end may send descriptors; if not, its sendmsg(2) fails with EPERM. Kernels before Linux 6.16
/// have no such option and allow all.
fn pass_rights(socket: BorrowedFd<'_>, pass: bool) -> io::Result<()> {
    let value = libc::c_int::from(pass);
    // SAFETY: the option is read for its own size.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENOPROTOOPT) {
        REFUSES.store(false, Ordering::Relaxed);
        return Ok(());
    }
    Err(error)
}

/// Packets that [`end`] reads. The kernel queues a few of them only (net.unix.max_dgram_qlen).
const MAX_QUEUED: usize = 1024;

/// Ends what the other end of a connection can send, and takes the packets that wait up to one with descriptors. Returns whether there is one.
pub(super) fn end(connection: BorrowedFd<'_>) -> bool {
    let fd = connection.as_raw_fd();
    let yes: libc::c_int = 1;
    let length = size_of_val(&yes) as libc::socklen_t;
    // SAFETY: plain system calls; the option is read for its own size.
    unsafe {
        libc::shutdown(fd, libc::SHUT_RD);
        // Each packet, also an empty one, then comes with its sender's number, and the end of the connection does not.
        let value = (&raw const yes).cast();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_PASSCRED, value, length);
    }
    // Room for that number, and for no descriptor.
    let mut number = [0_u64; 4];
    // SAFETY: no pointers are involved.
    let room = unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) } as usize;
    debug_assert!(room <= size_of_val(&number));
    let mut receive = |flags: libc::c_int| {
        // SAFETY: all-zero is a valid msghdr, without room for bytes.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_control = number.as_mut_ptr().cast();
        message.msg_controllen = room.min(size_of_val(&number)) as _;
        let flags = flags | libc::MSG_DONTWAIT;
        // SAFETY: `message` and what it points to live until the return.
        let got = unsafe { libc::syscall(libc::SYS_recvmsg, fd, &raw mut message, flags) };
        (got >= 0).then_some(message)
    };
    for _ in 0..MAX_QUEUED {
        // An error of the connection comes before the packets, once.
        let next = receive(libc::MSG_PEEK).or_else(|| receive(libc::MSG_PEEK));
        match next {
            Some(packet) if packet.msg_flags & libc::MSG_CTRUNC != 0 => return true,
            Some(packet) if packet.msg_controllen != 0 => drop(receive(0)),
            _ => return false,
        }
    }
    true
}

/// Returns the C form of a name of the abstract namespace, and its length.
fn to_c(name: &SocketAddr) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
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
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    let length = offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    debug_assert!(length <= size_of::<libc::sockaddr_un>());
    Ok((c, length as libc::socklen_t))
}

/// Connects to `name` without blocking.
///
/// # Errors
/// `ConnectionRefused` when no process listens, `WouldBlock` when the listener's queue is full; `InvalidInput` for a
/// name of another kind.
pub(super) fn connect(kind: Kind, name: &SocketAddr) -> io::Result<OwnedFd> {
    let (c, length) = to_c(name)?;
    let fd = socket(kind)?;
    // SAFETY: `length` bytes are within `c`, which is read only.
    if unsafe { libc::connect(fd.as_raw_fd(), (&raw const c).cast(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}

/// Binds a socket to `name` and does not listen.
pub(super) fn bind(kind: Kind, name: &SocketAddr) -> io::Result<OwnedFd> {
    let (c, length) = to_c(name)?;
    let fd = socket(kind)?;
    // SAFETY: `length` bytes are within `c`, which is read only.
    if unsafe { libc::bind(fd.as_raw_fd(), (&raw const c).cast(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}

/// Listens at `name`; the listener does not block.
pub(super) fn listen(kind: Kind, name: &SocketAddr) -> io::Result<OwnedFd> {
    let fd = bind(kind, name)?;
    // SAFETY: a plain system call.
    if unsafe { libc::listen(fd.as_raw_fd(), QUEUE) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}

/// Accepts the next connection of a listener without blocking; the connection does not block either.
///
/// # Errors
/// `WouldBlock` when there is none.
pub(super) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    loop {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let nowhere = std::ptr::null_mut();
        // SAFETY: a system call that is given no room for an address, and needs none.
        let fd =
            unsafe { libc::accept4(listener.as_raw_fd(), nowhere, std::ptr::null_mut(), flags) };
        if fd >= 0 {
            fork::mark(fd);
            // SAFETY: a new descriptor without another owner.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn address(name: &str) -> SocketAddr {
        SocketAddr::from_abstract_name(name).unwrap()
    }

    #[test]
    fn only_a_listening_socket_can_be_connected_to() {
        let name = address(&format!("connect/{}", std::process::id()));
        let refused = || connect(Kind::Stream, &name).unwrap_err().kind();
        assert_eq!(refused(), ErrorKind::ConnectionRefused);
        let bound = bind(Kind::Stream, &name).unwrap();
        assert_eq!(refused(), ErrorKind::ConnectionRefused);
        drop(bound);
        let listener = listen(Kind::Stream, &name).unwrap();
        let none = accept(listener.as_fd()).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::WouldBlock);
        let mut near = UnixStream::from(connect(Kind::Stream, &name).unwrap());
        let nothing = near.read(&mut [0]).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
        let mut far = UnixStream::from(accept(listener.as_fd()).unwrap());
        far.write_all(b"x").unwrap();
        let mut got = [0];
        assert_eq!((near.read(&mut got).unwrap(), got), (1, *b"x"));
        let path = SocketAddr::from_pathname("/tmp/x").unwrap();
        let error = connect(Kind::Stream, &path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }

    /// Returns true if the kernel has the option.
    fn refuses_descriptors() -> bool {
        let (near, _far) = UnixStream::pair().unwrap();
        let value: libc::c_int = 0;
        // SAFETY: the option is read for its own size.
        let done = unsafe {
            libc::setsockopt(
                near.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PASSRIGHTS,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        done == 0
    }

    /// Returns true if the kernel transfers a descriptor.
    fn passes(from: BorrowedFd<'_>) -> bool {
        let null = std::fs::File::open("/dev/null").unwrap();
        match crate::packets::send(from, b"x", &[null.as_raw_fd()]) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EPERM));
                false
            }
        }
    }

    #[test]
    fn descriptors_are_refused_from_the_first_moment_until_they_are_allowed() {
        let name = address(&format!("connect/rights/{}", std::process::id()));
        if !refuses_descriptors() {
            dat_untested::untested("this kernel has no SO_PASSRIGHTS (Linux 6.16)");
            return;
        }
        for kind in [Kind::Stream, Kind::Packets] {
            let listener = listen(kind, &name).unwrap();
            let near = connect(kind, &name).unwrap();
            assert!(!passes(near.as_fd()), "in the queue");
            let far = accept(listener.as_fd()).unwrap();
            assert!(!passes(near.as_fd()), "accepted");
            assert!(!passes(far.as_fd()), "connected");
            allow_descriptors(near.as_fd()).unwrap();
            assert!(passes(far.as_fd()), "allowed");
            assert!(!passes(near.as_fd()), "still only in one direction");
        }
    }

    #[test]
    fn a_full_queue_is_an_error_without_a_wait() {
        let name = address(&format!("connect/full/{}", std::process::id()));
        let listener = listen(Kind::Stream, &name).unwrap();
        // SAFETY: a plain system call; a second call changes the queue's length.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 3) }, 0);
        let mut queued = Vec::new();
        let error = loop {
            match connect(Kind::Stream, &name) {
                Ok(stream) => queued.push(stream),
                Err(error) => break error,
            }
            assert!(queued.len() < 100, "the queue has no end");
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        accept(listener.as_fd()).unwrap();
        connect(Kind::Stream, &name).unwrap();
    }
}
