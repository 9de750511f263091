//! The receiving end of a ring.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::access::RingAccess;
use crate::channel::mtu;
use crate::layout::{Fixed, MAX_HEADER};
use crate::map::Map;
use crate::pull::{Lent, Puller};
use crate::ring::{Consumer, Sealer};
use crate::violation::Violation;

/// A record that arrived. The peer may change its payload at any time; the rest is a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The headers, [`header_length`](Self::header_length) bytes of them; what follows them has no meaning.
    pub header: [u8; MAX_HEADER],
    /// Length of the headers.
    pub header_length: usize,
    /// First byte of the record, valid until [`Receiver::release`].
    pub at: NonNull<u8>,
    /// Where the payload begins in the record.
    pub payload_at: usize,
    /// Length of the payload.
    pub payload_length: usize,
    /// The payload is in the peer's memory, and not in the record.
    pub lent: Option<Lent>,
}

impl Record {
    /// No record, for [`Receiver::next_into`].
    pub const NONE: Self = Self {
        header: [0; MAX_HEADER],
        header_length: 0,
        at: NonNull::dangling(),
        payload_at: 0,
        payload_length: 0,
        lent: None,
    };

    /// Returns the headers.
    #[inline]
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header[..self.header_length]
    }

    /// Returns the first byte of the payload, valid until [`Receiver::release`].
    #[inline]
    #[must_use]
    pub fn payload(&self) -> NonNull<u8> {
        // The fields are public, and the receiver may be gone: so this is arithmetic on the address only.
        self.at.map_addr(|at| at.saturating_add(self.payload_at))
    }
}

/// Reads records from a ring.
#[derive(Debug)]
pub struct Receiver {
    ring: RingAccess,
    /// The ring in the other direction, whose consumer is the producer of this one.
    opposite: RingAccess,
    consumer: Consumer,
    mtu: u32,
    /// Length of the record that `next` returned last, until it is released.
    current: u64,
    /// Whether that record lends its payload.
    is_lent: bool,
}

impl Receiver {
    pub(crate) fn new(map: Arc<Map>, ring: usize, opposite: usize, size: usize) -> Self {
        let ring = RingAccess::new(Arc::clone(&map), ring, size);
        let sealer = Sealer::new(ring.lines());
        Self {
            ring,
            opposite: RingAccess::new(map, opposite, size),
            consumer: Consumer::new(size as u64, sealer),
            mtu: mtu(size) as u32,
            current: 0,
            is_lent: false,
        }
    }

    /// Returns what reads the memory of the peer, whose process is `pid`.
    #[must_use]
    pub fn puller(&self, pid: i32) -> Puller {
        Puller::new(self.ring.clone(), pid)
    }

    /// Returns the next record, or `None` if none is published. Without a [`release`](Self::release) it is the same
    /// place again.
    ///
    /// # Errors
    /// [`Violation::Record`]: the channel ends.
    #[expect(
        clippy::should_implement_trait,
        reason = "a record has to be released before the next one"
    )]
    pub fn next(&mut self) -> Result<Option<Record>, Violation> {
        let mut record = Record::NONE;
        Ok(self.next_into(&mut record)?.then_some(record))
    }

    /// Like [`next`](Self::next), but writes the record to `record`, so that it is not copied. Returns whether there is one.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    #[inline]
    pub fn next_into(&mut self, record: &mut Record) -> Result<bool, Violation> {
        let position = self.consumer.position();
        // The payload of a short record is there. If the record has arrived, both lines are under way at the same time.
        self.ring.fetch_second_line(position);
        if !self.consumer.is_published(&self.ring) {
            return Ok(false);
        }
        let words = self.ring.read_fixed(position);
        let fixed = Fixed::parse(words[0], self.consumer.size(), self.mtu)?;
        self.current = u64::from(fixed.length);
        self.is_lent = fixed.lent;
        for (to, word) in record.header.as_chunks_mut().0.iter_mut().zip(&words[1..]) {
            *to = word.to_ne_bytes();
        }
        record.header_length = fixed.header_length.into();
        record.at = self.ring.record(position);
        record.payload_at = fixed.payload_at.into();
        record.payload_length = fixed.payload_length as usize;
        record.lent = fixed.lent.then(|| Lent {
            address: self.ring.read_word(position, fixed.payload_at),
            position,
        });
        Ok(true)
    }

    /// Returns the position of the next record: bytes of records ever released.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.consumer.position()
    }

    /// Returns a position that no record which is published now reaches beyond, as the ring has no room for more.
    #[must_use]
    pub const fn end_of_published(&self) -> u64 {
        self.consumer.position() + self.consumer.size()
    }

    /// Frees the record that [`next`](Self::next) returned last. What it lent is the peer's again.
    #[inline]
    pub fn release(&mut self) {
        let length = std::mem::take(&mut self.current);
        let is_lent = std::mem::take(&mut self.is_lent);
        self.consumer.release(self.ring.lines(), length, is_lent);
    }

    /// Tells the peer how much is free. Call it after each run of records, and after [`arm`](Self::arm). Returns true
    /// if the peer waits for room and sleeps: it has to be woken.
    #[inline]
    pub fn flush(&mut self) -> bool {
        self.consumer
            .flush(self.ring.lines(), &self.ring, self.opposite.lines())
    }

    /// Says that this process is about to sleep. Returns true if it must not, because a record is published. In either
    /// case [`disarm`](Self::disarm) follows, after the sleep.
    pub fn arm(&self) -> bool {
        self.consumer.arm(self.ring.lines(), &self.ring)
    }

    /// Says that this process is awake: the peer need not wake it.
    #[inline]
    pub fn disarm(&self) {
        self.consumer.disarm(self.ring.lines());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_of_a_record_with_any_numbers_has_an_address() {
        let record = Record {
            payload_at: usize::MAX,
            ..Record::NONE
        };
        assert_eq!(record.payload().addr().get(), usize::MAX);
    }
}
