//! The receive ring of a socket, as callers see it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use super::ring::{self, Ring};
use super::{RingCounters, Socket};
use crate::fork::CloseOnFork;

impl Socket {
    /// Attaches a receive ring, which delivers short datagrams without a system call. From then on a thread that sleeps on
    /// the socket calls [`arm`](Self::arm) first. Only the process that reads the socket calls this.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_BPF, or with a system call filter; as bpf(2), mmap(2), setsockopt(2). The socket works without.
    pub fn use_ring(&self) -> io::Result<()> {
        static ATTACHES: Mutex<()> = Mutex::new(());
        let _one = ATTACHES.lock();
        if self.ring.get().is_none() {
            let ring = Ring::attach(self.as_raw_fd(), self.local.is_ipv6())?;
            let _ = self.ring.set(ring);
        }
        Ok(())
    }

    /// Becomes the reader after the process that read the socket has ended, whose ring `map` belongs to. Its program is
    /// detached, and what is left in its ring is received first.
    ///
    /// # Errors
    /// As mmap(2), setsockopt(2). What is left in the ring is lost then.
    pub(crate) fn succeed(&self, map: Option<CloseOnFork<OwnedFd>>) -> io::Result<()> {
        let (fd, ipv6) = (self.as_raw_fd(), self.local.is_ipv6());
        let Some(map) = map.filter(|_| self.ring.get().is_none()) else {
            return ring::detach(fd);
        };
        let succeeded = Ring::succeed(fd, ipv6, map).map(|ring| {
            let _ = self.ring.set(ring);
        });
        if succeeded.is_err() {
            ring::detach(fd)?;
        }
        succeeded
    }

    /// Returns the map of the receive ring, which a successor of this process needs.
    pub(crate) fn ring_map(&self) -> Option<RawFd> {
        self.ring.get().map(Ring::map)
    }

    /// Returns the counters of the receive ring, if there is one.
    #[must_use]
    pub fn ring_counters(&self) -> Option<RingCounters> {
        self.ring.get().map(Ring::counters)
    }

    /// Prepares the socket for the thread that watches it and is about to sleep on it: from now on all datagrams arrive at
    /// the socket. Returns false if something waits already.
    #[must_use]
    pub fn arm(&self) -> bool {
        self.ring.get().is_none_or(|ring| ring.arm(false))
    }

    /// Ends what [`arm`](Self::arm) began. The thread that watches the socket calls it when it has slept.
    pub fn disarm(&self) {
        if let Some(ring) = self.ring.get() {
            ring.disarm(false);
        }
    }

    /// Does the same as [`arm`](Self::arm) for a thread that sleeps for a short time, beside the one that watches. Such a
    /// thread calls [`end_pause`](Self::end_pause) afterwards, whatever this returned.
    #[must_use]
    pub fn begin_pause(&self) -> bool {
        self.ring.get().is_none_or(|ring| ring.arm(true))
    }

    /// Ends what [`begin_pause`](Self::begin_pause) began.
    pub fn end_pause(&self) {
        if let Some(ring) = self.ring.get() {
            ring.disarm(true);
        }
    }
}
