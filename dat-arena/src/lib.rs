//! Type-stable memory for DAT objects.
//!
//! A DAT handle is a raw pointer that a C program may use after it was freed, or make up. So objects of
//! one kind live in one reserved range of addresses that is never unmapped: an address is checked with
//! one subtraction, one rotation and one comparison ([`Arena::from_addr`]), and a stale reference still
//! points at an object of the same type, whose own state says that it is dead. Objects are built once
//! with [`Default`] and reused through their interior mutability; a freed one goes to the end of a long
//! queue, so that a stale handle meets a stranger as late as possible.
//!
//! Every method may be called from any thread.

mod lock;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem::size_of;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;

pub use lock::{BriefGuard, BriefMutex, RawBrief};

/// A freed slot is not reused while fewer than this many are free and new ones can still be made.
const RECYCLE_AFTER: usize = 256;

/// One kind's objects: contiguous, never unmapped, recycled late.
///
/// `O` should begin with the word a C program reads through its handle, and must not be larger than
/// 64 KiB. Meant to be a `static`: references it hands out are `'static`.
pub struct Arena<O> {
    /// First object's address; 0 until the range is reserved.
    base: AtomicUsize,
    /// Objects built so far: indices below this are valid `O`s for ever.
    built: AtomicU32,
    /// Objects the reserved range can hold.
    capacity: AtomicU32,
    wanted: u32,
    free: Mutex<VecDeque<u32>>,
    objects: PhantomData<fn() -> O>,
}

impl<O: Default + Sync + 'static> Arena<O> {
    /// Distance between two objects, a power of two so that an address is checked without a division.
    pub const STRIDE: usize = {
        let n = size_of::<O>();
        assert!(n <= 1 << 16, "an object is at most 64 KiB");
        if n < 64 { 64 } else { n.next_power_of_two() }
    };
    const SHIFT: u32 = Self::STRIDE.trailing_zeros();

    /// An empty arena for at most `wanted` objects; reserves nothing until the first [`Arena::alloc`].
    #[must_use]
    pub const fn new(wanted: u32) -> Self {
        Self {
            base: AtomicUsize::new(0),
            built: AtomicU32::new(0),
            capacity: AtomicU32::new(0),
            wanted,
            free: Mutex::new(VecDeque::new()),
            objects: PhantomData,
        }
    }

    /// An object to use: a recycled one, or a new `O::default()`. `None` when the range is full or
    /// address space cannot be reserved.
    pub fn alloc(&'static self) -> Option<(u32, &'static O)> {
        let mut free = self.free.lock();
        let built = self.built.load(Ordering::Relaxed);
        let full = built != 0 && built >= self.capacity.load(Ordering::Relaxed);
        if free.len() >= RECYCLE_AFTER || (full && !free.is_empty()) {
            let index = free.pop_front()?;
            return self.get(index).map(|o| (index, o));
        }
        if full {
            return None;
        }
        if built == 0 && !self.reserve() {
            return None;
        }
        let base = self.base.load(Ordering::Relaxed);
        // SAFETY: `base` is a private mapping of `capacity * STRIDE` bytes, page aligned, and
        // `built < capacity`; nobody else writes here because `free` is locked, and nobody reads
        // until `built` is published below.
        unsafe { ((base + ((built as usize) << Self::SHIFT)) as *mut O).write(O::default()) };
        self.built.store(built + 1, Ordering::Release);
        self.get(built).map(|o| (built, o))
    }

    /// The object at `index`, dead or alive; `None` if it was never made.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&'static O> {
        if index >= self.built.load(Ordering::Acquire) {
            return None;
        }
        let at = self.base.load(Ordering::Relaxed) + ((index as usize) << Self::SHIFT);
        // SAFETY: indices below `built` hold an `O` that is never dropped, moved or unmapped, and none is at 0.
        unsafe {
            std::hint::assert_unchecked(at != 0);
            Some(&*(at as *const O))
        }
    }

    /// Whether an object, dead or alive, is at exactly `addr`.
    #[inline(always)]
    pub fn holds(&self, addr: usize) -> bool {
        let offset = addr.wrapping_sub(self.base.load(Ordering::Relaxed));
        // The rotation moves the low bits of a misaligned address to the top: one comparison checks
        // range and alignment.
        offset.rotate_right(Self::SHIFT) < self.built.load(Ordering::Acquire) as usize
    }

    /// The object at `addr`.
    ///
    /// # Safety
    /// The arena [holds](Arena::holds) it.
    #[inline(always)]
    pub unsafe fn at(&self, addr: usize) -> &'static O {
        // SAFETY: `addr` is `base + index * STRIDE` with `index < built`, see `get`.
        unsafe { &*(addr as *const O) }
    }

    /// The object whose address is exactly `addr`, dead or alive; `None` for any other number.
    #[inline(always)]
    pub fn from_addr(&self, addr: usize) -> Option<&'static O> {
        // SAFETY: it holds it.
        self.holds(addr).then(|| unsafe { self.at(addr) })
    }

    /// Index of an object of this arena.
    #[inline]
    pub fn index_of(&self, object: &'static O) -> u32 {
        let offset = std::ptr::from_ref(object) as usize - self.base.load(Ordering::Relaxed);
        (offset >> Self::SHIFT) as u32
    }

    /// Hands the object at `index` back for a later [`Arena::alloc`]. The caller has made it dead and
    /// gives each index back once.
    pub fn recycle(&self, index: u32) {
        self.free.lock().push_back(index);
    }

    /// First address and length in bytes of the reserved range; (0, 0) before the first object.
    pub fn range(&self) -> (usize, usize) {
        let bytes = (self.capacity.load(Ordering::Relaxed) as usize) << Self::SHIFT;
        (self.base.load(Ordering::Acquire), bytes)
    }

    /// Calls `f` for every object ever made, dead or alive.
    pub fn for_each(&self, mut f: impl FnMut(u32, &'static O)) {
        for index in 0..self.built.load(Ordering::Acquire) {
            if let Some(object) = self.get(index) {
                f(index, object);
            }
        }
    }

    /// Reserves address space (not memory) for `wanted` objects, or half, or a quarter ... of them where
    /// a limit on address space is in force.
    fn reserve(&self) -> bool {
        let mut count = self.wanted.max(1) as usize;
        loop {
            // SAFETY: an anonymous private mapping at an address the kernel chooses touches nothing.
            let at = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    count << Self::SHIFT,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if at != libc::MAP_FAILED {
                self.capacity.store(count as u32, Ordering::Relaxed);
                self.base.store(at as usize, Ordering::Release);
                return true;
            }
            if count == 1 {
                return false;
            }
            count /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Thing {
        _words: [AtomicU32; 30],
    }

    #[test]
    fn only_exact_addresses_are_objects() {
        static ARENA: Arena<Thing> = Arena::new(1000);
        assert!(ARENA.from_addr(0).is_none());
        assert!(ARENA.from_addr(64).is_none());
        let (index, thing) = ARENA.alloc().unwrap();
        let addr = std::ptr::from_ref(thing) as usize;
        assert!(std::ptr::eq(ARENA.from_addr(addr).unwrap(), thing));
        assert_eq!(ARENA.index_of(thing), index);
        for wrong in [
            addr + 1,
            addr + 8,
            addr - 128,
            addr + 128,
            !0,
            addr | 1 << 63,
        ] {
            assert!(ARENA.from_addr(wrong).is_none(), "{wrong:#x}");
        }
        let (_, second) = ARENA.alloc().unwrap();
        assert_eq!(std::ptr::from_ref(second) as usize, addr + 128);
    }

    #[test]
    fn a_freed_object_comes_back_late_and_a_full_arena_says_so() {
        static ARENA: Arena<Thing> = Arena::new(300);
        let first = ARENA.alloc().unwrap().0;
        ARENA.recycle(first);
        for _ in 1..300 {
            assert_ne!(ARENA.alloc().unwrap().0, first);
        }
        assert_eq!(ARENA.alloc().unwrap().0, first);
        assert!(ARENA.alloc().is_none());
    }
}
