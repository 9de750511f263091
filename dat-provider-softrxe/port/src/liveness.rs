//! Notices at once that another process of the same user and host has ended, for whatever reason.
//!
//! Each engine listens under a name of the abstract UNIX namespace. A process that depends on it connects and sends
//! nothing. The kernel closes the connection when the process ends. Each side verifies that the other one belongs to
//! its own user. Another user could otherwise end connections by taking a name and closing it.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::credentials::{Trust, own_uid};
use super::fork::CloseOnFork;
use super::limits::descriptor_limit;
use super::listener::Listener;
use super::names;
use super::packets;
use super::poll_set::PollSet;
use super::unix_socket::Kind;

/// Divisor and upper bound of the connections from watchers, and of those to other processes: a part of the descriptors
/// that this process may open. Further watchers wait in the listener's queue, where they notice the end of this process
/// too.
const DESCRIPTOR_DIVISOR: usize = 4;
const MAX_CONNECTIONS: usize = 4096;

/// Lets other processes notice the end of this one.
#[derive(Debug)]
pub struct Liveness {
    /// `None` if other programs have all names.
    listener: Option<Arc<Listener>>,
    /// Connections by descriptor, as [`PollSet::ready`] returns them.
    watchers: HashMap<RawFd, CloseOnFork<OwnedFd>>,
    max_watchers: usize,
    /// The warning about too many watchers was logged. It is logged once.
    warned: bool,
}

impl Liveness {
    /// Listens for processes that watch the engine in `slot` of `ip`.
    ///
    /// # Errors
    /// As `bind`; `AddrInUse` if another engine or program has the name.
    pub fn listen(ip: IpAddr, slot: u16) -> io::Result<Self> {
        let socket = names::listen_exact(Kind::Stream, &name(ip, slot))?;
        // Also when this process changes its user: the kernel goes on naming the present one to watchers, and a watcher whose connection
        // is closed takes this process for ended.
        let trust = Trust::User(own_uid());
        let listener = Listener::new(socket, trust, Arc::new(PollSet::new()?))?;
        Ok(Self {
            listener: Some(Arc::new(listener)),
            ..Self::unwatchable()
        })
    }

    /// Creates an instance that no other process can watch.
    #[must_use]
    pub fn unwatchable() -> Self {
        Self {
            listener: None,
            watchers: HashMap::new(),
            max_watchers: max_connections(),
            warned: false,
        }
    }

    /// Returns a descriptor that is readable when a process connected; `None` if none can.
    #[must_use]
    pub fn descriptor(&self) -> Option<RawFd> {
        self.listener.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Returns the listener, whose [`Listener::accept`] needs no access to this.
    #[must_use]
    pub fn listener(&self) -> Option<&Arc<Listener>> {
        self.listener.as_ref()
    }

    /// Handles `fd`, which is ready in `poll_set`: removes a watcher that closed its connection.
    pub fn handle_ready(&mut self, fd: RawFd, poll_set: &PollSet) {
        if self.watchers.get(&fd).is_some_and(is_closed) {
            poll_set.remove(fd);
            self.watchers.remove(&fd);
        }
    }

    /// Registers processes that have connected, and adds them to `poll_set`.
    pub fn admit(&mut self, poll_set: &PollSet) {
        let Some(listener) = &self.listener else {
            return;
        };
        listener.stop(false);
        listener.accept();
        while self.watchers.len() < self.max_watchers
            && let Some(watcher) = listener.take()
        {
            // Outside `poll_set` the end of the watcher would go unnoticed. With the connection closed, the watcher takes
            // this process for ended.
            if poll_set.add(watcher.as_raw_fd()).is_ok() {
                self.watchers.insert(watcher.as_raw_fd(), watcher);
            }
        }
        if self.watchers.len() >= self.max_watchers {
            // Connections wait until a watcher ends.
            if !std::mem::replace(&mut self.warned, true) {
                tracing::warn!(
                    watchers = self.watchers.len(),
                    "too many processes watch for the end of this one: further ones wait; raise `ulimit -n`"
                );
            }
            listener.stop(true);
        }
    }
}

/// Returns whether an engine of this user has a slot of `ip`. Any user can take the name of one.
pub(crate) fn engines_have(ip: IpAddr) -> bool {
    names::own_user_listens(Kind::Stream, &names::slot_name(ip, ""))
}

fn name(ip: IpAddr, slot: u16) -> String {
    names::slot_name(ip, &slot.to_string())
}

/// Connects to a process of the own user; `WouldBlock` if its queue is full.
fn watch(ip: IpAddr, slot: u16) -> io::Result<CloseOnFork<OwnedFd>> {
    names::connect_exact(Kind::Stream, &name(ip, slot), Trust::Own)
}

/// Returns the maximum number of connections in each direction.
fn max_connections() -> usize {
    (descriptor_limit() / DESCRIPTOR_DIVISOR).clamp(16, MAX_CONNECTIONS)
}

/// Returns true if the other end is closed.
fn is_closed(connection: &CloseOnFork<OwnedFd>) -> bool {
    packets::is_closed(connection.as_fd())
}

/// Address and slot of an engine of this host.
pub type LocalPeer = (IpAddr, u16);

/// The engines of this host whose end this process watches for.
#[derive(Debug)]
pub struct LocalPeers {
    connections: HashMap<LocalPeer, CloseOnFork<OwnedFd>>,
    /// Peers by descriptor, as [`PollSet::ready`] returns them.
    by_fd: HashMap<RawFd, LocalPeer>,
    max_peers: usize,
}

impl Default for LocalPeers {
    fn default() -> Self {
        Self {
            connections: HashMap::new(),
            by_fd: HashMap::new(),
            max_peers: max_connections(),
        }
    }
}

impl LocalPeers {
    /// Watches for the end of `peer`: [`take_closed`](Self::take_closed) reports it, and `poll_set` is readable then.
    /// Returns false if there is no such engine on this host, if it accepts no watcher, or if there are too many. Also
    /// false while `peer` replaces an engine whose end was not reported yet: the two could be confused.
    pub fn watch(&mut self, peer: LocalPeer, poll_set: &PollSet) -> bool {
        if let Some(connection) = self.connections.get(&peer) {
            return !is_closed(connection);
        }
        if self.connections.len() >= self.max_peers {
            tracing::warn!(
                ?peer,
                peers = self.connections.len(),
                "too many peers: the end of this one is noticed only by an unanswered request or `keepalive=`; \
                 raise `ulimit -n`"
            );
            return false;
        }
        let connection = match watch(peer.0, peer.1) {
            Ok(connection) => connection,
            Err(error) => {
                if error.kind() == ErrorKind::WouldBlock {
                    tracing::warn!(
                        ?peer,
                        "a peer on this host accepts no watcher: its end is noticed only by an unanswered request or `keepalive=`"
                    );
                }
                return false;
            }
        };
        let added = poll_set.add(connection.as_raw_fd());
        if let Err(error) = &added {
            tracing::warn!(
                %error,
                ?peer,
                "cannot watch a peer on this host: its end is noticed only by an unanswered request or `keepalive=`"
            );
        } else {
            self.by_fd.insert(connection.as_raw_fd(), peer);
            self.connections.insert(peer, connection);
        }
        added.is_ok()
    }

    /// Returns the peer that has ended, if `fd`, which is ready in `poll_set`, was the connection to it, and removes it.
    pub fn take_closed(&mut self, fd: RawFd, poll_set: &PollSet) -> Option<LocalPeer> {
        let peer = *self.by_fd.get(&fd)?;
        let over = self.connections.get(&peer).is_none_or(is_closed);
        if !over {
            return None;
        }
        poll_set.remove(fd);
        self.by_fd.remove(&fd);
        self.connections.remove(&peer);
        Some(peer)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the peers that have ended, of all that `poll_set` reports.
    fn gone(peers: &mut LocalPeers, poll_set: &PollSet) -> Vec<LocalPeer> {
        let ready = poll_set.ready();
        let gone = ready.into_iter();
        gone.filter_map(|fd| peers.take_closed(fd, poll_set))
            .collect()
    }

    /// Handles everything in `poll_set`; returns the number of descriptors that were ready.
    fn handle_all(liveness: &mut Liveness, poll_set: &PollSet) -> usize {
        let mut looks = 0;
        while poll_set.is_readable() {
            for fd in poll_set.ready() {
                liveness.handle_ready(fd, poll_set);
                looks += 1;
            }
            liveness.admit(poll_set);
        }
        looks
    }

    /// Runs `test` while a process of another user listens under `name`.
    pub(crate) fn beside_a_foreign_listener(name: &str, test: impl FnOnce()) {
        // SAFETY: all-zero is a valid address.
        let mut at: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        at.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in at.sun_path[1..].iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        let mut fds = [0; 2];
        // SAFETY: plain system calls, in the child no others.
        unsafe {
            assert_eq!(libc::pipe(fds.as_mut_ptr()), 0);
            let child = libc::fork();
            if child == 0 {
                let fd = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
                let listens = libc::setresuid(65_534, 65_534, 65_534) == 0
                    && libc::bind(fd, (&raw const at).cast(), length as libc::socklen_t) == 0
                    && libc::listen(fd, 5) == 0;
                libc::write(fds[1], [u8::from(listens)].as_ptr().cast(), 1);
                libc::pause();
                libc::_exit(0);
            }
            let mut listens = 0_u8;
            libc::read(fds[0], (&raw mut listens).cast(), 1);
            let tested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                assert_eq!(listens, 1);
                test();
            }));
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
            for fd in fds {
                libc::close(fd);
            }
            tested.unwrap();
        }
    }

    /// A call that opens an adapter waits for an engine of its user, so no other user may look like one.
    #[test]
    fn a_name_of_another_user_is_no_engine_of_this_one() {
        if own_uid() != 0 {
            dat_untested::untested("it takes root");
            return;
        }
        let ip: IpAddr = "127.77.8.9".parse().unwrap();
        assert!(!engines_have(ip));
        beside_a_foreign_listener(&name(ip, 5), || {
            assert!(!engines_have(ip));
            let _own = Liveness::listen(ip, 6).unwrap();
            assert!(engines_have(ip));
        });
    }

    fn listen(ip: IpAddr, poll_set: &PollSet) -> Liveness {
        let liveness = Liveness::listen(ip, 1).unwrap();
        poll_set.add(liveness.descriptor().unwrap()).unwrap();
        liveness
    }

    #[test]
    fn the_end_of_a_peer_is_reported_and_nothing_else() {
        let ip: IpAddr = "127.77.4.1".parse().unwrap();
        let poll_set = PollSet::new().unwrap();
        let mut peers = LocalPeers::default();
        assert!(!peers.watch((ip, 7), &poll_set));
        let (mut first, second) = (
            Liveness::listen(ip, 7).unwrap(),
            Liveness::listen(ip, 8).unwrap(),
        );
        for slot in [7, 8, 7] {
            assert!(peers.watch((ip, slot), &poll_set));
        }
        assert!(!poll_set.is_readable());
        first.admit(&poll_set);
        assert_eq!(gone(&mut peers, &poll_set), []);
        // Accepted or not.
        drop(first);
        assert!(poll_set.is_readable());
        assert_eq!(gone(&mut peers, &poll_set), [(ip, 7)]);
        assert!(!poll_set.is_readable());
        drop(second);
        assert_eq!(gone(&mut peers, &poll_set), [(ip, 8)]);
    }

    #[test]
    fn a_new_engine_is_not_confused_with_the_former_one_of_its_slot() {
        let ip: IpAddr = "127.77.4.3".parse().unwrap();
        let poll_set = PollSet::new().unwrap();
        let mut peers = LocalPeers::default();
        let first = Liveness::listen(ip, 7).unwrap();
        assert!(peers.watch((ip, 7), &poll_set));
        drop(first);
        let _second = Liveness::listen(ip, 7).unwrap();
        assert!(!peers.watch((ip, 7), &poll_set));
        assert_eq!(gone(&mut peers, &poll_set), [(ip, 7)]);
        assert!(peers.watch((ip, 7), &poll_set));
        assert_eq!(gone(&mut peers, &poll_set), []);
    }

    #[test]
    fn thousands_of_watchers_that_come_and_go_leave_nothing() {
        let ip: IpAddr = "127.77.4.2".parse().unwrap();
        let poll_set = PollSet::new().unwrap();
        let mut liveness = listen(ip, &poll_set);
        for _ in 0..10 {
            let watchers: Vec<_> = (0..100).map(|_| watch(ip, 1).unwrap()).collect();
            handle_all(&mut liveness, &poll_set);
            assert_eq!(liveness.watchers.len(), 100);
            drop(watchers);
            assert!(poll_set.is_readable());
            handle_all(&mut liveness, &poll_set);
            assert_eq!(liveness.watchers.len(), 0);
            assert!(!poll_set.is_readable());
        }
        // More than any queue holds, one after the other.
        for _ in 0..50 {
            for _ in 0..100 {
                drop(watch(ip, 1).unwrap());
            }
            handle_all(&mut liveness, &poll_set);
        }
        assert_eq!(liveness.watchers.len(), 0);
    }

    #[test]
    fn idle_watchers_are_not_examined_when_another_one_comes_or_goes() {
        let ip: IpAddr = "127.77.4.4".parse().unwrap();
        let poll_set = PollSet::new().unwrap();
        let mut liveness = listen(ip, &poll_set);
        let idle: Vec<_> = (0..200).map(|_| watch(ip, 1).unwrap()).collect();
        handle_all(&mut liveness, &poll_set);
        assert_eq!(liveness.watchers.len(), idle.len());
        let one = watch(ip, 1).unwrap();
        assert_eq!(handle_all(&mut liveness, &poll_set), 1, "the listener");
        drop(one);
        assert_eq!(handle_all(&mut liveness, &poll_set), 1, "the one that went");
    }

    #[test]
    fn one_watcher_too_many_waits_in_the_queue_and_notices_the_end() {
        let ip: IpAddr = "127.77.4.5".parse().unwrap();
        let poll_set = PollSet::new().unwrap();
        let mut liveness = listen(ip, &poll_set);
        liveness.max_watchers = 4;
        let mut connections: Vec<_> = (0..6).map(|_| watch(ip, 1).unwrap()).collect();
        handle_all(&mut liveness, &poll_set);
        assert_eq!(liveness.watchers.len(), 4);
        assert!(
            !poll_set.is_readable(),
            "the two outside keep no thread busy"
        );
        drop(connections.remove(0));
        handle_all(&mut liveness, &poll_set);
        assert_eq!(liveness.watchers.len(), 4, "the next one has its place");
        assert!(connections.iter().all(|connection| !is_closed(connection)));
        drop(liveness);
        assert!(connections.iter().all(is_closed));
    }
}
