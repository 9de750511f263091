//! Memory of this process that records lend to the peer.
//!
//! A record names an address. The peer reads there with process_vm_readv(2), for which the kernel checks its right. The same call reads
//! the *nonce*, 16 secret bytes of this process. If this process has ended and another one got its number, the bytes at that address
//! differ.
//!
//! Before this process gives lent memory back to its consumer, it withdraws what is lent (`ring`).

use std::io;

use crate::access::RingAccess;
use crate::random::random;
use crate::ring;
use crate::sync::{AtomicU64, Ordering};

/// Lends memory of this process to the peer of a channel.
#[derive(Debug)]
pub struct Lender {
    ring: RingAccess,
    /// In memory of this process only, at an address that stays the same.
    _nonce: Box<[AtomicU64; 2]>,
    withdrawn: u64,
}

impl Lender {
    /// Shows the peer what identifies this process's memory.
    pub(crate) fn new(ring: RingAccess) -> io::Result<Self> {
        let words = random()?;
        let nonce = Box::new(words.map(AtomicU64::new));
        let lines = ring.lines();
        for (to, word) in lines.nonce.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        let at = &raw const *nonce as usize as u64;
        lines.nonce_at.store(at, Ordering::Release);
        Ok(Self {
            ring,
            _nonce: nonce,
            withdrawn: 0,
        })
    }

    /// Returns whether the peer says that it reads payloads in this process's memory.
    #[inline]
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.ring.lines().pulls.load(Ordering::Relaxed) != 0
    }

    /// Tells the peer how long this process takes to copy a MiB of payload into the ring, in nanoseconds. The peer knows it when it gets the
    /// next record that is published.
    pub fn report_copy_time(&self, nanos: u32) {
        self.ring.lines().copy_time.store(nanos, Ordering::Relaxed);
    }

    /// Returns the number of bytes that the peer says it has consumed: it is done with the records before.
    #[must_use]
    pub fn freed(&self) -> u64 {
        self.ring.lines().freed.load(Ordering::Acquire)
    }

    /// Takes back what the records that begin before `position` lend. After the return no copy of it counts.
    pub fn withdraw(&mut self, position: u64) {
        self.withdrawn = self.withdrawn.max(position);
        ring::withdraw(self.ring.lines(), self.withdrawn);
    }
}
