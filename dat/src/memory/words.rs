//! Atomic words of local regions: for flags, seqlocks and counters that peers change too.

use std::sync::atomic::{AtomicU64, Ordering};

use super::copy;
use super::region::Region;

impl Region {
    /// Returns the aligned word at `offset` for atomic access by this program's threads, for instance as the version of a seqlock
    /// that peers read. A peer's RDMA Writes and Reads of an aligned word are whole. Its *atomics* are atomic towards these accesses
    /// where the adapter says so; the user engine's are, and a device's often are towards its own atomics only.
    ///
    /// # Panics
    /// If the word leaves the region, or the offset is no multiple of 8.
    #[must_use]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        let at = self.at(offset, 8);
        assert!(
            at.addr().is_multiple_of(8),
            "the word at {offset} is not aligned to 8 bytes"
        );
        // SAFETY: inside the region, which lives as long as `self`, and aligned.
        unsafe { copy::word(at) }
    }

    /// Loads the word at `offset` with acquire ordering.
    ///
    /// # Panics
    /// As [`Region::word`].
    #[must_use]
    pub fn load_u64(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Acquire)
    }

    /// Stores a word at `offset` with release ordering.
    ///
    /// # Panics
    /// As [`Region::word`].
    pub fn store_u64(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Release);
    }

    /// Adds to the word at `offset` and returns the old value.
    ///
    /// # Panics
    /// As [`Region::word`].
    pub fn fetch_add_u64(&self, offset: usize, add: u64) -> u64 {
        self.word(offset).fetch_add(add, Ordering::AcqRel)
    }
}
