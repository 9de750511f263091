//! Atomic words of local regions: for flags, seqlocks and counters that peers change too.

use std::sync::atomic::{AtomicU64, Ordering};

use super::copy;
use super::region::Region;

impl Region {
    /// Returns the aligned word at `offset` for atomic access by this program's threads, for instance as the version of a seqlock
    /// that peers read. A peer's RDMA Writes and Reads of an aligned word are whole. Its *atomics* are atomic towards these accesses
    /// where the adapter says so; the user engine's are, and a device's often are towards its own atomics only.
    ///
    /// A seqlock's writer, whose readers may be peers with RDMA Reads:
    ///
    ///
    /// ```
    /// use std::sync::atomic::{Ordering, fence};
    /// use udapl::{Access, Ia, Region};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// /// Replaces a record of 24 bytes behind its version. An odd version says that the record changes.
    /// fn replace(slot: &Region, record: &[u8; 24]) {
    ///     let version = slot.word(0);
    ///     version.fetch_add(1, Ordering::Relaxed);
    ///     fence(Ordering::SeqCst);
    ///     slot.write(8, record);
    ///     version.fetch_add(1, Ordering::Release);
    /// }
    ///
    /// let slot = Ia::open("softrxe-lo")?.create_pz()?.allocate(32, Access::ALL)?;
    /// replace(&slot, &[7; 24]);
    /// assert_eq!((slot.load_u64(0), slot.load(31)), (2, 7));
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// use udapl::{Access, Ia};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// let flags = Ia::open("softrxe-lo")?.create_pz()?.allocate(16, Access::ALL)?;
    /// flags.store_u64(8, 5); // what was written before is seen by a thread that loads the 5
    /// assert_eq!(flags.fetch_add_u64(8, 2), 5);
    /// assert_eq!(flags.load_u64(8), 7);
    /// # Ok(())
    /// # }
    /// ```
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
