//! Protocol of a ring's seals, index and flags. The data is elsewhere: loom runs this file with data of its own.
//!
//! **Records.** The first word of a record is its *seal*, which depends on the record's position and on a secret of the ring. A consumer
//! looks at the word at its position. The record is published once its seal is there. Each position comes once only, so no word
//! that is left of an earlier record is the seal of a later one. The secret keeps payload from being one: its author does not know it.
//! A seal is in the line that is read next in any case, where an index would be a second line to wait for.
//!
//! **Runs.** The producer writes all seals of a run but the first one, which it writes last. So a run is published by one store.
//!
//! **Room.** The consumer stores in `freed` how far it has read. The producer loads that only when the value that it loaded last does not
//! suffice. A record that lends memory takes little room and much memory, so the consumer stores `freed` after each of them: a producer
//! lends no more than a number of payloads at a time. A producer without room sets `starved`, makes a full fence and looks at `freed`
//! again. The consumer tests `starved` after each run of records without a fence, and once more after the fence of its sleep.
//!
//! **Sleep.** The consumer sets `asleep`, makes a full fence and looks at the seal again. The producer stores the seal,
//! makes a full fence and tests `asleep`. One of the two sees the store of the other one, so no consumer sleeps beside
//! a published record. The producer that takes the flag (swap) wakes the consumer.
//!
//! **Withdrawal.** Before the producer's process changes memory that records lend, it stores the position behind them in `withdrawn` and makes a full
//! fence. The consumer's process copies the memory, makes a full fence, and then loads `withdrawn`. If the copy has changed bytes, it sees
//! the withdrawal as well. So no side waits for the other one.

#[cfg(all(loom, test))]
mod models;

use std::sync::atomic::AtomicU8;

use crate::layout::LINE;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::violation::Violation;

/// A run of records is published after each so many bytes, so that both ends copy at the same time.
const PUBLISHED_AT_ONCE: u64 = 4096;
/// Part of the ring that has to be free before a starved producer is woken.
const ROOM_DIVISOR: u64 = 2;
/// The consumer stores `freed` after each such part of the ring.
const FREED_DIVISOR: u64 = 8;

/// Bytes between two words. Atomics, because the peer may write there too.
type Rest<const N: usize> = [AtomicU8; N];

/// Index and flags of a ring, each in a line of its own. Any value may be in them at any time.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Lines {
    /// The ring's secret. The creator of the memory stores it before the peer has the memory, and both ends load it once.
    pub(crate) secret: AtomicU64,
    rest_0: Rest<{ LINE - 8 }>,
    /// Bytes ever consumed; the consumer stores it.
    pub(crate) freed: AtomicU64,
    rest_1: Rest<{ LINE - 8 }>,
    /// The consumer sets it before it sleeps, the producer takes it.
    pub(crate) asleep: AtomicU32,
    rest_2: Rest<{ LINE - 4 }>,
    /// Not 0: the producer has no room, and this is its position plus 1. The producer sets it, the consumer takes it.
    pub(crate) starved: AtomicU64,
    rest_3: Rest<{ LINE - 8 }>,
    /// What identifies the producer's memory: two secret words, and where it has them, or 0. The producer stores them once.
    pub(crate) nonce: [AtomicU64; 2],
    pub(crate) nonce_at: AtomicU64,
    /// Nanoseconds in which the producer copies a MiB of payload into the ring, or 0; the producer stores it before it publishes a
    /// record that it measured.
    pub(crate) copy_time: AtomicU32,
    rest_4: Rest<{ LINE - 28 }>,
    /// Not 0 if the consumer reads payloads in the producer's memory; the consumer stores it, whenever that changes.
    pub(crate) pulls: AtomicU32,
    rest_5: Rest<{ LINE - 4 }>,
    /// What records before this position lend is taken back; the producer stores it.
    pub(crate) withdrawn: AtomicU64,
    rest_6: Rest<{ LINE - 8 }>,
}

/// The data of a ring, of which this file knows the words in which seals are.
pub(crate) trait SealWords {
    /// Loads the word at `position`, and orders it before what is read of the record.
    fn load(&self, position: u64) -> u64;
    /// Stores the word at `position`, and orders it after what was written of the record.
    fn store(&self, position: u64, seal: u64);
}

/// Makes the seals of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealer(u64);

impl Sealer {
    /// Loads the secret.
    pub(crate) fn new(lines: &Lines) -> Self {
        // Positions are even, so no seal is 0, which is in memory that was never written.
        Self(lines.secret.load(Ordering::Relaxed) | 1)
    }

    #[inline]
    const fn seal(self, position: u64) -> u64 {
        self.0 ^ position
    }
}

/// Takes `asleep` and returns true if it was set.
#[inline]
fn take(asleep: &AtomicU32) -> bool {
    asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::AcqRel) != 0
}

/// Takes back what the records that begin before `position` lend. The memory may change after the return.
pub(crate) fn withdraw(lines: &Lines, position: u64) {
    lines.withdrawn.store(position, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Returns whether a copy that has ended is void, because the producer took back what the record at `position` lends.
pub(crate) fn is_withdrawn(lines: &Lines, position: u64) -> bool {
    fence(Ordering::SeqCst);
    lines.withdrawn.load(Ordering::Relaxed) > position
}

/// The producer's side of a ring.
#[derive(Debug)]
pub(crate) struct Producer {
    size: u64,
    sealer: Sealer,
    /// Bytes ever written.
    tail: u64,
    /// Position of the first record whose seal is missing; the tail if there is none.
    published: u64,
    /// The tail at the last test of `asleep`.
    announced: u64,
    /// The value of `freed` that was loaded last.
    freed: u64,
}

impl Producer {
    /// Begins with an empty ring of `size` bytes.
    pub(crate) const fn new(size: u64, sealer: Sealer) -> Self {
        Self {
            size,
            sealer,
            tail: 0,
            published: 0,
            announced: 0,
            freed: 0,
        }
    }

    /// Returns the position of the next record.
    #[inline]
    pub(crate) const fn position(&self) -> u64 {
        self.tail
    }

    /// Returns the room as far as it is known without a look at the shared index.
    #[inline]
    pub(crate) const fn known_room(&self) -> u64 {
        self.size - (self.tail - self.freed)
    }

    /// Returns the room; loads the consumer's index if less than `enough` is known.
    ///
    /// # Errors
    /// [`Violation::Freed`].
    #[inline]
    pub(crate) fn room(&mut self, lines: &Lines, enough: u64) -> Result<u64, Violation> {
        if self.known_room() < enough {
            self.load_freed(lines)?;
        }
        Ok(self.known_room())
    }

    /// Loads the consumer's index and returns it.
    ///
    /// # Errors
    /// [`Violation::Freed`].
    #[inline]
    pub(crate) fn load_freed(&mut self, lines: &Lines) -> Result<u64, Violation> {
        let freed = lines.freed.load(Ordering::Acquire);
        if freed < self.freed || freed > self.tail {
            return Err(Violation::Freed {
                freed,
                known: self.freed,
                tail: self.tail,
            });
        }
        self.freed = freed;
        Ok(freed)
    }

    /// Checks that the known room is enough for a record of `length` bytes.
    ///
    /// # Panics
    /// If not.
    #[inline]
    pub(crate) fn check_room(&self, length: u64) {
        assert!(length <= self.known_room(), "a record needs room");
    }

    /// Adds a record of `length` bytes, for which there [is room](Self::check_room). It is in the data but for its seal.
    #[inline]
    pub(crate) fn add(&mut self, seals: &impl SealWords, length: u64) {
        debug_assert!(length <= self.known_room());
        let begin = self.tail;
        self.tail += length;
        if begin != self.published {
            seals.store(begin, self.sealer.seal(begin));
        }
        if self.tail - self.published >= PUBLISHED_AT_ONCE {
            self.store_seal(seals);
        }
    }

    /// Publishes the run.
    #[inline]
    fn store_seal(&mut self, seals: &impl SealWords) {
        seals.store(self.published, self.sealer.seal(self.published));
        self.published = self.tail;
    }

    /// Publishes all records to a consumer that is awake. A [`publish`](Self::publish) follows, for one that sleeps.
    #[inline]
    pub(crate) fn expose(&mut self, seals: &impl SealWords) {
        if self.published != self.tail {
            self.store_seal(seals);
        }
    }

    /// Publishes all records. Returns true if the consumer sleeps and this call took its flag: it has to be woken.
    #[inline]
    pub(crate) fn publish(&mut self, lines: &Lines, seals: &impl SealWords) -> bool {
        if self.announced == self.tail {
            return false;
        }
        self.expose(seals);
        self.announced = self.tail;
        fence(Ordering::SeqCst);
        take(&lines.asleep)
    }

    /// Asks the consumer to report room. Returns true if there is room of `enough` bytes after all.
    ///
    /// # Errors
    /// [`Violation::Freed`].
    pub(crate) fn starve(&mut self, lines: &Lines, enough: u64) -> Result<bool, Violation> {
        lines.starved.store(self.tail + 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let found = self.room(lines, enough)? >= enough;
        if found {
            lines.starved.store(0, Ordering::Relaxed);
        }
        Ok(found)
    }
}

/// The consumer's side of a ring.
#[derive(Debug)]
pub(crate) struct Consumer {
    size: u64,
    sealer: Sealer,
    /// Bytes ever read.
    position: u64,
    /// The value that is stored in `freed`.
    freed: u64,
}

impl Consumer {
    /// Begins with an empty ring of `size` bytes.
    pub(crate) const fn new(size: u64, sealer: Sealer) -> Self {
        Self {
            size,
            sealer,
            position: 0,
            freed: 0,
        }
    }

    /// Returns the position of the next record.
    #[inline]
    pub(crate) const fn position(&self) -> u64 {
        self.position
    }

    /// Returns the ring's size.
    #[inline]
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// Returns true if a record is published at the position.
    #[inline]
    pub(crate) fn is_published(&self, seals: &impl SealWords) -> bool {
        seals.load(self.position) == self.sealer.seal(self.position)
    }

    /// Frees the `length` bytes of the record at the position, which is published; `at_once` if the producer is to know it before more of
    /// the ring is free.
    #[inline]
    pub(crate) fn release(&mut self, lines: &Lines, length: u64, at_once: bool) {
        self.position += length;
        if at_once || self.position - self.freed >= self.size / FREED_DIVISOR {
            self.store_freed(lines);
        }
    }

    #[inline]
    fn store_freed(&mut self, lines: &Lines) {
        self.freed = self.position;
        lines.freed.store(self.position, Ordering::Release);
    }

    /// Tells the producer what is free if all records are read. Returns true if the producer waits for room, there is
    /// enough, and its process sleeps: it has to be woken. `opposite` is the ring of which that process is the consumer.
    #[inline]
    pub(crate) fn flush(
        &mut self,
        lines: &Lines,
        seals: &impl SealWords,
        opposite: &Lines,
    ) -> bool {
        if self.freed != self.position && !self.is_published(seals) {
            self.store_freed(lines);
        }
        let starved = lines.starved.load(Ordering::Relaxed);
        starved != 0 && self.end_starving(lines, opposite, starved - 1)
    }

    /// `tail` is the producer's position. If that is wrong, the producer is woken too early or too late.
    #[cold]
    fn end_starving(&self, lines: &Lines, opposite: &Lines, tail: u64) -> bool {
        let used = tail.wrapping_sub(self.freed);
        if used > self.size / ROOM_DIVISOR || lines.starved.swap(0, Ordering::AcqRel) == 0 {
            return false;
        }
        // Between the store of `freed` and the test of `asleep`.
        fence(Ordering::SeqCst);
        take(&opposite.asleep)
    }

    /// Says that the consumer is about to sleep. Returns true if it must not, because a record is published.
    pub(crate) fn arm(&self, lines: &Lines, seals: &impl SealWords) -> bool {
        lines.asleep.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.is_published(seals)
    }

    /// Says that the consumer is awake.
    #[inline]
    pub(crate) fn disarm(&self, lines: &Lines) {
        // Only when needed: a store takes the line away from the producer.
        if lines.asleep.load(Ordering::Relaxed) != 0 {
            lines.asleep.store(0, Ordering::Relaxed);
        }
    }
}
