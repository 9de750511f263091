//! Slots that are used in turn, found by a number that only counts up.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A slice whose length is a power of two, to be indexed by any number: what is above the length is cut off. So no index
/// is checked, and none can be wrong.
#[derive(Debug)]
pub struct Cycle<O: 'static> {
    first: NonNull<O>,
    /// Length less one.
    mask: u32,
}

impl<O> Clone for Cycle<O> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<O> Copy for Cycle<O> {}

// SAFETY: it is no more than a `&'static [O]`.
unsafe impl<O: Sync> Send for Cycle<O> {}
// SAFETY: as above.
unsafe impl<O: Sync> Sync for Cycle<O> {}

impl<O> Cycle<O> {
    /// All of `slots`.
    ///
    /// # Panics
    /// If their number is no power of two, or above 2^31.
    #[must_use]
    pub const fn new(slots: &'static [O]) -> Self {
        assert!(slots.len().is_power_of_two() && slots.len() <= 1 << 31);
        // A slice that is not empty has a first element.
        let Some(first) = NonNull::new(slots.as_ptr().cast_mut()) else {
            unreachable!()
        };
        Self {
            first,
            mask: (slots.len() - 1) as u32,
        }
    }

    /// The slot of `number`.
    #[inline(always)]
    #[must_use]
    pub fn at(&self, number: u32) -> &'static O {
        // SAFETY: the index is at most the length less one, of a slice that lives for ever.
        unsafe { self.first.add((number & self.mask) as usize).as_ref() }
    }

    /// The highest index: numbers differ by at most that from each other, or meet in one slot.
    #[inline(always)]
    #[must_use]
    pub const fn span(&self) -> u32 {
        self.mask
    }
}

impl<const N: usize> Cycle<[AtomicU64; N]> {
    /// `count` slots of zeros that live for ever; `None` if there is no memory for them. Of a large number, only those that are
    /// used take memory.
    ///
    /// # Panics
    /// If `count` is no power of two, or above 2^31, or `N` is 0.
    #[must_use]
    pub fn zeroed(count: usize) -> Option<Self> {
        assert!(count.is_power_of_two() && count <= 1 << 31 && N > 0);
        let layout = Layout::array::<[AtomicU64; N]>(count).ok()?;
        // SAFETY: the size is not 0.
        let first = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // SAFETY: room for `count` slots, aligned for them; zeros are valid atomics, and the memory is never given back.
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
    fn zeroed_slots_are_apart_and_too_many_are_refused() {
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
    fn no_slots_are_no_cycle() {
        let _ = Cycle::<u8>::new(&[]);
    }
}
