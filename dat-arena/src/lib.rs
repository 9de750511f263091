//! Type-stable memory for DAT objects.
//!
//! A DAT handle is a raw pointer that a C program may use after it was freed, or make up. So objects of
//! one kind live in one reserved range of addresses that is never unmapped: an address is checked with
//! one addition, one rotation and one comparison ([`Arena::from_addr`]), and a stale reference still
//! points at an object of the same type, whose own state says that it is dead. Objects are built once
//! with [`Default`] and reused through their interior mutability; a freed one goes to the end of a long
//! queue, so that a stale handle meets a stranger late: [`Arena::LATE`] says when.
//!
//! Every method may be called from any thread.
//!
//! The crate also has the other parts of dat-core that need unsafe code, which dat-core forbids: a lock ([`BriefMutex`]) and a memory
//! reserve for a process that runs out of memory ([`reserve`]).

mod cycle;
mod lock;
#[cfg(all(loom, test))]
mod models;
pub mod reserve;
mod sync;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem::size_of;

use crate::sync::{AtomicU32, AtomicUsize, Mutex, Ordering};

pub use cycle::Cycle;
pub use lock::{BriefGuard, BriefMutex, RawBrief};

/// Freed objects of a kind are kept from use again for as long as they take no more memory than this.
const LATE_BYTES: usize = 16 << 20;

/// One kind's objects: contiguous, never unmapped, recycled late.
///
/// `O` should begin with the word a C program reads through its handle, and must not be larger than
/// 64 KiB. Meant to be a `static`: references it hands out are `'static`.
///
/// `WHOLE`, a power of two, is for the kind that is looked up most ([`Arena::place`]): its range has room for as many
/// objects, or there is none. 0: as many as wanted, or fewer where address space is scarce.
pub struct Arena<O, const WHOLE: u32 = 0> {
    /// What makes an address an offset when it is added: the first object's address, negated. 0 until the range is
    /// reserved.
    bias: AtomicUsize,
    /// Objects built so far: indices below this are valid `O`s for ever.
    built: AtomicU32,
    /// Objects the reserved range can hold.
    capacity: AtomicU32,
    wanted: u32,
    free: Mutex<VecDeque<u32>>,
    objects: PhantomData<fn() -> O>,
}

/// So many bytes become writable at a time: a kernel that promises no more memory than it has counts those only.
const GROWTH: usize = 128 << 10;

/// Address space that a range leaves to the heap, to threads and to other ranges, where a limit (`ulimit -v`) is in force. A thread takes
/// 8 MiB for its stack.
const LEFT: usize = 64 << 20;

const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
/// What a range is mapped with, and how. Miri has no mprotect(2), and no promise of memory either.
const RESERVED: libc::c_int = if cfg!(miri) {
    READ_WRITE
} else {
    libc::PROT_READ
};
const UNPROMISED: libc::c_int = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };

impl<O: Default + Sync + 'static, const WHOLE: u32> Arena<O, WHOLE> {
    /// Distance between two objects, a power of two so that an address is checked without a division.
    pub const STRIDE: usize = {
        let n = size_of::<O>();
        assert!(n <= 1 << 16, "an object is at most 64 KiB");
        if n < 64 { 64 } else { n.next_power_of_two() }
    };
    /// A freed object is not used again while fewer than this many are free and new ones can still be made: so the address of one is that
    /// of a stranger at the earliest when as many others were made and freed, less one. The range of addresses has room for more; what
    /// limits it is memory, as each of them has been written to.
    pub const LATE: usize = {
        let many = LATE_BYTES / Self::STRIDE;
        if many < 256 { 256 } else { many }
    };
    const SHIFT: u32 = Self::STRIDE.trailing_zeros();
    /// Objects in [`GROWTH`] bytes.
    const STEP: u32 = (GROWTH >> Self::SHIFT) as u32;
    /// The bits that the offset of a place may have.
    const PLACES: usize = {
        assert!(WHOLE == 0 || WHOLE.is_power_of_two());
        (WHOLE.saturating_sub(1) as usize) << Self::SHIFT
    };

    /// An empty arena for at most `wanted` objects (`WHOLE`, if that is not 0); reserves nothing until the first
    /// [`Arena::alloc`] or [`Arena::reserve`].
    #[must_use]
    pub const fn new(wanted: u32) -> Self {
        assert!(WHOLE == 0 || WHOLE == wanted);
        Self {
            bias: AtomicUsize::new(0),
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
        if free.len() >= Self::LATE || (full && !free.is_empty()) {
            let index = free.pop_front()?;
            return self.get(index).map(|o| (index, o));
        }
        if full {
            return None;
        }
        if !self.reserve_locked() || !self.grow(built) {
            return None;
        }
        // Room to give back every one of them: `recycle` cannot fail.
        let places = (built as usize + 1).saturating_sub(free.len());
        free.try_reserve(places).ok()?;
        let at = self.base() + ((built as usize) << Self::SHIFT);
        // SAFETY: `at` is in a private mapping of `capacity * STRIDE` bytes, page aligned and writable up to here, as
        // `built < capacity`; nobody else writes here because `free` is locked, and nobody reads more than
        // `place` allows until `built` is published below.
        unsafe { (at as *mut O).write(O::default()) };
        self.built.store(built + 1, Ordering::Release);
        self.get(built).map(|o| (built, o))
    }

    fn base(&self) -> usize {
        self.bias.load(Ordering::Relaxed).wrapping_neg()
    }

    /// The object at `index`, dead or alive; `None` if it was never made.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&'static O> {
        if index >= self.built.load(Ordering::Acquire) {
            return None;
        }
        let at = self.base() + ((index as usize) << Self::SHIFT);
        // SAFETY: indices below `built` hold an `O` that is never dropped, moved or unmapped, and none is at 0.
        unsafe {
            std::hint::assert_unchecked(at != 0);
            Some(&*(at as *const O))
        }
    }

    /// Whether an object, dead or alive, is at exactly `addr`.
    #[inline(always)]
    pub fn holds(&self, addr: usize) -> bool {
        // First how many there are: if there is one, the bias was set before, and is seen. The other way round the bias of an
        // arena without a range could meet the number of one with a range, and any small number would be held.
        let built = self.built.load(Ordering::Acquire) as usize;
        #[cfg(test)]
        tests::between_loads();
        let offset = addr.wrapping_add(self.bias.load(Ordering::Relaxed));
        // The rotation moves the low bits of a misaligned address to the top: one comparison checks
        // range and alignment.
        offset.rotate_right(Self::SHIFT) < built
    }

    /// Where an object is or may come to be: in one addition and one test, without asking how many there are. What is
    /// there can be read, and is an `O` or zeros. `None` for any other address.
    ///
    /// # Safety
    /// `WHOLE` is not 0, and [`Arena::reserve`] has succeeded.
    #[inline(always)]
    pub unsafe fn place(&self, addr: usize) -> Option<*const O> {
        const { assert!(WHOLE != 0) };
        let offset = addr.wrapping_add(self.bias.load(Ordering::Relaxed));
        (offset & !Self::PLACES == 0).then_some(addr as *const O)
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
        let offset = std::ptr::from_ref(object) as usize - self.base();
        (offset >> Self::SHIFT) as u32
    }

    /// Hands the object at `index` back for a later [`Arena::alloc`]. The caller has made it dead and
    /// gives each index back once.
    pub fn recycle(&self, index: u32) {
        self.free.lock().push_back(index);
    }

    /// First address and length in bytes of the reserved range; (0, 0) before the first object.
    pub fn range(&self) -> (usize, usize) {
        // The capacity is set before the bias.
        let base = self.bias.load(Ordering::Acquire).wrapping_neg();
        if base == 0 {
            return (0, 0);
        }
        let bytes = (self.capacity.load(Ordering::Relaxed) as usize) << Self::SHIFT;
        (base, bytes)
    }

    /// Calls `f` for every object ever made, dead or alive.
    pub fn for_each(&self, mut f: impl FnMut(u32, &'static O)) {
        for index in 0..self.built.load(Ordering::Acquire) {
            if let Some(object) = self.get(index) {
                f(index, object);
            }
        }
    }

    /// Reserves the range now. False: there is not as much address space (see `WHOLE`).
    pub fn reserve(&self) -> bool {
        let _free = self.free.lock();
        self.reserve_locked()
    }

    /// Reserves address space (not memory) for `wanted` objects, or half, or a quarter ... of them where a limit on
    /// address space is in force: as much again and [`LEFT`] bytes remain. `free` is locked.
    fn reserve_locked(&self) -> bool {
        if self.bias.load(Ordering::Relaxed) != 0 {
            return true;
        }
        let mut count = self.wanted.max(1) as usize;
        loop {
            let bytes = (count << Self::SHIFT).next_multiple_of(GROWTH);
            let rest = LEFT + if WHOLE == 0 { bytes } else { 0 };
            // SAFETY: an anonymous private mapping at an address the kernel chooses touches nothing. What is behind the range is given
            // back before anything knows its address.
            let at = unsafe {
                let at = libc::mmap(
                    std::ptr::null_mut(),
                    bytes + if cfg!(miri) { 0 } else { rest },
                    RESERVED,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | UNPROMISED,
                    -1,
                    0,
                );
                if at != libc::MAP_FAILED && !cfg!(miri) {
                    libc::munmap(at.byte_add(bytes), rest);
                }
                at
            };
            if at != libc::MAP_FAILED {
                self.capacity.store(count as u32, Ordering::Relaxed);
                self.bias
                    .store((at as usize).wrapping_neg(), Ordering::Release);
                return true;
            }
            if count == 1 || WHOLE != 0 {
                return false;
            }
            count /= 2;
        }
    }

    /// Makes the place of object `next` writable, with those behind it. `free` is locked.
    fn grow(&self, next: u32) -> bool {
        let step = Self::STEP.max(1);
        if RESERVED == READ_WRITE || !next.is_multiple_of(step) {
            return true;
        }
        let left = self.capacity.load(Ordering::Relaxed) - next;
        let at = self.base() + ((next as usize) << Self::SHIFT);
        // SAFETY: of the range that `reserve_locked` has mapped, from a page boundary on; nobody uses these places yet.
        let code = unsafe {
            libc::mprotect(
                at as *mut libc::c_void,
                (left.min(step) as usize) << Self::SHIFT,
                READ_WRITE,
            )
        };
        code == 0
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// What another thread does while this one is between the two loads of [`Arena::holds`].
        static MEANWHILE: Cell<Option<fn()>> = const { Cell::new(None) };
    }

    pub(super) fn between_loads() {
        if let Some(meanwhile) = MEANWHILE.take() {
            meanwhile();
        }
    }

    #[test]
    fn an_arena_holds_no_small_number_while_its_first_object_is_made() {
        static ARENA: Arena<Thing> = Arena::new(1000);
        fn first_object() {
            ARENA.alloc().unwrap();
        }
        MEANWHILE.set(Some(first_object));
        assert!(ARENA.from_addr(0).is_none());
        assert_eq!(ARENA.built.load(Ordering::Relaxed), 1);
        assert!(ARENA.from_addr(0).is_none());
    }

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
    fn a_place_can_be_read_before_an_object_is_there() {
        static ARENA: Arena<Thing, 4096> = Arena::new(4096);
        assert!(ARENA.reserve() && ARENA.reserve());
        let (base, bytes) = ARENA.range();
        assert_eq!(bytes, 4096 * 128);
        // SAFETY: reserved, and not 0.
        let place = |addr| unsafe { ARENA.place(addr) };
        for wrong in [0, 1, base + 64, base - 128, base + bytes, base + 1, !0] {
            assert!(place(wrong).is_none(), "{wrong:#x}");
        }
        let last = place(base + bytes - 128).unwrap();
        // SAFETY: a place of the arena; zeros are atomic words too.
        let word = unsafe { (*last)._words[0].load(Ordering::Relaxed) };
        assert_eq!(word, 0);
        for _ in 0..4096 {
            let (_, thing) = ARENA.alloc().unwrap();
            thing._words[29].store(1, Ordering::Relaxed);
            assert!(place(std::ptr::from_ref(thing) as usize).is_some());
        }
        assert!(ARENA.alloc().is_none());
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
