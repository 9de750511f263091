//! Slots of an SRQ's receives: numbered cookies, taken and released in any order, without a lock.

use std::sync::OnceLock;

use crate::error::{Error, Result, Subtype};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of receives of an SRQ.
pub(super) const MAX_SLOTS: u32 = 1 << 20;

/// Numbered cookies. One thread takes at a time (under the queue's lock); any number of threads release (under the
/// locks of EVDs).
#[derive(Default)]
pub(super) struct Slots {
    /// Chunks of slots; chunk `n` holds `MIN_SLOTS << n` of them. A chunk is allocated once and kept, as threads read it without a lock;
    /// [`Slots::discard`] gives back its memory.
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    /// Number of slots that exist.
    made: AtomicU32,
    /// First free slot + 1, with a count of changes above it, so that a taker detects a change by another thread.
    free: AtomicU64,
    taken: AtomicU32,
}

const CHUNKS: usize = 15;

/// Number of slots in the first chunk.
const MIN_SLOTS: usize = if cfg!(all(loom, test)) { 2 } else { 64 };

/// The cookie, and the next free slot + 1, or [`TAKEN`] while outstanding. Zeros are a slot that is not outstanding.
type Slot = [AtomicU64; 2];
const COOKIE: usize = 0;
const NEXT: usize = 1;

const TAKEN: u64 = u32::MAX as u64;

impl Slots {
    /// Empties the slots and makes at least `count` of them.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`; slots that were made are kept.
    pub(super) fn open(&self, count: u32) -> Result<()> {
        let made = self.made.load(Ordering::Acquire);
        self.taken.store(0, Ordering::Release);
        self.free.store(0, Ordering::Release);
        for number in (0..made).rev() {
            if let Some(slot) = self.slot(number) {
                self.push(number, slot);
            }
        }
        self.grow(count)
    }

    /// Makes at least `count` slots.
    ///
    /// # Errors
    /// As [`Slots::open`].
    pub(super) fn grow(&self, count: u32) -> Result<()> {
        const NO_MEMORY: Error = Error::resource(Subtype::ResourceMemory);
        let mut made = self.made.load(Ordering::Acquire);
        while made < count.min(MAX_SLOTS) {
            let (chunk, _) = place(made);
            if self.chunks[chunk].get().is_none() {
                let wanted = MIN_SLOTS << chunk;
                let mut slots = Vec::new();
                slots.try_reserve_exact(wanted).map_err(|_| NO_MEMORY)?;
                slots.resize_with(wanted, Slot::default);
                // Fails only if another thread set the chunk first.
                let _ = self.chunks[chunk].set(slots.into_boxed_slice());
            }
            let slots = self.chunks[chunk].get().ok_or(NO_MEMORY)?;
            self.made
                .store(made + slots.len() as u32, Ordering::Release);
            for (offset, slot) in slots.iter().enumerate() {
                self.push(made + offset as u32, slot);
            }
            made += slots.len() as u32;
        }
        Ok(())
    }

    /// Gives back the memory of the slots of a freed queue, whose generation is over. A thread that still releases one finds it free, or
    /// gets its cookie or 0, and looks at the generation again. The next [`Slots::open`] writes them all.
    pub(super) fn discard(&self) {
        #[cfg(not(all(loom, test)))]
        for slots in self.chunks.iter().filter_map(OnceLock::get) {
            dat_os::discard::discard(slots);
        }
    }

    fn slot(&self, number: u32) -> Option<&Slot> {
        let (chunk, offset) = place(number);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    pub(super) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Acquire)
    }

    pub(super) fn take(&self, cookie: u64) -> Option<u32> {
        loop {
            let free = self.free.load(Ordering::Acquire);
            let number = (free as u32).checked_sub(1)?;
            let slot = self.slot(number)?;
            let rest = change(free, slot[NEXT].load(Ordering::Relaxed) as u32);
            if self
                .free
                .compare_exchange_weak(free, rest, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                slot[COOKIE].store(cookie, Ordering::Relaxed);
                slot[NEXT].store(TAKEN, Ordering::Release);
                self.taken.fetch_add(1, Ordering::AcqRel);
                return Some(number);
            }
        }
    }

    pub(super) fn release(&self, number: u32) -> Option<u64> {
        let slot = self.slot(number)?;
        // A slot may be released twice by a fault, even after it was taken again. The exchange lets one release through;
        // so the cookie is read after it.
        slot[NEXT]
            .compare_exchange(TAKEN, 0, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        let cookie = slot[COOKIE].load(Ordering::Acquire);
        self.push(number, slot);
        self.taken.fetch_sub(1, Ordering::AcqRel);
        Some(cookie)
    }

    fn push(&self, number: u32, slot: &Slot) {
        let mut free = self.free.load(Ordering::Relaxed);
        loop {
            slot[NEXT].store(free & TAKEN, Ordering::Relaxed);
            let first = change(free, number + 1);
            match self
                .free
                .compare_exchange_weak(free, first, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => free = now,
            }
        }
    }
}

/// Returns the free word with another first slot and a new count.
const fn change(free: u64, first: u32) -> u64 {
    ((free >> 32).wrapping_add(1) << 32) | first as u64
}

/// Returns chunk and offset of slot `number`: chunks have 64, 128, 256 ... slots.
const fn place(number: u32) -> (usize, usize) {
    let biased = number as usize + MIN_SLOTS;
    let chunk = (biased.ilog2() - MIN_SLOTS.ilog2()) as usize;
    (chunk, biased - (MIN_SLOTS << chunk))
}

#[cfg(all(loom, test))]
mod models;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use dat_arena::Mutex;

    use super::*;

    #[test]
    fn each_slot_number_has_its_chunk_and_offset() {
        assert_eq!(place(0), (0, 0));
        assert_eq!(place(63), (0, 63));
        assert_eq!(place(64), (1, 0));
        assert_eq!(place(191), (1, 127));
        assert_eq!(place(192), (2, 0));
        assert!(place(MAX_SLOTS - 1).0 < CHUNKS);
    }

    #[test]
    fn cookies_come_back_in_any_order_and_once() {
        let slots = Slots::default();
        slots.open(100).unwrap();
        let numbers: Vec<_> = (0..100u64).map(|c| slots.take(c).unwrap()).collect();
        assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), 100);
        assert_eq!(slots.taken(), 100);
        for c in [50usize, 3, 99, 0] {
            assert_eq!(slots.release(numbers[c]), Some(c as u64));
            assert_eq!(slots.release(numbers[c]), None, "twice");
        }
        assert_eq!(slots.taken(), 96);
        assert_eq!(slots.release(1 << 29), None);
        slots.open(10).unwrap();
        assert_eq!((slots.taken(), slots.release(numbers[7])), (0, None));
    }

    #[test]
    fn slots_whose_memory_was_given_back_are_opened_again() {
        // Miri has no pages to give back, and is slow.
        let count = if cfg!(miri) { 50 } else { 5000 };
        let slots = Slots::default();
        slots.open(count).unwrap();
        let numbers: Vec<_> = (0..u64::from(count))
            .map(|c| slots.take(c).unwrap())
            .collect();
        slots.discard();
        // A completion that another thread still takes.
        let last = *numbers.last().unwrap();
        let released = slots.release(last);
        assert!(released.is_none_or(|cookie| cookie == u64::from(count) - 1));
        slots.open(count).unwrap();
        assert_eq!(slots.taken(), 0);
        let all: HashSet<_> = (0..u64::from(count))
            .map(|c| slots.take(c).unwrap())
            .collect();
        assert_eq!(all.len(), count as usize);
    }

    #[test]
    fn no_slot_is_lost_between_takers_and_releasers() {
        let slots = Slots::default();
        slots.open(64).unwrap();
        let (send, recv) = std::sync::mpsc::channel::<(u32, u64)>();
        let recv = Mutex::new(recv);
        thread::scope(|scope| {
            for _ in 0..2 {
                let (recv, slots) = (&recv, &slots);
                scope.spawn(move || {
                    while let Ok((number, cookie)) = { recv.lock().recv() } {
                        assert_eq!(slots.release(number), Some(cookie));
                    }
                });
            }
            let (mut cookie, end) = (0, if cfg!(miri) { 300 } else { 20_000 });
            while cookie < end {
                if let Some(number) = slots.take(cookie) {
                    send.send((number, cookie)).unwrap();
                    cookie += 1;
                } else {
                    thread::yield_now();
                }
            }
            drop(send);
        });
        assert_eq!(slots.taken(), 0);
        let all: HashSet<_> = std::iter::from_fn(|| slots.take(0)).collect();
        assert_eq!(all.len(), 64);
    }
}
