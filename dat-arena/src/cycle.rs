//! A ring of slots that is indexed by a number that only counts up.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A slice whose length is a power of two. Any number is an index: its high bits are masked off, so an access needs no bounds check
/// and cannot fail.
#[derive(Debug)]
pub struct Cycle<O: 'static> {
    first: NonNull<O>,
    /// Length of the slice minus one.
    mask: u32,
}

impl<O> Clone for Cycle<O> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<O> Copy for Cycle<O> {}

// SAFETY: a cycle gives the same access as a `&'static [O]`.
unsafe impl<O: Sync> Send for Cycle<O> {}
// SAFETY: as for `Send`.
unsafe impl<O: Sync> Sync for Cycle<O> {}

impl<O> Cycle<O> {
    /// Creates a cycle of `slots`.
    ///
    /// # Panics
    /// If their number is not a power of two, or above 2^31.
    #[must_use]
    pub const fn new(slots: &'static [O]) -> Self {
        assert!(slots.len().is_power_of_two() && slots.len() <= 1 << 31);
        // The slice is not empty, so its pointer is not null.
        let Some(first) = NonNull::new(slots.as_ptr().cast_mut()) else {
            unreachable!()
        };
        Self {
            first,
            mask: (slots.len() - 1) as u32,
        }
    }

    /// Returns the slot of `number`.
    #[inline(always)]
    #[must_use]
    pub fn at(&self, number: u32) -> &'static O {
        // SAFETY: the index is less than the length of the slice, which is never freed.
        unsafe { self.first.add((number & self.mask) as usize).as_ref() }
    }

    /// Returns the highest index. Numbers that differ by at most this value have different slots.
    #[inline(always)]
    #[must_use]
    pub const fn span(&self) -> u32 {
        self.mask
    }
}

/// Size from which on slots have pages of their own. The allocator may give memory that was in use before, and would then write to all of it.
const MIN_MAPPED: usize = 128 << 10;

/// Maps `size` bytes of zeros, at the beginning of a page. None of them occupies memory until it is written.
fn map(size: usize) -> Option<NonNull<u8>> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping changes no other memory.
    let first = unsafe { libc::mmap(std::ptr::null_mut(), size, rights, kind, -1, 0) };
    if first == libc::MAP_FAILED {
        return None;
    }
    NonNull::new(first.cast())
}

impl<const N: usize> Cycle<[AtomicU64; N]> {
    /// Allocates `count` zeroed slots that are never freed; returns `None` if memory is exhausted. In a large cycle only the slots in
    /// use occupy memory.
    ///
    /// # Panics
    /// If `count` is not a power of two, or above 2^31, or `N` is 0.
    #[must_use]
    pub fn zeroed(count: usize) -> Option<Self> {
        assert!(count.is_power_of_two() && count <= 1 << 31 && N > 0);
        let layout = Layout::array::<[AtomicU64; N]>(count).ok()?;
        let first = if layout.size() < MIN_MAPPED {
            // SAFETY: the size is not 0.
            NonNull::new(unsafe { alloc_zeroed(layout) })?
        } else {
            map(layout.size())?
        };
        // SAFETY: the memory has room for `count` slots and their alignment; zeros are valid atomics, and it is never freed.
        let slots = unsafe { std::slice::from_raw_parts(first.cast().as_ptr(), count) };
        Some(Self::new(slots))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_has_a_slot() {
        static SLOTS: [u8; 4] = [10, 11, 12, 13];
        let cycle = Cycle::new(&SLOTS);
        for (number, slot) in [(0, 10), (3, 13), (4, 10), (u32::MAX, 13), (1 << 31, 10)] {
            assert_eq!(*cycle.at(number), slot);
        }
        assert_eq!(cycle.span(), 3);
    }

    #[test]
    fn zeroed_slots_are_distinct_and_too_many_are_refused() {
        use std::sync::atomic::Ordering::Relaxed;

        let cycle = Cycle::<[AtomicU64; 2]>::zeroed(8).unwrap();
        for n in 0..8 {
            let [a, b] = cycle.at(n);
            assert_eq!((a.load(Relaxed), b.load(Relaxed)), (0, 0));
            a.store(u64::from(n), Relaxed);
        }
        assert_eq!(cycle.at(8 + 5)[0].load(Relaxed), 5);
        assert!(Cycle::<[AtomicU64; 1 << 32]>::zeroed(1 << 31).is_none());
        // Miri ends where no memory is left.
        if cfg!(not(miri)) {
            assert!(Cycle::<[AtomicU64; 1 << 28]>::zeroed(1 << 31).is_none());
        }
    }

    /// Returns how many of the pages of `cycle` occupy memory.
    #[cfg(not(miri))]
    fn pages<const N: usize>(cycle: Cycle<[AtomicU64; N]>, bytes: usize) -> usize {
        let mut present = vec![0_u8; bytes.div_ceil(4096)];
        let first = cycle.at(0).as_ptr().cast_mut().cast();
        // SAFETY: the mapping has so many bytes, and `present` a byte for each page of 4 KiB or more.
        let known = unsafe { libc::mincore(first, bytes, present.as_mut_ptr()) };
        assert_eq!(known, 0);
        present.iter().filter(|page| **page & 1 != 0).count()
    }

    #[test]
    #[cfg(not(miri))]
    fn slots_that_were_not_used_occupy_no_memory() {
        use std::sync::atomic::Ordering::Relaxed;

        const COUNT: usize = 1 << 17;
        // The allocator takes larger pieces from memory in use once one of that size was freed.
        drop(vec![1_u8; 24 << 20]);
        drop(vec![1_u8; 24 << 20]);
        let cycle = Cycle::<[AtomicU64; 2]>::zeroed(COUNT).unwrap();
        let bytes = COUNT * 16;
        assert_eq!(pages(cycle, bytes), 0);
        cycle.at(COUNT as u32 / 2)[0].store(7, Relaxed);
        // One, or those of a huge page.
        assert_ne!(pages(cycle, bytes), 0);
        assert_eq!(cycle.at(0)[1].load(Relaxed), 0);
    }

    #[test]
    #[should_panic(expected = "is_power_of_two")]
    fn a_cycle_without_slots_is_refused() {
        let _ = Cycle::<u8>::new(&[]);
    }
}
