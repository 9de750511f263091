//! A UDP socket as RoCEv2 needs it: unconnected, IPv4 identification 0 and DF (the ICRC covers both), zero UDP
//! checksums accepted on IPv6, segmentation offload for sending, coalescing for receiving.

mod received;
mod ring;
mod with_ring;

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use super::address::{from_c, raw, to_c};
use super::fork::CloseOnFork;
use ring::Ring;

pub use received::{Received, zeros};
pub use ring::Counters as RingCounters;

/// Largest run of equal datagrams that one [`Socket::send`] takes (`UDP_MAX_SEGMENTS` of older Linux kernels).
pub const MAX_SEGMENTS: usize = 64;
/// Largest payload of one run, limited by the 16-bit lengths of UDP and IPv4.
pub const MAX_RUN: usize = 65_507;

const UDP_NO_CHECK6_RX: libc::c_int = 102;

/// A UDP socket with the options of RoCEv2. All methods take `&self` and may be called from any thread.
#[derive(Debug)]
pub struct Socket {
    /// Dropped before the socket is closed.
    ring: OnceLock<Ring>,
    fd: CloseOnFork<OwnedFd>,
    local: SocketAddr,
}

impl Socket {
    /// Binds `ip` and `port` (0: the kernel chooses) and requests buffers of `buffer` bytes in each direction; the
    /// kernel may give less (`net.core.rmem_max`).
    ///
    /// # Errors
    /// As `socket`, `setsockopt`, `bind`; `AddrInUse` on 4791 when rdma_rxe or another engine has it.
    pub fn bind(ip: IpAddr, port: u16, buffer: usize) -> io::Result<Self> {
        let family = if ip.is_ipv4() {
            libc::AF_INET
        } else {
            libc::AF_INET6
        };
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = CloseOnFork::new(|| {
            // SAFETY: a plain system call.
            let fd = unsafe { libc::socket(family, kind, 0) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: a new descriptor without another owner.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        })?;
        let raw = fd.as_raw_fd();
        // DF, and the netdev's MTU: any host can forge the ICMP message from which the kernel learns that of a path. With that of
        // IP_PMTUDISC_DO one such message would refuse every longer packet to a peer for ten minutes.
        if ip.is_ipv4() {
            set(
                raw,
                libc::IPPROTO_IP,
                libc::IP_MTU_DISCOVER,
                libc::IP_PMTUDISC_PROBE,
            )?;
        } else {
            set(
                raw,
                libc::IPPROTO_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_PROBE,
            )?;
            set(raw, libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)?;
            set(raw, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        set(
            raw,
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            buffer as libc::c_int,
        )?;
        set(
            raw,
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            buffer as libc::c_int,
        )?;
        if let Err(error) = set(raw, libc::IPPROTO_UDP, libc::UDP_GRO, 1) {
            tracing::debug!(%error, "no UDP_GRO here: datagrams come one by one");
        }
        let (name, length) = to_c(&SocketAddr::new(ip, port));
        // SAFETY: `name` holds `length` bytes of a socket address.
        if unsafe { libc::bind(raw, (&raw const name).cast(), length) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Self::adopt(fd)
    }

    /// Takes the bound UDP socket that a process was started with as descriptor `fd`, and prepares it for reading.
    ///
    /// # Safety
    /// The process has had `fd` from its start, if it is open, and no other code of it owns the descriptor.
    ///
    /// # Errors
    /// As `fcntl`, `setsockopt`, `getsockname`; for a descriptor that is no UDP socket.
    pub unsafe fn inherit(fd: RawFd, buffer: usize) -> io::Result<Self> {
        // SAFETY: plain system calls; the first one fails for a descriptor that is not open.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            if flags < 0
                || libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0
                || libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) < 0
            {
                return Err(io::Error::last_os_error());
            }
        }
        set(fd, libc::IPPROTO_UDP, libc::UDP_GRO, 1)?;
        set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, buffer as libc::c_int)?;
        // SAFETY: the descriptor is open, and the caller promises that nothing else owns it.
        let fd = CloseOnFork::new(|| Ok(unsafe { OwnedFd::from_raw_fd(fd) }))?;
        Self::adopt(fd)
    }

    /// Takes a UDP socket that is bound already.
    ///
    /// # Errors
    /// As `getsockname`; for a socket that is not of the internet.
    pub fn adopt(fd: CloseOnFork<OwnedFd>) -> io::Result<Self> {
        let mut name = raw();
        let mut length = size_of_val(&name) as libc::socklen_t;
        // SAFETY: `name` has room for `length` bytes.
        if unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut name).cast(), &raw mut length) }
            != 0
        {
            return Err(io::Error::last_os_error());
        }
        let local = from_c(&name).ok_or_else(|| io::Error::other("address family"))?;
        Ok(Self {
            ring: OnceLock::new(),
            fd,
            local,
        })
    }

    /// Returns the bound address and port.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the size of the receive buffer in bytes, as the kernel counts them.
    ///
    /// # Errors
    /// As `getsockopt`.
    pub fn receive_buffer(&self) -> io::Result<usize> {
        let mut value: libc::c_int = 0;
        let mut length = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: `value` has room for `length` bytes.
        let done = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVBUF,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        if done == 0 {
            Ok(value as usize)
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Sends the bytes of `pieces` to `to`: one datagram, or with `segment` a run of datagrams of that many bytes each
    /// (the last may be shorter), which the kernel cuts.
    ///
    /// # Safety
    /// Each piece is readable for its length. Its content may change meanwhile (the peer then drops the packet for its
    /// ICRC).
    ///
    /// # Errors
    /// `WouldBlock` when the send buffer is full; `ConnectionRefused` may report an earlier datagram.
    pub unsafe fn send(
        &self,
        to: &SocketAddr,
        pieces: &[libc::iovec],
        segment: Option<u16>,
    ) -> io::Result<()> {
        // SAFETY: the caller's promise.
        let sent = unsafe { self.send_run(to, pieces, segment) };
        match (segment, sent) {
            // The kernel cannot cut runs on this route: IPsec, or a netdev without checksums and a kernel before 6.11.
            (Some(bytes), Err(error)) if error.raw_os_error() == Some(libc::EIO) => {
                let each = |datagram: &[libc::iovec]| {
                    // SAFETY: parts of `pieces`.
                    unsafe { self.send_run(to, datagram, None) }
                };
                cut(pieces, usize::from(bytes), each)
            }
            (_, sent) => sent,
        }
    }

    /// # Safety
    /// As [`send`](Self::send).
    unsafe fn send_run(
        &self,
        to: &SocketAddr,
        pieces: &[libc::iovec],
        segment: Option<u16>,
    ) -> io::Result<()> {
        let (mut name, length) = to_c(to);
        let mut control = Control([0; 64]);
        // SAFETY: all-zero is a valid msghdr.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_name = (&raw mut name).cast();
        message.msg_namelen = length;
        message.msg_iov = pieces.as_ptr().cast_mut();
        message.msg_iovlen = pieces.len();
        if let Some(bytes) = segment {
            message.msg_control = control.put_segment(bytes);
            message.msg_controllen = Control::SEGMENT_SPACE;
        }
        // A plain system call: libc's function is a cancellation point with bookkeeping of its own, and the caller
        // holds locks. SAFETY: name, pieces and control live until the call returns; the caller promises that the
        // pieces are readable.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_sendmsg,
                self.fd.as_raw_fd(),
                &raw const message,
                libc::MSG_NOSIGNAL,
            )
        };
        if sent < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Reads what has arrived, without waiting. Returns false if nothing has.
    ///
    /// # Errors
    /// As `recvmsg`; an earlier datagram's ICMP error is skipped.
    pub fn receive(&self, into: &mut Received) -> io::Result<bool> {
        match self.ring.get() {
            Some(ring) => ring.look(into, |into| self.read(into)),
            None => self.read(into),
        }
    }

    /// Reads the socket.
    fn read(&self, into: &mut Received) -> io::Result<bool> {
        loop {
            let mut name = raw();
            // SAFETY: all-zero is a valid msghdr.
            let mut message: libc::msghdr = unsafe { zeroed() };
            let mut control = Control([0; 64]);
            let mut piece = libc::iovec {
                iov_base: into.bytes.as_mut_ptr().cast(),
                iov_len: into.bytes.len(),
            };
            message.msg_name = (&raw mut name).cast();
            message.msg_namelen = size_of_val(&name) as libc::socklen_t;
            message.msg_iov = &raw mut piece;
            message.msg_iovlen = 1;
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = control.0.len();
            // As in `send`. SAFETY: name, buffer and control live until the call returns and have the lengths given.
            let got = unsafe {
                libc::syscall(libc::SYS_recvmsg, self.fd.as_raw_fd(), &raw mut message, 0)
            };
            if got < 0 {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(false),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted => continue,
                    _ => return Err(error),
                }
            }
            let Some(from) = from_c(&name) else {
                continue;
            };
            into.length = got as usize;
            into.from = from;
            into.from_ring = false;
            into.segment = segment_of(&message).unwrap_or(into.length).max(1);
            return Ok(true);
        }
    }
}

/// Calls `send` with each datagram of `bytes` bytes that `pieces` contain, in order.
fn cut(
    pieces: &[libc::iovec],
    bytes: usize,
    mut send: impl FnMut(&[libc::iovec]) -> io::Result<()>,
) -> io::Result<()> {
    let (mut datagram, mut room) = (Vec::with_capacity(4), bytes);
    for piece in pieces {
        let (mut base, mut left) = (piece.iov_base.cast::<u8>(), piece.iov_len);
        while left > 0 {
            let part = left.min(room);
            datagram.push(libc::iovec {
                iov_base: base.cast(),
                iov_len: part,
            });
            base = base.wrapping_add(part);
            left -= part;
            room -= part;
            if room == 0 {
                send(&datagram)?;
                datagram.clear();
                room = bytes;
            }
        }
    }
    if datagram.is_empty() {
        Ok(())
    } else {
        send(&datagram)
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Buffer for one control message, aligned as `cmsghdr` must be.
#[repr(C, align(8))]
struct Control([u8; 64]);

impl Control {
    // SAFETY: CMSG_SPACE only computes.
    const SEGMENT_SPACE: usize = unsafe { libc::CMSG_SPACE(size_of::<u16>() as u32) } as usize;

    fn put_segment(&mut self, bytes: u16) -> *mut libc::c_void {
        let header: *mut libc::cmsghdr = self.0.as_mut_ptr().cast();
        // SAFETY: `self.0` is aligned for a cmsghdr and has room for one with two bytes of data.
        unsafe {
            (*header).cmsg_level = libc::IPPROTO_UDP;
            (*header).cmsg_type = libc::UDP_SEGMENT;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
            libc::CMSG_DATA(header).cast::<u16>().write_unaligned(bytes);
        }
        header.cast()
    }
}

/// Returns the segment size that `UDP_GRO` reports, if the kernel coalesced.
fn segment_of(message: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel filled `msg_control` up to `msg_controllen`; CMSG_FIRSTHDR/NXTHDR stay inside.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::IPPROTO_UDP && (*header).cmsg_type == libc::UDP_GRO {
                return Some(
                    libc::CMSG_DATA(header)
                        .cast::<libc::c_int>()
                        .read_unaligned() as usize,
                );
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    None
}

fn set(fd: RawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: `value` is read for its own size.
    let done = unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(bytes: &[u8]) -> libc::iovec {
        libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        }
    }

    fn wait(socket: &Socket) {
        let mut poll = libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd.
        let ready = unsafe { libc::poll(&raw mut poll, 1, 5000) };
        assert_eq!(ready, 1, "nothing arrived in 5 s");
    }

    #[test]
    fn a_run_arrives_as_its_datagrams() {
        for ip in ["127.0.0.1", "::1"] {
            let a = Socket::bind(ip.parse().unwrap(), 0, 1 << 20).unwrap();
            let b = Socket::bind(ip.parse().unwrap(), 0, 1 << 20).unwrap();
            let (head, body) = ([1u8; 12], [2u8; 88]);
            let pieces = [
                piece(&head),
                piece(&body),
                piece(&head),
                piece(&body),
                piece(&head),
                piece(&body[..30]),
            ];
            // SAFETY: the arrays outlive the call.
            unsafe { a.send(&b.local(), &pieces, Some(100)).unwrap() };
            let mut lengths = Vec::new();
            let mut received = Received::new();
            while lengths.len() < 3 {
                wait(&b);
                while b.receive(&mut received).unwrap() {
                    assert_eq!(received.from, a.local());
                    for (_, datagram) in received.datagrams() {
                        assert_eq!((&datagram[..12], datagram[12]), (&head[..], 2));
                        lengths.push(datagram.len());
                    }
                }
            }
            assert_eq!(lengths, [100, 100, 42]);
        }
    }

    #[test]
    fn a_run_is_cut_where_its_datagrams_end() {
        let bytes: Vec<u8> = (0..250).collect();
        let pieces = [
            piece(&bytes[..12]),
            piece(&bytes[12..130]),
            piece(&[]),
            piece(&bytes[130..]),
        ];
        let mut got = Vec::new();
        let each = |datagram: &[libc::iovec]| {
            let mut whole = Vec::<u8>::new();
            for part in datagram {
                // SAFETY: the parts lie in `bytes`.
                whole.extend(unsafe {
                    std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len)
                });
            }
            got.push(whole);
            Ok(())
        };
        cut(&pieces, 100, each).unwrap();
        assert_eq!(got, [&bytes[..100], &bytes[100..200], &bytes[200..]]);
    }

    #[test]
    fn an_address_and_port_is_bound_once() {
        let a = Socket::bind("127.0.0.1".parse().unwrap(), 0, 1 << 16).unwrap();
        let error =
            Socket::bind("127.0.0.1".parse().unwrap(), a.local().port(), 1 << 16).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(a.receive_buffer().unwrap() >= 1 << 16);
    }
}
