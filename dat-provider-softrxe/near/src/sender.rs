//! The sending end of a ring.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access::RingAccess;
use crate::channel::mtu;
use crate::layout::{ALIGNMENT, Fixed, HEADER_AT, LENT_LEN, MAX_HEADER, MAX_LENT, record_length};
use crate::lender::Lender;
use crate::map::Map;
use crate::ring::{Producer, Sealer};
use crate::violation::Violation;

/// Bytes behind the next record whose lines [`Sender::prepare_next`] fetches: four short records, which take about as long as the fetch.
const AHEAD: u64 = 512;

/// Where the next record begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// First byte of the record. It is valid as long as the sender, for `room` bytes.
    pub at: NonNull<u8>,
    /// Number of bytes that the record may have. If it is less than [`Sender::largest_record`], it is all that is free.
    pub room: usize,
}

/// Writes records into a ring. Each run of [`commit`](Self::commit) ends with a [`publish`](Self::publish).
#[derive(Debug)]
pub struct Sender {
    ring: RingAccess,
    producer: Producer,
    largest_record: u64,
    mtu: usize,
}

impl Sender {
    pub(crate) fn new(map: Arc<Map>, ring: usize, size: usize) -> Self {
        let ring = RingAccess::new(map, ring, size);
        let sealer = Sealer::new(ring.lines());
        Self {
            ring,
            producer: Producer::new(size as u64, sealer),
            largest_record: record_length(ALIGNMENT, mtu(size)) as u64,
            mtu: mtu(size),
        }
    }

    /// Returns the maximum length of a payload.
    #[must_use]
    pub const fn mtu(&self) -> usize {
        self.mtu
    }

    /// Returns the length of a record with the longest headers and the longest payload.
    #[must_use]
    pub const fn largest_record(&self) -> usize {
        self.largest_record as usize
    }

    /// Returns where the next record begins, and the room for it. The caller writes the payload there, at the
    /// [`payload_at`](crate::layout::payload_at) of its headers, and then calls [`commit`](Self::commit).
    ///
    /// # Errors
    /// [`Violation::Freed`]: the channel ends.
    #[inline]
    pub fn space(&mut self) -> Result<Space, Violation> {
        let enough = self.largest_record;
        let room = self.producer.room(self.ring.lines(), enough)? as usize;
        let at = self.ring.record(self.producer.position());
        Ok(Space { at, room })
    }

    /// Returns the number of bytes that the peer has consumed since the channel began.
    ///
    /// # Errors
    /// [`Violation::Freed`]: the channel ends.
    pub fn freed(&mut self) -> Result<u64, Violation> {
        self.producer.load_freed(self.ring.lines())
    }

    /// Returns the position of the next record.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.producer.position()
    }

    /// Returns what lends memory of this process to the peer. There is one for a channel.
    ///
    /// # Errors
    /// As `getrandom`.
    pub fn lender(&self) -> io::Result<Lender> {
        Lender::new(self.ring.clone())
    }

    /// Adds a record whose payload of `payload_length` bytes is lent: the space has its address at `payload_at`, a multiple of 8.
    ///
    /// # Panics
    /// As [`commit`](Self::commit), with [`MAX_LENT`] instead of the MTU.
    #[inline(never)]
    pub fn commit_lent(
        &mut self,
        header: &[u8; MAX_HEADER],
        header_length: usize,
        payload_at: usize,
        payload_length: usize,
    ) {
        assert!(payload_length <= MAX_LENT && payload_at.is_multiple_of(8));
        self.add(header, header_length, payload_at, payload_length, true);
    }

    /// Adds the record whose payload is in the space. The peer may see it from now on, and sees it after
    /// [`expose`](Self::expose) or [`publish`](Self::publish).
    ///
    /// # Panics
    /// If the header has more than 40 bytes, if the payload exceeds the MTU or begins before the word after the header or after
    /// 255, or if the record does not fit into the room that the last [`space`](Self::space) returned.
    #[inline]
    pub fn commit(&mut self, header: &[u8], payload_at: usize, payload_length: usize) {
        let mut all = [0; MAX_HEADER];
        all[..header.len()].copy_from_slice(header);
        self.commit_header(&all, header.len(), payload_at, payload_length);
    }

    /// Like [`commit`](Self::commit), with a header of the first `header_length` bytes of `header`.
    ///
    /// # Panics
    /// As [`commit`](Self::commit).
    #[inline]
    pub fn commit_header(
        &mut self,
        header: &[u8; MAX_HEADER],
        header_length: usize,
        payload_at: usize,
        payload_length: usize,
    ) {
        assert!(payload_length <= self.mtu);
        self.add(header, header_length, payload_at, payload_length, false);
    }

    #[inline(always)]
    fn add(
        &mut self,
        header: &[u8; MAX_HEADER],
        header_length: usize,
        payload_at: usize,
        payload_length: usize,
        lent: bool,
    ) {
        let header_end = HEADER_AT + header_length.next_multiple_of(8);
        let apart = payload_length == 0 || payload_at >= header_end;
        // One test for all, as none of them fails.
        assert!(
            header_length <= MAX_HEADER && apart && payload_at <= u8::MAX.into(),
            "a header of {header_length} bytes, a payload at {payload_at}"
        );
        let at = payload_at as u8;
        let in_record = if lent { LENT_LEN } else { payload_length };
        let length = record_length(payload_at, in_record).max(ALIGNMENT);
        // Before anything is written.
        self.producer.check_room(length as u64);
        let fixed = Fixed {
            length: length as u32,
            payload_length: payload_length as u32,
            header_length: header_length as u8,
            payload_at: at,
            lent,
        };
        let position = self.producer.position();
        self.ring
            .write_fixed(position, fixed.encode(), header, header_length);
        self.producer.add(&self.ring, length as u64);
    }

    /// Prepares the memory of a later record, if more records are about to follow.
    #[inline]
    pub fn prepare_next(&self) {
        self.ring
            .fetch_for_writing(self.producer.position() + AHEAD);
    }

    /// Shows all records to a peer that is awake. A [`publish`](Self::publish) has to follow. Its fence waits for the lines of the records;
    /// work that is done between the two does not.
    #[inline]
    pub fn expose(&mut self) {
        self.producer.expose(&self.ring);
    }

    /// Publishes all records. Returns true if the peer sleeps and has to be woken.
    #[inline]
    pub fn publish(&mut self) -> bool {
        self.producer.publish(self.ring.lines(), &self.ring)
    }

    /// Asks the peer to report when half of the ring is free, after [`publish`](Self::publish). Returns true if there is
    /// room for the largest record after all. Call it when a record does not fit, and again before a sleep.
    ///
    /// # Errors
    /// [`Violation::Freed`]: the channel ends.
    pub fn starve(&mut self) -> Result<bool, Violation> {
        self.producer.starve(self.ring.lines(), self.largest_record)
    }
}
