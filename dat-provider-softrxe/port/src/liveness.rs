//! Lifelines: a process of this host learns at once that another one of its user is gone, however it went.
//!
//! Each engine listens under a name of the abstract UNIX namespace. A process that depends on it connects and never says
//! anything; the kernel hangs up when the process ends. Each side makes sure that the other one is of its own user: another
//! user could else end connections by taking a name and hanging up.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use super::credentials::Trust;
use super::fork::CloseOnFork;
use super::limits::descriptor_limit;
use super::names;
use super::packets;
use super::unix_socket::{self, Kind};
use super::wake::PollSet;

/// Lifelines taken in at most, and those of ours to others: a part of the descriptors that this process may have. More wait in the
/// listener's queue, where they hear of our end as well.
const SHARE_OF_DESCRIPTORS: usize = 4;
const MOST: usize = 4096;
/// Connections that are taken in before other work has its turn.
const ACCEPT_BATCH: usize = 128;

/// Held as long as this process lives.
#[derive(Debug)]
pub struct Liveness {
    /// `None` where other programs have all names.
    listener: Option<CloseOnFork<OwnedFd>>,
    /// By descriptor, which is what [`PollSet::ready`] names.
    watchers: HashMap<RawFd, CloseOnFork<OwnedFd>>,
    most: usize,
    /// The listener is not in `lives`, because there is no room for another watcher.
    full: bool,
    /// That was said in the log, which is not to be flooded either.
    warned: bool,
}

impl Liveness {
    /// The life of the engine in `slot` of `ip`.
    ///
    /// # Errors
    /// As `bind`; `AddrInUse` where there is one, or where another program has its name.
    pub fn listen(ip: IpAddr, slot: u16) -> io::Result<Self> {
        let listener = names::listen_exact(Kind::Stream, &name(ip, slot))?;
        Ok(Self {
            listener: Some(listener),
            ..Self::unwatchable()
        })
    }

    /// A life that no other process can watch.
    #[must_use]
    pub fn unwatchable() -> Self {
        Self {
            listener: None,
            watchers: HashMap::new(),
            most: max_connections(),
            full: false,
            warned: false,
        }
    }

    /// A descriptor that is readable when a process is to be taken in; `None`: none ever is.
    #[must_use]
    pub fn descriptor(&self) -> Option<RawFd> {
        self.listener.as_ref().map(|listener| listener.as_raw_fd())
    }

    /// Deals with `fd`, which is ready in `lives`, if it belongs to this life: takes in those that have connected, or forgets the one
    /// that is gone. `false`: one waits to be taken in, and there is no descriptor for it.
    pub fn handle_ready(&mut self, fd: RawFd, lives: &PollSet) -> bool {
        if Some(fd) == self.descriptor() {
            return self.admit(lives);
        }
        if self.watchers.get(&fd).is_some_and(is_over) {
            lives.remove(fd);
            self.watchers.remove(&fd);
            if self.full
                && let Some(listener) = self.descriptor()
            {
                self.full = lives.add(listener).is_err();
            }
        }
        true
    }

    fn admit(&mut self, lives: &PollSet) -> bool {
        let Some(listener) = &self.listener else {
            return true;
        };
        for _ in 0..ACCEPT_BATCH {
            if self.watchers.len() >= self.most {
                // The queue stays as it is until a watcher goes.
                if !std::mem::replace(&mut self.warned, true) {
                    tracing::warn!(
                        watchers = self.watchers.len(),
                        "no more processes can watch over this one; further ones wait"
                    );
                }
                lives.remove(listener.as_raw_fd());
                self.full = true;
                return true;
            }
            let watcher = match CloseOnFork::new(|| unix_socket::accept(listener.as_fd())) {
                Ok(watcher) => watcher,
                Err(error) => {
                    return matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::ConnectionAborted
                    );
                }
            };
            // One that cannot be asked whether it is gone is as good as none: it hears of our end too soon. So does a process of
            // another user.
            if Trust::Own.accepts(watcher.as_fd()) && lives.add(watcher.as_raw_fd()).is_ok() {
                self.watchers.insert(watcher.as_raw_fd(), watcher);
            }
        }
        true
    }
}

fn name(ip: IpAddr, slot: u16) -> String {
    names::user_name(ip, &format!("life/{slot}"))
}

/// Connects to the life of a process of the own user; `WouldBlock` if too many wait to be taken in.
fn watch(ip: IpAddr, slot: u16) -> io::Result<CloseOnFork<OwnedFd>> {
    names::connect_exact(Kind::Stream, &name(ip, slot), Trust::Own)
}

/// Lifelines each way at most.
fn max_connections() -> usize {
    (descriptor_limit() / SHARE_OF_DESCRIPTORS).clamp(16, MOST)
}

/// Returns true if the other end is gone.
fn is_over(line: &CloseOnFork<OwnedFd>) -> bool {
    packets::is_over(line.as_fd())
}

/// Address and slot of an engine of this host.
pub type LocalPeer = (IpAddr, u16);

/// The engines of this host that this one is connected to.
#[derive(Debug)]
pub struct LocalPeers {
    lines: HashMap<LocalPeer, CloseOnFork<OwnedFd>>,
    /// By descriptor, which is what [`PollSet::ready`] names.
    by_fd: HashMap<RawFd, LocalPeer>,
    most: usize,
}

impl Default for LocalPeers {
    fn default() -> Self {
        Self {
            lines: HashMap::new(),
            by_fd: HashMap::new(),
            most: max_connections(),
        }
    }
}

impl LocalPeers {
    /// From now on [`gone`](Self::take_closed) tells of the end of `who`, and `lives` is readable then. `false`: no such engine on this host,
    /// one that takes none in, one too many, or one in the place of another whose end was not told yet, and would be taken for its.
    pub fn watch(&mut self, who: LocalPeer, lives: &PollSet) -> bool {
        if let Some(line) = self.lines.get(&who) {
            return !is_over(line);
        }
        if self.lines.len() >= self.most {
            tracing::warn!(?who, "too many neighbours: its end will be noticed later");
            return false;
        }
        let line = match watch(who.0, who.1) {
            Ok(line) => line,
            Err(error) => {
                if error.kind() == ErrorKind::WouldBlock {
                    tracing::warn!(
                        ?who,
                        "a neighbour does not take us in: its end will be noticed later"
                    );
                }
                return false;
            }
        };
        let added = lives.add(line.as_raw_fd());
        if let Err(error) = &added {
            tracing::warn!(%error, "the end of a neighbour will be noticed later");
        } else {
            self.by_fd.insert(line.as_raw_fd(), who);
            self.lines.insert(who, line);
        }
        added.is_ok()
    }

    /// The neighbour that has ended, if `fd`, which is ready in `lives`, was the line to it; `lives` hears no more of it.
    pub fn take_closed(&mut self, fd: RawFd, lives: &PollSet) -> Option<LocalPeer> {
        let who = *self.by_fd.get(&fd)?;
        let over = self.lines.get(&who).is_none_or(is_over);
        if !over {
            return None;
        }
        lives.remove(fd);
        self.by_fd.remove(&fd);
        self.lines.remove(&who);
        Some(who)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that have ended since, of all that `lives` names.
    fn gone(neighbours: &mut LocalPeers, lives: &PollSet) -> Vec<LocalPeer> {
        let ready = lives.ready();
        let gone = ready.into_iter();
        gone.filter_map(|fd| neighbours.take_closed(fd, lives))
            .collect()
    }

    /// Deals with all that stirs; how many descriptors were looked at.
    fn poll_members(life: &mut Liveness, lives: &PollSet) -> usize {
        let mut looks = 0;
        while lives.is_readable() {
            for fd in lives.ready() {
                assert!(life.handle_ready(fd, lives));
                looks += 1;
            }
        }
        looks
    }

    fn life(ip: IpAddr, lives: &PollSet) -> Liveness {
        let life = Liveness::listen(ip, 1).unwrap();
        lives.add(life.descriptor().unwrap()).unwrap();
        life
    }

    #[test]
    fn the_end_of_a_neighbour_is_heard_and_only_that() {
        let ip: IpAddr = "127.77.4.1".parse().unwrap();
        let lives = PollSet::new().unwrap();
        let mut neighbours = LocalPeers::default();
        assert!(!neighbours.watch((ip, 7), &lives));
        let (mut first, second) = (
            Liveness::listen(ip, 7).unwrap(),
            Liveness::listen(ip, 8).unwrap(),
        );
        for slot in [7, 8, 7] {
            assert!(neighbours.watch((ip, slot), &lives));
        }
        assert!(!lives.is_readable());
        assert!(first.admit(&lives));
        assert_eq!(gone(&mut neighbours, &lives), []);
        // Taken in or not.
        drop(first);
        assert!(lives.is_readable());
        assert_eq!(gone(&mut neighbours, &lives), [(ip, 7)]);
        assert!(!lives.is_readable());
        drop(second);
        assert_eq!(gone(&mut neighbours, &lives), [(ip, 8)]);
    }

    #[test]
    fn a_successor_is_not_taken_for_the_one_before() {
        let ip: IpAddr = "127.77.4.3".parse().unwrap();
        let lives = PollSet::new().unwrap();
        let mut neighbours = LocalPeers::default();
        let first = Liveness::listen(ip, 7).unwrap();
        assert!(neighbours.watch((ip, 7), &lives));
        drop(first);
        let _second = Liveness::listen(ip, 7).unwrap();
        assert!(!neighbours.watch((ip, 7), &lives));
        assert_eq!(gone(&mut neighbours, &lives), [(ip, 7)]);
        assert!(neighbours.watch((ip, 7), &lives));
        assert_eq!(gone(&mut neighbours, &lives), []);
    }

    #[test]
    fn thousands_that_come_and_go_leave_nothing() {
        let ip: IpAddr = "127.77.4.2".parse().unwrap();
        let lives = PollSet::new().unwrap();
        let mut life = life(ip, &lives);
        for _ in 0..10 {
            let watchers: Vec<_> = (0..100).map(|_| watch(ip, 1).unwrap()).collect();
            poll_members(&mut life, &lives);
            assert_eq!(life.watchers.len(), 100);
            drop(watchers);
            assert!(lives.is_readable());
            poll_members(&mut life, &lives);
            assert_eq!(life.watchers.len(), 0);
            assert!(!lives.is_readable());
        }
        // More than any backlog holds, one after the other.
        for _ in 0..50 {
            for _ in 0..100 {
                drop(watch(ip, 1).unwrap());
            }
            poll_members(&mut life, &lives);
        }
        assert_eq!(life.watchers.len(), 0);
    }

    #[test]
    fn idle_lifelines_are_not_looked_at_when_another_one_comes_or_goes() {
        let ip: IpAddr = "127.77.4.4".parse().unwrap();
        let lives = PollSet::new().unwrap();
        let mut life = life(ip, &lives);
        let idle: Vec<_> = (0..200).map(|_| watch(ip, 1).unwrap()).collect();
        poll_members(&mut life, &lives);
        assert_eq!(life.watchers.len(), idle.len());
        let one = watch(ip, 1).unwrap();
        assert_eq!(poll_members(&mut life, &lives), 1, "the listener");
        drop(one);
        assert_eq!(poll_members(&mut life, &lives), 1, "the one that went");
    }

    #[test]
    fn one_too_many_waits_outside_and_still_hears_of_the_end() {
        let ip: IpAddr = "127.77.4.5".parse().unwrap();
        let lives = PollSet::new().unwrap();
        let mut life = life(ip, &lives);
        life.most = 4;
        let mut lines: Vec<_> = (0..6).map(|_| watch(ip, 1).unwrap()).collect();
        poll_members(&mut life, &lives);
        assert_eq!(life.watchers.len(), 4);
        assert!(!lives.is_readable(), "the two outside keep no thread busy");
        drop(lines.remove(0));
        poll_members(&mut life, &lives);
        assert_eq!(life.watchers.len(), 4, "the next one has its place");
        assert!(lines.iter().all(|line| !is_over(line)));
        drop(life);
        assert!(lines.iter().all(is_over));
    }
}
