//! Keeps the UDP port of a process bound after the process died, so that no other user can bind it and answer its peers.
//!
//! Each member has a UDP port of its own for data. It reports that port to the holder, and the holder binds a second socket to
//! it, the *keeper*. The kernel allows that where both sockets have `SO_REUSEPORT` and belong to one user. A reuseport program
//! gives all datagrams to the member's socket as long as that exists. A filter drops what arrives at the keeper, so a keeper
//! takes no memory for datagrams.
//!
//! `dat serve-port` runs as root and creates a keeper under the uid of the member (setfsuid(2)). No descriptor travels.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use dat_os::mutex::lock;

use crate::ROCE_PORT;
use crate::address::to_c;
use crate::credentials::own_uid;
use crate::fork::CloseOnFork;
use crate::limits::descriptor_limit;
use crate::socket::Socket;

/// Time for which the port of a dead process stays bound, unless more than [`MAX_KEPT`] are. A peer with a request in flight, or
/// with a shorter `keepalive=`, notices the death within it. A holder closes the keeper then; a member that keeps the port of a
/// former holder closes it at the next end of a holder, or when this process becomes the holder.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(60);
/// Ports of dead processes that one holder keeps at most.
pub(crate) const MAX_KEPT: usize = 128;
/// First port that a process without privileges can bind.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// A socket that shares the port of a member and receives nothing.
#[derive(Debug)]
pub(crate) struct PortKeeper {
    _socket: CloseOnFork<OwnedFd>,
}

impl PortKeeper {
    /// Binds a keeper to `local`, which is the port of a process of user `uid`.
    ///
    /// # Errors
    /// `InvalidInput` for port 4791 and privileged ports; `PermissionDenied` for another user's port, if this process is not
    /// root's; `AddrInUse` if the socket there belongs to another user or was not prepared by [`allow_keepers`].
    pub(crate) fn bind(local: SocketAddr, uid: u32) -> io::Result<Self> {
        if local.port() < FIRST_UNPRIVILEGED || local.port() == ROCE_PORT {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let socket = CloseOnFork::new(|| as_user(uid, || udp_socket(local)))?;
        let fd = socket.as_raw_fd();
        attach_program(fd, libc::SO_ATTACH_FILTER)?;
        set_option(fd, libc::SO_REUSEPORT, &1)?;
        let (name, length) = to_c(&local);
        // SAFETY: `name` holds `length` bytes of a socket address.
        if unsafe { libc::bind(fd, (&raw const name).cast(), length) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { _socket: socket })
    }
}

/// Prepares a bound socket for keepers. All datagrams of its port arrive at `socket` while it is open.
///
/// # Errors
/// As `setsockopt` and `bind`.
pub(crate) fn allow_keepers(socket: &Socket) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    // After bind(2): the kernel gives port 0 also to sockets that could share it.
    set_option(fd, libc::SO_REUSEPORT, &1)?;
    // A second socket makes the group that the program belongs to. The group stays when that socket is closed.
    let second = PortKeeper::bind(socket.local(), own_uid());
    let attached = second.and_then(|_second| attach_program(fd, libc::SO_ATTACH_REUSEPORT_CBPF));
    if attached.is_err() {
        set_option(fd, libc::SO_REUSEPORT, &0)?;
    }
    attached
}

/// `struct sock_fprog` with its padding, which the kernel copies: `libc`'s type leaves that uninitialised.
#[repr(C)]
struct FilterProgram {
    length: u16,
    padding: [u8; size_of::<usize>() - size_of::<u16>()],
    instructions: *const libc::sock_filter,
}

/// Attaches a classic BPF program that returns 0. As a filter that means "drop", as a reuseport program "the first socket".
fn attach_program(fd: RawFd, option: libc::c_int) -> io::Result<()> {
    let return_0 = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let program = FilterProgram {
        length: 1,
        padding: [0; size_of::<usize>() - size_of::<u16>()],
        instructions: &raw const return_0,
    };
    set_option(fd, option, &program)
}

const _: () = assert!(size_of::<FilterProgram>() == size_of::<libc::sock_fprog>());

fn set_option<T>(fd: RawFd, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the option is read for its own size; a program that it points to lives until the return.
    let done = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            name,
            (&raw const *value).cast(),
            length,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn udp_socket(local: SocketAddr) -> io::Result<OwnedFd> {
    let family = if local.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    // SAFETY: a plain system call; a descriptor is new and has no other owner.
    unsafe {
        let fd = libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Calls `create` such that the kernel notes `uid` as the user of a new socket. The uid changes for this thread only.
fn as_user<T>(uid: u32, create: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let own = own_uid();
    if uid == own {
        return create();
    }
    if own != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // SAFETY: plain system calls. setfsuid(2) returns the uid before; the second call returns the present one.
    let set = |uid: u32| unsafe {
        libc::syscall(libc::SYS_setfsuid, uid);
        libc::syscall(libc::SYS_setfsuid, u32::MAX) == libc::c_long::from(uid)
    };
    let created = if set(uid) {
        create()
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    };
    set(own);
    created
}

/// The keepers of a holder: one for each living member, and those of members that died.
#[derive(Debug)]
pub(crate) struct KeptPorts<K = PortKeeper> {
    /// By the member's number.
    living: HashMap<u64, (u32, K)>,
    /// (uid, end of retention, keeper), oldest first.
    dead: VecDeque<(u32, Instant, K)>,
    max_dead: usize,
    pub(crate) retention: Duration,
}

impl<K> Default for KeptPorts<K> {
    fn default() -> Self {
        Self {
            living: HashMap::new(),
            dead: VecDeque::new(),
            max_dead: MAX_KEPT,
            retention: KEPT_FOR,
        }
    }
}

impl<K> KeptPorts<K> {
    /// Returns true if `member` has a keeper.
    pub(crate) fn has(&self, member: u64) -> bool {
        self.living.contains_key(&member)
    }

    /// Number of keepers.
    pub(crate) fn len(&self) -> usize {
        self.living.len() + self.dead.len()
    }

    /// Adds the keeper of a living member of user `uid`.
    pub(crate) fn insert(&mut self, member: u64, uid: u32, keeper: K) {
        self.living.insert(member, (uid, keeper));
    }

    /// Keeps the port of `member`, which died at `now`, until its retention ends. Where there are too many, the user with most of
    /// them loses its oldest.
    pub(crate) fn member_died(&mut self, member: u64, now: Instant) {
        self.drop_expired(now);
        let Some((uid, keeper)) = self.living.remove(&member) else {
            return;
        };
        self.dead.push_back((uid, now + self.retention, keeper));
        if self.dead.len() > self.max_dead {
            let of = |uid: u32| self.dead.iter().filter(|(of, ..)| *of == uid).count();
            let most = self.dead.iter().map(|(uid, ..)| (of(*uid), *uid)).max();
            let oldest = self
                .dead
                .iter()
                .position(|(uid, ..)| most.is_some_and(|most| most.1 == *uid));
            if let Some(oldest) = oldest {
                self.dead.remove(oldest);
            }
        }
    }

    /// Closes keepers whose retention has ended.
    pub(crate) fn drop_expired(&mut self, now: Instant) {
        while self.dead.front().is_some_and(|(_, end, _)| *end <= now) {
            self.dead.pop_front();
        }
    }

    /// Returns the end of the retention that ends first.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.dead.front().map(|(_, end, _)| *end)
    }
}

/// Keepers that pass from the share of a process in the port to its next one.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedKeptPorts(Arc<Mutex<KeptPorts>>);

impl SharedKeptPorts {
    pub(crate) fn lock(&self) -> MutexGuard<'_, KeptPorts> {
        lock(&self.0)
    }
}

/// Keepers that a process of an application has at most: a part of the descriptors that it may open.
pub(crate) fn max_keepers() -> usize {
    descriptor_limit() / 4
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use crate::socket::Received;

    use super::*;

    fn bind(ip: &str) -> Socket {
        let socket = Socket::bind(ip.parse().unwrap(), 0, 1 << 16).unwrap();
        allow_keepers(&socket).unwrap();
        socket
    }

    #[test]
    fn a_keeper_receives_nothing_and_keeps_the_port() {
        for ip in ["127.77.9.1", "::1"] {
            let socket = bind(ip);
            let local = socket.local();
            let first = PortKeeper::bind(local, own_uid()).unwrap();
            let second = PortKeeper::bind(local, own_uid()).unwrap();
            drop(first);
            let mut received = Received::new();
            // Many source ports: a reuseport group without a program would choose by their hash.
            for n in 0..100_u8 {
                let sender = UdpSocket::bind((local.ip(), 0)).unwrap();
                sender.send_to(&[n; 8], local).unwrap();
                assert!(socket.receive(&mut received).unwrap(), "{n}");
            }
            drop(socket);
            let taken = UdpSocket::bind(local).unwrap_err();
            assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
            drop(second);
            UdpSocket::bind(local).unwrap();
        }
    }

    #[test]
    fn ports_that_are_not_a_members_get_no_keeper() {
        let ip = "127.77.9.2".parse().unwrap();
        for port in [1, 1023, ROCE_PORT] {
            let error = PortKeeper::bind(SocketAddr::new(ip, port), own_uid()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        let plain = UdpSocket::bind((ip, 0)).unwrap();
        let error = PortKeeper::bind(plain.local_addr().unwrap(), own_uid()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_keeper_belongs_to_the_user_of_the_port() {
        if own_uid() != 0 {
            dat_untested::untested("it takes root");
            return;
        }
        let socket = bind("127.77.9.3");
        // The socket is root's, so a keeper of another user conflicts with it.
        let error = PortKeeper::bind(socket.local(), 1234).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let local = socket.local();
        drop(socket);
        let _keeper = PortKeeper::bind(local, 1234).unwrap();
        let error = PortKeeper::bind(local, own_uid()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        // The thread's uid is as before.
        let _root = bind("127.77.9.3");
    }

    #[test]
    fn ports_of_the_dead_are_bounded_and_shared_by_users() {
        let mut kept = KeptPorts::<u64> {
            max_dead: 4,
            ..KeptPorts::default()
        };
        let now = Instant::now();
        for member in 0..10 {
            let uid = if member == 1 { 11 } else { 10 };
            kept.insert(member, uid, member);
            assert!(kept.has(member));
            kept.member_died(member, now);
        }
        let left: Vec<u64> = kept.dead.iter().map(|(.., keeper)| *keeper).collect();
        assert_eq!(left, [1, 7, 8, 9]);
        kept.insert(20, 10, 20);
        assert_eq!(kept.next_expiry(), Some(now + KEPT_FOR));
        kept.drop_expired(now + KEPT_FOR);
        assert_eq!(kept.next_expiry(), None);
        assert_eq!(kept.len(), 1);
        kept.member_died(21, now);
        assert_eq!(kept.len(), 1);
    }
}
