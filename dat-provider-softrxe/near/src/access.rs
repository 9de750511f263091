//! Access of one end to its ring: indices, and copies between private memory and records.
//!
//! Another process may write to the same bytes at any time, so no reference may exist there except to atomics, and a
//! value that was checked must not be read again. Headers go through relaxed atomics of a word, each accessed once: a
//! concurrent write is no data race. It changes a value only, which the reader checks after the copy.

use std::ptr::NonNull;
use std::sync::Arc;
// Loom models the seals only, and its atomics cannot be in shared memory.
use std::sync::atomic::AtomicU64 as Word;

use crate::layout::{ALIGNMENT, FIXED, HEADER_AT, MAX_HEADER};
use crate::map::Map;
use crate::ring::{Lines, SealWords};
use crate::sync::{AtomicU64, Ordering};

/// Words of a record's fixed part behind its seal.
pub(crate) const WORDS: usize = FIXED / 8 - 1;
/// Words of the headers.
const HEADER_WORDS: usize = MAX_HEADER / 8;

/// A ring of a map.
#[derive(Clone, Debug)]
pub(crate) struct RingAccess {
    lines: NonNull<Lines>,
    /// The data, mapped twice in a row.
    data: NonNull<u8>,
    /// Size of the ring minus 1.
    mask: u64,
    /// Keeps the memory mapped.
    _map: Arc<Map>,
}

// SAFETY: the pointers lead into the map, which may be used in any thread and which `_map` keeps mapped. All accesses here are
// atomic, so any number of threads may each have a RingAccess of one ring, as sender, lender, receiver and puller do. One
// sender writes the records of a ring, and one receiver reads them; the others only use `lines`.
unsafe impl Send for RingAccess {}

impl RingAccess {
    /// Returns the access to ring number `ring` of `map`, whose rings have `size` bytes.
    pub(crate) fn new(map: Arc<Map>, ring: usize, size: usize) -> Self {
        let (lines, data) = map.ring(ring);
        Self {
            lines,
            data,
            mask: size as u64 - 1,
            _map: map,
        }
    }

    /// Returns indices and flags.
    #[inline]
    pub(crate) fn lines(&self) -> &Lines {
        // SAFETY: a control page is mapped there as long as `_map` lives. Lines has only atomics.
        unsafe { self.lines.as_ref() }
    }

    /// Returns the first byte of the record at `position`. A whole ring is mapped from there on.
    #[inline]
    pub(crate) fn record(&self, position: u64) -> NonNull<u8> {
        let offset = (position & self.mask) as usize;
        // SAFETY: the offset is less than the ring's size, and the data is mapped twice in a row.
        unsafe { self.data.add(offset) }
    }

    /// Lets the processor fetch two lines from `position` on, which are about to be written. The peer has them in its caches, and a
    /// store that waits for its line holds up all later ones, and each lock.
    ///
    /// The instruction takes the lines away from the peer. A usual prefetch, to which the compiler's hint for a write is translated, would
    /// share them with it, and the store would have to wait for the peer a second time.
    #[inline]
    pub(crate) fn fetch_for_writing(&self, position: u64) {
        for line in [0, ALIGNMENT as u64] {
            let at = self.record(position + line);
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: a prefetch has no effect but on caches, and no address makes it fail. A processor without the instruction takes it for
            // none (Intel's manual, volume 2, PREFETCHW).
            unsafe {
                std::arch::asm!(
                    "prefetchw byte ptr [{}]",
                    in(reg) at.as_ptr(),
                    options(nostack, preserves_flags, readonly),
                );
            }
            #[cfg(not(all(target_arch = "x86_64", not(miri))))]
            let _ = at;
        }
    }

    /// Lets the processor fetch the second line of the record at `position`, which is about to be read.
    #[inline]
    pub(crate) fn fetch_second_line(&self, position: u64) {
        let at = self.record(position + ALIGNMENT as u64);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: mapped memory, and a prefetch has no effect but on caches.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(at.as_ptr().cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// Returns the word in which the seal of the record at `position` is.
    #[inline]
    fn seal(&self, position: u64) -> &AtomicU64 {
        debug_assert!(position.is_multiple_of(8));
        let at = self.record(position).cast::<AtomicU64>();
        // SAFETY: a page or more is mapped at any position as long as `_map` lives; a multiple of 8 is aligned. No other reference leads
        // there: the word is accessed here, and by copies of payload through raw pointers while it is no seal.
        unsafe { at.as_ref() }
    }

    /// Returns the word with number `index`, less than 32, of the record at `position`.
    #[inline]
    fn word(&self, position: u64, index: usize) -> &Word {
        debug_assert!(position.is_multiple_of(8) && index < 32);
        // SAFETY: a page or more is mapped at any position as long as `_map` lives; a multiple of 8 is aligned. No other reference leads
        // there but such ones: payload is copied through raw pointers.
        unsafe { Word::from_ptr(self.record(position).cast().add(index).as_ptr()) }
    }

    /// Returns the fixed part of the record at `position` behind its seal: each word is read once.
    #[inline]
    pub(crate) fn read_fixed(&self, position: u64) -> [u64; WORDS] {
        std::array::from_fn(|index| self.word(position, 1 + index).load(Ordering::Relaxed))
    }

    /// Returns the word at `offset`, a multiple of 8 below 256, of the record at `position`. It is read once.
    #[inline]
    pub(crate) fn read_word(&self, position: u64, offset: u8) -> u64 {
        debug_assert!(offset.is_multiple_of(8));
        let word = self.word(position, usize::from(offset / 8));
        word.load(Ordering::Relaxed)
    }

    /// Writes the beginning of the record at `position` but for its seal: the second word, and the first `length` bytes of the header after
    /// it, filled up to a whole word with what follows in `header`. Bytes after that stay as they are.
    #[inline]
    pub(crate) fn write_fixed(
        &self,
        position: u64,
        word: u64,
        header: &[u8; MAX_HEADER],
        length: usize,
    ) {
        debug_assert!(length <= MAX_HEADER);
        let store = |index, word| self.word(position, index).store(word, Ordering::Relaxed);
        store(1, word);
        // A constant number of turns, which need no loop.
        let whole = header.as_chunks::<8>().0;
        for (index, word) in whole.iter().enumerate().take(HEADER_WORDS) {
            if index * 8 < length {
                store(HEADER_AT / 8 + index, u64::from_ne_bytes(*word));
            }
        }
    }
}

impl SealWords for RingAccess {
    #[inline]
    fn load(&self, position: u64) -> u64 {
        self.seal(position).load(Ordering::Acquire)
    }

    #[inline]
    fn store(&self, position: u64, seal: u64) {
        self.seal(position).store(seal, Ordering::Release);
    }
}
