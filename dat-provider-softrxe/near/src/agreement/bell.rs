//! How the processes of a channel wake each other, and the connection that shows the end of the peer.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use dat_os::eventfd::EventFd;
use softrxe_port::credentials;
use softrxe_port::discard::Connection;
use softrxe_port::fork::CloseOnFork;
use softrxe_port::packets::{self, Incoming};
use softrxe_port::poll_set::PollSet;

/// Wake-ups that are read from the connection at a time. A peer sends one for each sleep.
const BATCH: usize = 16;

/// The event descriptors of a channel. A wake-up by one costs both processes less than one by the connection.
#[derive(Debug)]
pub(super) struct Wakes {
    /// The peer signals it.
    own: CloseOnFork<EventFd>,
    /// This process signals it.
    peers: CloseOnFork<EventFd>,
}

impl Wakes {
    /// Creates both.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            own: CloseOnFork::new(EventFd::new)?,
            peers: CloseOnFork::new(EventFd::new)?,
        })
    }

    /// Takes those that the peer has created.
    pub(super) fn adopt([own, peers]: [OwnedFd; 2]) -> io::Result<Self> {
        Ok(Self {
            own: CloseOnFork::new(|| Ok(own.into()))?,
            peers: CloseOnFork::new(|| Ok(peers.into()))?,
        })
    }

    /// Returns whether wake-ups by the peer can be [cleared](EventFd::clear). Only the descriptor that the peer signals is tested: the test
    /// reads, and would take a wake-up of the other descriptor from the peer.
    pub(super) fn can_be_taken(&self) -> bool {
        self.own.is_cleared_at_once()
    }

    /// Returns them in the order in which the peer [adopts](Self::adopt) them.
    pub(super) fn for_peer(&self) -> [RawFd; 2] {
        [self.peers.as_raw_fd(), self.own.as_raw_fd()]
    }
}

/// Wakes the peer, and has the descriptors that are readable when the peer wakes this process or has ended.
///
/// The connection serves where one of the processes offers no event descriptors, or has none to spare.
#[derive(Debug)]
pub struct Bell {
    connection: Connection,
    wakes: Option<Wakes>,
}

impl Bell {
    pub(super) const fn new(connection: Connection, wakes: Option<Wakes>) -> Self {
        Self { connection, wakes }
    }

    /// Returns the process that listened or connected at the other end; `None` if it is in a PID namespace that this process does
    /// not see.
    ///
    /// # Errors
    /// As `getsockopt`.
    pub fn peer_pid(&self) -> io::Result<Option<i32>> {
        credentials::peer_pid(self.connection.as_fd())
    }

    /// Wakes the peer. If it has ended, [`clear`](Self::clear) says so.
    pub fn ring(&self) {
        match &self.wakes {
            Some(wakes) => wakes.peers.signal(),
            // With a full queue the peer has wake-ups enough.
            None => drop(packets::send(self.connection.as_fd(), &[1], &[])),
        }
    }

    pub(super) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Returns the connection's descriptor, and the one that the peer signals.
    fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let own = self.wakes.as_ref().map(|wakes| wakes.own.as_raw_fd());
        std::iter::once(self.connection.as_raw_fd()).chain(own)
    }

    /// Adds the descriptors to a set.
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub fn watch(&self, set: &PollSet) -> io::Result<()> {
        self.descriptors().try_for_each(|fd| set.add(fd))
    }

    /// Removes the descriptors from a set.
    pub fn unwatch(&self, set: &PollSet) {
        self.descriptors().for_each(|fd| set.remove(fd));
    }

    /// Returns whether `fd` is one of the descriptors.
    #[must_use]
    pub fn has(&self, fd: RawFd) -> bool {
        self.descriptors().any(|own| own == fd)
    }

    /// Takes wake-ups of a descriptor that is readable; it stays readable while there are more. Returns false if the peer has ended or
    /// closed the channel.
    ///
    /// # Errors
    /// As `recvmsg`; the channel ends.
    pub fn clear(&self, fd: RawFd) -> io::Result<bool> {
        match &self.wakes {
            Some(wakes) if wakes.own.as_raw_fd() == fd => {
                wakes.own.clear();
                Ok(true)
            }
            _ => self.clear_connection(),
        }
    }

    fn clear_connection(&self) -> io::Result<bool> {
        for _ in 0..BATCH {
            match packets::receive_without_descriptors(self.connection.as_fd(), &mut [0; 8])? {
                Incoming::Empty => return Ok(true),
                Incoming::Closed => return Ok(false),
                Incoming::Packet(..) => {}
            }
        }
        Ok(true)
    }
}

impl AsRawFd for Bell {
    /// Returns the connection's descriptor.
    fn as_raw_fd(&self) -> RawFd {
        self.connection.as_raw_fd()
    }
}
