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
        // SAFETY: the size is not 0.
        let first = NonNull::new(unsafe { alloc_zeroed(layout) })?;
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
    }

    #[test]
    #[should_panic(expected = "is_power_of_two")]
    fn a_cycle_without_slots_is_refused() {
        let _ = Cycle::<u8>::new(&[]);
    }
}
