//! Lifelines: a process of this host learns at once that another one is gone, however it went.
//!
//! Each engine, and each porter, listens under a name of the abstract UNIX namespace. Who depends on it connects and never says
//! anything; the kernel hangs up when the process ends.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use super::child::NotInherited;
use super::dial::dial;
use super::door::name;
use super::wake::{Bundle, Slept, sleep};

/// Held as long as this process lives.
#[derive(Debug)]
pub struct Life {
    listener: NotInherited<UnixListener>,
    watchers: Vec<NotInherited<UnixStream>>,
}

impl Life {
    /// Of the engine in `slot` of `ip`.
    ///
    /// # Errors
    /// As `bind`; `AddrInUse` where there is one.
    pub fn of_engine(ip: IpAddr, slot: u16) -> io::Result<Self> {
        Self::new(ip, &format!("life/{slot}"))
    }

    /// Called `rest` among the names of `ip`.
    pub(super) fn new(ip: IpAddr, rest: &str) -> io::Result<Self> {
        let name = name(ip, rest)?;
        let listener = NotInherited::new(|| UnixListener::bind_addr(&name))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            watchers: Vec::new(),
        })
    }

    /// Takes in those that have connected, and forgets those that are gone, or the queue of the listener would fill up.
    /// `lives` is readable when one goes. `false`: somebody waits to be taken in, and there is no descriptor for it.
    pub fn look_after(&mut self, lives: &Bundle) -> bool {
        let stays = |watcher: &NotInherited<UnixStream>| {
            let over = is_over(watcher);
            if over {
                lives.remove(watcher.as_raw_fd());
            }
            !over
        };
        // Those that are gone first: their descriptors are free for those that come.
        self.watchers.retain(stays);
        let all = loop {
            let watcher = match NotInherited::new(|| Ok(self.listener.accept()?.0)) {
                Ok(watcher) => watcher,
                Err(error) => break error.kind() == ErrorKind::WouldBlock,
            };
            // One that cannot be asked whether it is gone is as good as none: it hears of our end too soon.
            if watcher.set_nonblocking(true).is_ok() && lives.add(watcher.as_raw_fd()).is_ok() {
                self.watchers.push(watcher);
            }
        };
        // Most that come for a moment are gone by now.
        self.watchers.retain(stays);
        all
    }
}

impl AsRawFd for Life {
    /// Readable when there is somebody to take in.
    fn as_raw_fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }
}

/// Connects to the life called `rest`; `WouldBlock` if too many wait to be taken in.
pub(super) fn watch(ip: IpAddr, rest: &str) -> io::Result<UnixStream> {
    dial(&name(ip, rest)?)
}

/// Whether the other end is gone.
pub(super) fn is_over(mut stream: &UnixStream) -> bool {
    !matches!(stream.read(&mut [0]), Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted))
}

/// Address and slot of an engine of this host.
pub type Neighbour = (IpAddr, u16);

/// The engines of this host that this one is connected to.
#[derive(Debug, Default)]
pub struct Neighbours {
    lines: HashMap<Neighbour, NotInherited<UnixStream>>,
}

impl Neighbours {
    /// From now on [`gone`](Self::gone) tells of the end of `who`, and `lives` is readable then. `false`: no such engine on this host,
    /// one that takes nobody in, or one in the place of another whose end was not told yet, and would be taken for its.
    pub fn watch(&mut self, who: Neighbour, lives: &Bundle) -> bool {
        if let Some(line) = self.lines.get(&who) {
            return !is_over(line);
        }
        let line = match NotInherited::new(|| watch(who.0, &format!("life/{}", who.1))) {
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
            self.lines.insert(who, line);
        }
        added.is_ok()
    }

    /// Those that have ended since; `lives` hears no more of them.
    pub fn gone(&mut self, lives: &Bundle) -> Vec<Neighbour> {
        let over = self.lines.iter().filter(|(_, line)| is_over(line));
        let gone: Vec<Neighbour> = over.map(|(who, _)| *who).collect();
        for who in &gone {
            if let Some(line) = self.lines.remove(who) {
                lives.remove(line.as_raw_fd());
            }
        }
        gone
    }
}

/// Whether somebody came or went.
#[must_use]
pub fn stirs(lives: &Bundle) -> bool {
    sleep([lives.as_raw_fd()], Some(Duration::ZERO)) == Slept::Ready
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_neighbour_is_heard_and_only_that() {
        let ip: IpAddr = "127.77.4.1".parse().unwrap();
        let lives = Bundle::new().unwrap();
        let mut neighbours = Neighbours::default();
        assert!(!neighbours.watch((ip, 7), &lives));
        let (mut first, second) = (
            Life::of_engine(ip, 7).unwrap(),
            Life::of_engine(ip, 8).unwrap(),
        );
        for slot in [7, 8, 7] {
            assert!(neighbours.watch((ip, slot), &lives));
        }
        assert!(!stirs(&lives));
        first.look_after(&lives);
        assert_eq!(neighbours.gone(&lives), []);
        // Taken in or not.
        drop(first);
        assert!(stirs(&lives));
        assert_eq!(neighbours.gone(&lives), [(ip, 7)]);
        assert!(!stirs(&lives));
        drop(second);
        assert_eq!(neighbours.gone(&lives), [(ip, 8)]);
    }

    #[test]
    fn a_successor_is_not_taken_for_the_one_before() {
        let ip: IpAddr = "127.77.4.3".parse().unwrap();
        let lives = Bundle::new().unwrap();
        let mut neighbours = Neighbours::default();
        let first = Life::of_engine(ip, 7).unwrap();
        assert!(neighbours.watch((ip, 7), &lives));
        drop(first);
        let _second = Life::of_engine(ip, 7).unwrap();
        assert!(!neighbours.watch((ip, 7), &lives));
        assert_eq!(neighbours.gone(&lives), [(ip, 7)]);
        assert!(neighbours.watch((ip, 7), &lives));
        assert_eq!(neighbours.gone(&lives), []);
    }

    #[test]
    fn thousands_that_come_and_go_leave_nothing() {
        let ip: IpAddr = "127.77.4.2".parse().unwrap();
        let lives = Bundle::new().unwrap();
        let mut life = Life::of_engine(ip, 1).unwrap();
        for _ in 0..10 {
            let watchers: Vec<_> = (0..100).map(|_| watch(ip, "life/1").unwrap()).collect();
            life.look_after(&lives);
            assert_eq!(life.watchers.len(), 100);
            drop(watchers);
            assert!(stirs(&lives));
            life.look_after(&lives);
            assert_eq!(life.watchers.len(), 0);
            assert!(!stirs(&lives));
        }
        // More than any backlog holds, one after the other.
        for _ in 0..50 {
            for _ in 0..100 {
                drop(watch(ip, "life/1").unwrap());
            }
            life.look_after(&lives);
        }
        assert_eq!(life.watchers.len(), 0);
    }
}
