//! The ring in which the completions of a completion queue wait.
//!
//! It has slots instead of a `VecDeque`, whose `push_back` takes a finished completion: one that was written to memory in parts a moment ago
//! is slow to copy in larger ones.

use std::collections::TryReserveError;
use std::fmt;

use crate::work::Completion;

/// Completions in the order in which they were added. The number of slots is 0 or a power of two.
#[derive(Default)]
pub(crate) struct CompletionRing {
    slots: Vec<Completion>,
    /// Number of the oldest completion, wrapping.
    head: usize,
    /// Number of the next one, wrapping.
    tail: usize,
}

impl CompletionRing {
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head)
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Returns true if `more` completions need no memory.
    #[inline]
    pub(crate) const fn has_room(&self, more: usize) -> bool {
        self.slots.len() - self.len() >= more
    }

    /// Makes room for `more` completions.
    #[inline(never)]
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), TryReserveError> {
        let len = self.len();
        // A number of slots that is not a power of two is more than there can be: the allocation fails.
        let slots = (len + more).checked_next_power_of_two();
        let slots = slots.unwrap_or(usize::MAX);
        if slots <= self.slots.len() {
            return Ok(());
        }
        let mut wider = Vec::new();
        wider.try_reserve_exact(slots)?;
        wider.extend(self.iter());
        wider.resize(slots, Completion::default());
        (self.slots, self.head, self.tail) = (wider, 0, len);
        Ok(())
    }

    /// Returns the slot of completion `number`. There are slots.
    #[inline]
    const fn slot(&self, number: usize) -> usize {
        number & (self.slots.len() - 1)
    }

    /// Appends a completion, for which there should be [room](Self::has_room).
    #[inline(always)]
    pub(crate) fn push(&mut self, completion: Completion) {
        if self.len() == self.slots.len() {
            self.widen();
        }
        let slot = self.slot(self.tail);
        self.slots[slot] = completion;
        self.tail = self.tail.wrapping_add(1);
    }

    /// Makes room for a completion that has no reservation. That is an error of this crate, but must not cost another completion its slot.
    ///
    /// # Panics
    /// If there is no memory.
    #[cold]
    #[inline(never)]
    fn widen(&mut self) {
        self.reserve(1)
            .expect("there is memory for one more completion");
    }

    /// Removes the oldest completion.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<&Completion> {
        if self.is_empty() {
            return None;
        }
        let slot = self.slot(self.head);
        self.head = self.head.wrapping_add(1);
        self.slots.get(slot)
    }

    /// Returns the completions, the oldest one first.
    fn iter(&self) -> impl Iterator<Item = &Completion> {
        (0..self.len()).map(|index| &self.slots[self.slot(self.head.wrapping_add(index))])
    }
}

impl fmt::Debug for CompletionRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(wr_id: u64) -> Completion {
        Completion {
            wr_id,
            ..Completion::default()
        }
    }

    #[test]
    fn completions_leave_in_order_and_the_ring_grows_at_any_position() {
        for shift in 0..8 {
            let mut ring = CompletionRing::default();
            assert!(ring.is_empty() && !ring.has_room(1) && ring.pop().is_none());
            ring.reserve(3).unwrap();
            assert!(ring.has_room(4) && !ring.has_room(5));
            for wr_id in 0..shift {
                ring.push(completion(wr_id));
                assert_eq!(ring.pop().map(|c| c.wr_id), Some(wr_id));
            }
            for wr_id in 0..4 {
                ring.push(completion(wr_id));
            }
            assert!(!ring.has_room(1));
            ring.reserve(5).unwrap();
            assert!(ring.has_room(12) && !ring.has_room(13));
            for wr_id in 4..16 {
                ring.push(completion(wr_id));
            }
            assert_eq!(ring.len(), 16);
            for wr_id in 0..16 {
                assert_eq!(ring.pop().map(|c| c.wr_id), Some(wr_id));
            }
            assert!(ring.pop().is_none());
        }
    }

    #[test]
    fn a_completion_without_room_takes_no_slot_of_another() {
        let mut ring = CompletionRing::default();
        for wr_id in 0..5 {
            ring.push(completion(wr_id));
        }
        for wr_id in 0..5 {
            assert_eq!(ring.pop().map(|c| c.wr_id), Some(wr_id));
        }
    }

    #[test]
    fn numbers_wrap() {
        let mut ring = CompletionRing::default();
        ring.reserve(2).unwrap();
        (ring.head, ring.tail) = (usize::MAX, usize::MAX);
        ring.push(completion(1));
        ring.push(completion(2));
        assert_eq!((ring.len(), ring.has_room(1)), (2, false));
        assert_eq!(ring.pop().map(|c| c.wr_id), Some(1));
        assert_eq!(ring.pop().map(|c| c.wr_id), Some(2));
    }

    #[test]
    fn too_much_memory_is_an_error() {
        let mut ring = CompletionRing::default();
        assert!(ring.reserve(usize::MAX).is_err());
        assert!(ring.is_empty());
    }
}
