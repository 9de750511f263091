//! Work queues: rings of requests, with their SGEs in a second ring. A ring starts small and doubles when more is
//! outstanding than ever before, up to its depth. So its memory depends on its use, not on the depth that was asked for.

use std::collections::TryReserveError;

use crate::work::{PostError, Sge};

/// Slots of a ring before its first growth.
const FIRST: usize = 16;
/// Maximum length of a message.
const MAX_LENGTH: u32 = 1 << 31;

/// A ring of work requests. A request is named by a running number (`seq`), which wraps.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    /// The number of slots is a power of two, so that running numbers still match slots after they wrap.
    slots: Vec<Option<T>>,
    sges: Vec<Sge>,
    depth: u32,
    max_sge: usize,
    head: u32,
    tail: u32,
}

impl<T> Ring<T> {
    /// Creates a ring for up to `depth` requests of up to `max_sge` SGEs each.
    pub(crate) fn new(depth: usize, max_sge: usize) -> Result<Self, TryReserveError> {
        let slots = depth.max(1).next_power_of_two().min(FIRST);
        let mut ring = Self {
            depth: depth as u32,
            max_sge,
            ..Self::empty()
        };
        ring.grow_slots(slots)?;
        Ok(ring)
    }

    /// Creates a ring of depth 0, which takes no memory.
    pub(crate) const fn empty() -> Self {
        Self {
            slots: Vec::new(),
            sges: Vec::new(),
            depth: 0,
            max_sge: 0,
            head: 0,
            tail: 0,
        }
    }

    /// Grows the ring to `slots`, a power of two. Requests keep their numbers.
    fn grow_slots(&mut self, slots: usize) -> Result<(), TryReserveError> {
        let (mut wider, mut sges) = (Vec::new(), Vec::new());
        wider.try_reserve_exact(slots)?;
        sges.try_reserve_exact(slots * self.max_sge)?;
        wider.resize_with(slots, || None);
        sges.resize(slots * self.max_sge, Sge::default());
        for n in 0..self.len() {
            let seq = self.head.wrapping_add(n);
            let (from, to) = (self.slot(seq), seq as usize & (slots - 1));
            wider[to] = self.slots[from].take();
            let from = from * self.max_sge..(from + 1) * self.max_sge;
            sges[to * self.max_sge..][..self.max_sge].copy_from_slice(&self.sges[from]);
        }
        (self.slots, self.sges) = (wider, sges);
        Ok(())
    }

    /// Removes all requests; the next one gets number 0. The memory is kept.
    pub(crate) fn clear(&mut self) {
        while self.pop().is_some() {}
        (self.head, self.tail) = (0, 0);
    }

    /// Returns the number of the oldest request, if `head() != tail()`.
    pub(crate) const fn head(&self) -> u32 {
        self.head
    }

    /// Returns the number of the next request.
    pub(crate) const fn tail(&self) -> u32 {
        self.tail
    }

    pub(crate) const fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    const fn slot(&self, seq: u32) -> usize {
        seq as usize & (self.slots.len() - 1)
    }

    pub(crate) fn get(&self, seq: u32) -> Option<&T> {
        self.slots[self.slot(seq)].as_ref()
    }

    pub(crate) fn get_mut(&mut self, seq: u32) -> Option<&mut T> {
        let slot = self.slot(seq);
        self.slots[slot].as_mut()
    }

    /// Returns the first `count` SGEs of a request.
    #[inline(always)]
    pub(crate) fn sges(&self, seq: u32, count: usize) -> &[Sge] {
        let at = self.slot(seq) * self.max_sge;
        &self.sges[at..at + count]
    }

    /// Returns true if one more request with one SGE needs neither an error nor memory.
    #[inline]
    pub(crate) const fn has_slot(&self) -> bool {
        let len = self.len();
        len < self.depth && (len as usize) < self.slots.len() && self.max_sge > 0
    }

    /// Makes room for one more request with these SGEs. Returns their total length.
    #[inline(always)]
    pub(crate) fn admit(&mut self, sges: &[Sge]) -> Result<u32, PostError> {
        match sges {
            [sge] if self.has_slot() && sge.length <= MAX_LENGTH => Ok(sge.length),
            // A copy, so that the SGE of the other arm need not be in memory.
            [sge] => self.admit_any(&[*sge]),
            _ => self.admit_any(sges),
        }
    }

    #[inline(never)]
    fn admit_any(&mut self, sges: &[Sge]) -> Result<u32, PostError> {
        if self.len() >= self.depth {
            return Err(PostError::Full(self.depth as usize));
        }
        if sges.len() > self.max_sge {
            return Err(PostError::TooManySges {
                given: sges.len(),
                max: self.max_sge,
            });
        }
        let total: u64 = sges.iter().map(|s| u64::from(s.length)).sum();
        let length = match u32::try_from(total) {
            Ok(length) if length <= MAX_LENGTH => length,
            _ => return Err(PostError::Length(total)),
        };
        if self.len() as usize == self.slots.len() {
            self.double()?;
        }
        Ok(length)
    }

    #[cold]
    fn double(&mut self) -> Result<(), PostError> {
        let slots = 2 * self.slots.len();
        self.grow_slots(slots)
            .map_err(|_| PostError::NoMemory(slots))
    }

    /// Appends an admitted request.
    #[inline(always)]
    pub(crate) fn push(&mut self, request: T, sges: &[Sge]) {
        let slot = self.slot(self.tail);
        let at = slot * self.max_sge;
        match sges {
            // Most have one, for which no copy is called.
            [sge] => self.sges[at] = *sge,
            _ => self.sges[at..at + sges.len()].copy_from_slice(sges),
        }
        self.slots[slot] = Some(request);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Removes the oldest request, if `head() != tail()`, without reading it.
    #[inline(always)]
    pub(crate) fn skip(&mut self) {
        let slot = self.slot(self.head);
        self.slots[slot] = None;
        self.head = self.head.wrapping_add(1);
    }

    /// Removes the oldest request.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.head == self.tail {
            return None;
        }
        let slot = self.slot(self.head);
        self.head = self.head.wrapping_add(1);
        self.slots[slot].take()
    }
}

/// A posted receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    pub(crate) wr_id: u64,
    pub(crate) sge_count: usize,
    pub(crate) length: u32,
}

impl Ring<Receive> {
    /// Appends an admitted receive of `length` bytes.
    #[inline(always)]
    pub(crate) fn post(&mut self, wr_id: u64, length: u32, sges: &[Sge]) {
        let sge_count = sges.len();
        self.push(
            Receive {
                wr_id,
                sge_count,
                length,
            },
            sges,
        );
    }

    /// Raises the depth; a smaller number changes nothing.
    pub(crate) fn raise_depth(&mut self, depth: usize) {
        self.depth = self.depth.max(depth as u32);
    }

    /// Takes the oldest receive and copies its SGEs into `sges`.
    pub(crate) fn take(&mut self, sges: &mut Vec<Sge>) -> Option<Receive> {
        let seq = self.head;
        let receive = self.pop()?;
        sges.clear();
        sges.extend_from_slice(self.sges(seq, receive.sge_count));
        Some(receive)
    }
}

/// Calls `each(address, key, range of the message)` for each part of `sges` that holds a part of `offset..offset + length`
/// of a message.
pub(crate) fn for_each_part<E>(
    sges: &[Sge],
    offset: u32,
    length: usize,
    mut each: impl FnMut(u64, u32, std::ops::Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut skip, mut done) = (offset, 0);
    for sge in sges {
        if done == length {
            break;
        }
        if skip >= sge.length {
            skip -= sge.length;
            continue;
        }
        let part = ((sge.length - skip) as usize).min(length - done);
        let address = sge.address.wrapping_add(u64::from(skip));
        each(address, sge.key, done..done + part)?;
        done += part;
        skip = 0;
    }
    Ok(())
}

/// Returns address and key of `offset..offset + length` of a message, if one SGE holds all of it.
pub(crate) fn in_one_part(sges: &[Sge], offset: u32, length: usize) -> Option<(u64, u32)> {
    let mut skip = offset;
    for sge in sges {
        if skip < sge.length {
            let whole = (sge.length - skip) as usize >= length;
            return whole.then(|| (sge.address.wrapping_add(u64::from(skip)), sge.key));
        }
        skip -= sge.length;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(ring: &mut Ring<Receive>, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let length = ring.admit(sges)?;
        ring.post(wr_id, length, sges);
        Ok(())
    }

    fn sge(length: u32) -> Sge {
        Sge {
            address: 16,
            length,
            key: 1,
        }
    }

    #[test]
    fn fills_wraps_and_keeps_order() {
        let mut ring = Ring::<Receive>::new(3, 2).unwrap();
        let mut sges = Vec::new();
        for round in 0..10 {
            for i in 0..3 {
                post(&mut ring, round * 3 + i, &[sge(1), sge(i as u32)]).unwrap();
            }
            assert_eq!(post(&mut ring, 0, &[]), Err(PostError::Full(3)));
            for i in 0..3 {
                let taken = ring.take(&mut sges).unwrap();
                assert_eq!(taken.wr_id, round * 3 + i);
                assert_eq!(sges[1].length, i as u32);
            }
            assert!(ring.take(&mut sges).is_none());
        }
        let many = [sge(1); 3];
        assert_eq!(
            post(&mut ring, 0, &many),
            Err(PostError::TooManySges { given: 3, max: 2 })
        );
    }

    #[test]
    fn a_deeper_ring_has_the_same_receives() {
        let mut ring = Ring::<Receive>::new(3, 2).unwrap();
        let mut sges = Vec::new();
        // The head is not at the beginning of the ring.
        for wr_id in 0..5 {
            post(&mut ring, wr_id, &[]).unwrap();
            ring.take(&mut sges).unwrap();
        }
        for wr_id in 0..3 {
            post(&mut ring, wr_id, &[sge(7), sge(wr_id as u32)]).unwrap();
        }
        ring.raise_depth(6);
        ring.raise_depth(2);
        for wr_id in 3..6 {
            post(&mut ring, wr_id, &[sge(7), sge(wr_id as u32)]).unwrap();
        }
        assert_eq!(post(&mut ring, 6, &[]), Err(PostError::Full(6)));
        for wr_id in 0..6 {
            assert_eq!(ring.take(&mut sges).map(|r| r.wr_id), Some(wr_id));
            assert_eq!(sges, [sge(7), sge(wr_id as u32)]);
        }
    }

    #[test]
    fn memory_follows_what_is_outstanding_and_requests_keep_their_numbers() {
        let mut ring = Ring::<Receive>::new(1 << 20, 3).unwrap();
        assert_eq!(ring.slots.len(), FIRST);
        let mut sges = Vec::new();
        // Runs around the ring many times, from numbers that are about to wrap.
        (ring.head, ring.tail) = (u32::MAX - 700, u32::MAX - 700);
        for wr_id in 0..1000 {
            post(&mut ring, wr_id, &[sge(wr_id as u32)]).unwrap();
            ring.take(&mut sges).unwrap();
        }
        assert_eq!(ring.slots.len(), FIRST);
        let first = ring.tail();
        for wr_id in 0..100 {
            post(&mut ring, wr_id, &[sge(7), sge(wr_id as u32), sge(9)]).unwrap();
            let at = ring.get(first.wrapping_add(wr_id as u32 / 2)).unwrap();
            assert_eq!(at.wr_id, wr_id / 2);
        }
        assert_eq!((ring.slots.len(), ring.sges.len()), (128, 3 * 128));
        for wr_id in 0..100 {
            assert_eq!(ring.take(&mut sges).map(|r| r.wr_id), Some(wr_id));
            assert_eq!(sges, [sge(7), sge(wr_id as u32), sge(9)]);
        }
        post(&mut ring, 0, &[]).unwrap();
        ring.clear();
        assert_eq!((ring.head(), ring.tail(), ring.len()), (0, 0, 0));
        assert!(ring.slots.iter().all(Option::is_none));
    }

    #[test]
    fn parts_cover_the_range_exactly() {
        let sges = [(100, 3), (200, 0), (300, 5), (400, 2)].map(|(address, length)| Sge {
            address,
            length,
            key: 0,
        });
        for offset in 0..10u32 {
            for length in 0..=(10 - offset) as usize {
                let mut got = Vec::new();
                for_each_part::<()>(&sges, offset, length, |address, _, range| {
                    got.extend((0..range.len() as u64).map(|i| address + i));
                    Ok(())
                })
                .unwrap();
                let all = [100, 101, 102, 300, 301, 302, 303, 304, 400, 401];
                assert_eq!(got, all[offset as usize..offset as usize + length]);
                let whole = in_one_part(&sges, offset, length).map(|(address, _)| address);
                let runs_on = got.windows(2).all(|two| two[1] == two[0] + 1);
                if length > 0 {
                    assert_eq!(whole, got.first().copied().filter(|_| runs_on));
                }
            }
        }
    }
}
