//! Non-blocking TCP connections.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use dat_os::close_on_fork::CloseOnFork;

use crate::cm::addr::CAddr;

/// Level, name and value of a socket option.
type Setting = (i32, i32, i32);

/// Keepalive: idle time and interval in seconds; with nine probes, the connection to a host that vanished ends after
/// 47 s. There are no probes while data is not acknowledged; the last option, in milliseconds, is the limit for that.
const KEEP_ALIVE: [Setting; 4] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 20),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 3),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 47_000),
];

/// Delays accept until data arrives, for at most one second: the active side sends at once, so its data acknowledges
/// the handshake.
const DEFER_ACCEPT: Setting = (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 1);

/// Disables quick ACKs: the answer follows soon and acknowledges the data.
const NO_QUICK_ACK: Setting = (libc::IPPROTO_TCP, libc::TCP_QUICKACK, 0);

/// A connection, established or not. Dropping it shuts it down, even where a forked child has the descriptor.
#[derive(Debug)]
pub(crate) struct Stream(CloseOnFork<TcpStream>);

/// Result of a read.
pub(crate) enum Received {
    /// The number of bytes read.
    Bytes(usize),
    /// No data yet.
    Nothing,
    /// The end of the stream; `reset` for a reset or another error.
    End { reset: bool },
}

impl Stream {
    /// Starts to connect from `from` to `to`; true if connected at once.
    pub(crate) fn connect(from: IpAddr, scope: u32, to: SocketAddr) -> io::Result<(Self, bool)> {
        let family = if to.is_ipv4() {
            libc::AF_INET
        } else {
            libc::AF_INET6
        };
        let stream = Self(CloseOnFork::new(|| socket(family).map(TcpStream::from))?);
        let fd = stream.fd();
        // The port is chosen at connect, so that connections to different peers can share one.
        set(fd, (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1));
        // A service point may listen on that port.
        set(fd, (libc::SOL_SOCKET, libc::SO_REUSEADDR, 1));
        set(fd, NO_QUICK_ACK);
        let length = |a: &SocketAddr| match a {
            SocketAddr::V4(_) => size_of::<libc::sockaddr_in>() as libc::socklen_t,
            SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>() as libc::socklen_t,
        };
        let from = crate::cm::addr::socket(from, 0, scope);
        let mut own = CAddr::new(from);
        // SAFETY: `own` is an address of that length.
        if unsafe { libc::bind(fd, own.as_mut_ptr(), length(&from)) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut peer = CAddr::new(to);
        // SAFETY: `peer` is an address of that length.
        let mut connect = || match unsafe { libc::connect(fd, peer.as_mut_ptr(), length(&to)) } {
            0 => Ok(true),
            _ => match io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::EALREADY) => Ok(false),
                e => Err(e),
            },
        };
        match connect() {
            // A peer on this machine may have answered already; a second call returns the result.
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => connect(),
            done => done,
        }
        .map(|connected| (stream, connected))
    }

    /// Enables TCP keepalive. Accepted connections inherit it from the [listening socket](set_listen_options).
    pub(crate) fn keep_alive(&self) {
        KEEP_ALIVE
            .into_iter()
            .for_each(|option| set(self.fd(), option));
    }

    /// Accepts the next waiting connection of `listener`, whose [options](set_listen_options) it inherits.
    pub(crate) fn accept(listener: &TcpListener) -> io::Result<(Self, SocketAddr)> {
        let mut peer = CAddr::new(SocketAddr::from(([0; 16], 0)));
        let mut length = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let accept = || {
            // SAFETY: `peer` has room for `length` bytes, which every address of these families fits into.
            let fd = unsafe {
                libc::accept4(
                    listener.as_raw_fd(),
                    peer.as_mut_ptr(),
                    &raw mut length,
                    flags,
                )
            };
            // SAFETY: the kernel returned it.
            unsafe { owned(fd) }.map(TcpStream::from)
        };
        let stream = Self(CloseOnFork::new(accept)?);
        // SAFETY: the kernel wrote a whole address.
        let peer = unsafe { crate::cm::addr::from_c(peer.as_mut_ptr()) };
        Ok((stream, peer.ok_or(ErrorKind::InvalidData)?))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Returns the local address.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.0.local_addr().ok()
    }

    /// Returns the peer's address once the stream is connected.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.0.peer_addr().ok()
    }

    /// Returns the result of [`Stream::connect`], or `None` while it is in progress.
    pub(crate) fn connect_result(&self) -> Option<io::Result<()>> {
        match self.0.take_error() {
            Ok(Some(e)) | Err(e) => Some(Err(e)),
            Ok(None) => self.0.peer_addr().is_ok().then_some(Ok(())),
        }
    }

    /// Reads the available data.
    pub(crate) fn receive(&self, into: &mut [u8]) -> Received {
        loop {
            return match (&*self.0).read(into) {
                Ok(0) => Received::End { reset: false },
                Ok(n) => Received::Bytes(n),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => Received::Nothing,
                Err(e) => {
                    tracing::debug!("reading a connection failed, it ends as if reset: {e}");
                    Received::End { reset: true }
                }
            };
        }
    }

    /// Sends all bytes: messages are far smaller than any send buffer.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        loop {
            match (&*self.0).write(bytes) {
                Ok(n) if n == bytes.len() => return Ok(()),
                Ok(_) => return Err(ErrorKind::WriteZero.into()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// Makes a socket that does not block.
fn socket(family: i32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are involved, and the kernel returns the descriptor.
    unsafe { owned(libc::socket(family, kind, 0)) }
}

/// Returns the owner of `fd`, or the error of the call that has just returned a negative number.
///
/// # Safety
/// If it is not negative, `fd` was just created and has no other owner.
unsafe fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Listens at `at` with a socket that does not block. It is tracked before it has the port.
pub(crate) fn listen(at: SocketAddr) -> io::Result<CloseOnFork<TcpListener>> {
    let (family, length) = match at {
        SocketAddr::V4(_) => (libc::AF_INET, size_of::<libc::sockaddr_in>()),
        SocketAddr::V6(_) => (libc::AF_INET6, size_of::<libc::sockaddr_in6>()),
    };
    let listener = CloseOnFork::new(|| socket(family).map(TcpListener::from))?;
    let fd = listener.as_raw_fd();
    set(fd, (libc::SOL_SOCKET, libc::SO_REUSEADDR, 1));
    let mut own = CAddr::new(at);
    // SAFETY: `own` is an address of that length.
    let listens = unsafe {
        libc::bind(fd, own.as_mut_ptr(), length as libc::socklen_t) == 0
            && libc::listen(fd, libc::SOMAXCONN) == 0
    };
    if !listens {
        return Err(io::Error::last_os_error());
    }
    set_listen_options(fd);
    Ok(listener)
}

/// Sets the options of a listening socket. TCP_NODELAY is not needed: each message is one write with nothing else in
/// flight, and the disconnect message goes with the FIN.
fn set_listen_options(fd: RawFd) {
    KEEP_ALIVE
        .into_iter()
        .chain([DEFER_ACCEPT, NO_QUICK_ACK])
        .for_each(|option| set(fd, option));
}

/// Grows the process's descriptor table to `descriptors`, within its limit. Growing the table of a process with
/// several threads waits some 10 ms (`synchronize_rcu`), which would delay all connections in progress.
pub(crate) fn reserve_descriptors(fd: RawFd, descriptors: i32) {
    // SAFETY: no pointers are involved; the copy has no other owner.
    unsafe {
        let copy = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, descriptors - 1);
        if copy >= 0 {
            libc::close(copy);
        }
    }
}

fn set(fd: RawFd, (level, name, value): Setting) {
    // SAFETY: `value` is an int of that size. The connection works without the option too.
    unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        );
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // It fails when the connection has already ended.
        self.0.shutdown(Shutdown::Both).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_descriptors_is_made_and_none_of_them_kept() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        reserve_descriptors(socket.as_raw_fd(), 512);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        assert!(
            size.unwrap().trim().parse::<u32>().unwrap() >= 512,
            "{size:?}"
        );
        assert!(std::fs::metadata("/proc/self/fd/511").is_err());
    }

    #[test]
    fn a_connection_on_this_machine_is_there_at_once_and_a_refusal_too() {
        let ip = IpAddr::from([127, 0, 0, 1]);
        let listener = listen((ip, 0).into()).unwrap();
        let to = listener.local_addr().unwrap();
        let (stream, connected) = Stream::connect(ip, 0, to).unwrap();
        assert!(connected);
        // The system reports the connection once data has arrived.
        let error = Stream::accept(&listener).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        stream.send(b"hello").unwrap();
        let (peer, remote) = Stream::accept(&listener).unwrap();
        assert_eq!(Some(remote), stream.local());
        assert!(matches!(peer.receive(&mut [0; 16]), Received::Bytes(5)));
        drop((stream, peer, listener));
        let refused = Stream::connect(ip, 0, to).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
    /// What a child has of sockets that another thread makes, accepts and closes while it is forked, it closes.
    #[test]
    fn hardly_any_child_that_is_forked_meanwhile_keeps_a_socket() {
        let ip = IpAddr::from([127, 0, 0, 1]);
        let listener = listen((ip, 0).into()).unwrap();
        let to = listener.local_addr().unwrap();
        type Name = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32;
        let has_port = |fd, name: Name| {
            let mut address = CAddr::new(to);
            let mut length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            // SAFETY: `address` has room for an address of this family, and is a whole one in any case.
            unsafe {
                name(fd, address.as_mut_ptr(), &raw mut length) == 0
                    && crate::cm::addr::from_c(address.as_mut_ptr()) == Some(to)
            }
        };
        let is_one = |fd| has_port(fd, libc::getpeername) || has_port(fd, libc::getsockname);
        let ends = std::sync::atomic::AtomicBool::new(false);
        let kept = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                    let (stream, _) = Stream::connect(ip, 0, to).unwrap();
                    stream.send(b"hello").unwrap();
                    let accepted = Stream::accept(&listener);
                    drop((stream, accepted));
                }
            });
            let kept: i32 = (0..2000)
                // SAFETY: the child does what a signal handler may do, and ends.
                .map(|_| unsafe {
                    let pid = libc::fork();
                    if pid == 0 {
                        libc::_exit(i32::from((0..100).any(is_one)));
                    }
                    let mut status = 0;
                    assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
                    i32::from(status != 0)
                })
                .sum();
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
            kept
        });
        // A socket that is made and not marked yet may stay, since the parent goes on with it.
        assert!(kept < 50, "{kept} children of 2,000 kept a socket");
    }
}
