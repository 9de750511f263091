//! Type-stable memory for DAT objects.
//!
//! A DAT handle is a raw pointer. A C program may use it after the object was freed, or invent one. Therefore the objects of one
//! kind live in one reserved range of addresses that is never unmapped. An address is checked with one addition, one rotation and
//! one comparison ([`Arena::from_addr`]). A stale reference still points at an object of the same type, whose own state says that
//! it is dead. Objects are built once with [`Default`] and reused through their interior mutability. A freed object goes to the
//! end of a long queue, so that a stale handle refers to a new object only after many others were created
//! ([`Arena::REUSE_AFTER`]).
//!
//! Every method may be called from any thread. The crate imports no other crate of this project. Start to read at [`Arena`].
//!
//! The crate also has the other parts of dat-core that need unsafe code, which dat-core forbids: locks ([`BriefMutex`], [`Mutex`]) and a memory
//! reserve for a process that runs out of memory ([`reserve`]).

mod barrier;
mod biased;
mod cycle;
mod lock;
#[cfg(all(loom, test))]
mod models;
mod mutex;
pub mod reserve;
mod sync;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem::size_of;

use crate::sync::{AtomicU32, AtomicUsize, Ordering};

pub use barrier::current_thread;
pub use biased::{BiasedGuard, BiasedMutex, permit_owners};
pub use cycle::Cycle;
pub use lock::{BriefGuard, BriefMutex, RawBrief};
pub use mutex::{Mutex, MutexGuard, RawMutex};

/// Memory that freed objects of a kind may occupy before the first of them is reused.
const REUSE_BYTES: usize = 16 << 20;

/// Memory for the objects of one kind: contiguous, never unmapped, recycled late.
///
/// `O` should begin with the word that a C program reads through its handle, and must not be larger than 64 KiB. An arena is meant
/// to be a `static`: the references that it returns are `'static`.
///
/// `WHOLE` is for the kind that is looked up most often ([`Arena::place`]): it is a power of two, and the arena reserves a range for
/// exactly this many objects, or fails. With 0 the range has room for the requested number of objects, or for fewer if address
/// space is scarce.
pub struct Arena<O, const WHOLE: u32 = 0> {
    /// The negated address of the first object: added to an address it gives the offset in the range. 0 until the range is reserved.
    negated_base: AtomicUsize,
    /// Number of objects built so far. An index below it refers to a valid `O` for ever.
    built: AtomicU32,
    /// Number of objects that fit into the reserved range.
    capacity: AtomicU32,
    wanted: u32,
    free: sync::Mutex<VecDeque<u32>>,
    objects: PhantomData<fn() -> O>,
}

/// Number of bytes that become writable at a time. A kernel that does not overcommit memory counts only writable bytes.
const GROWTH: usize = 128 << 10;

/// Address space that a range leaves to the heap, to threads and to other ranges under a limit (`ulimit -v`). A thread takes 8 MiB for
/// its stack.
const SPARE_ADDRESS_SPACE: usize = 64 << 20;

const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
/// Protection of a range when it is mapped. Miri has neither mprotect(2) nor `MAP_NORESERVE`.
const RESERVED: libc::c_int = if cfg!(miri) {
    READ_WRITE
} else {
    libc::PROT_READ
};
const NORESERVE: libc::c_int = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };

impl<O: Default + Sync + 'static, const WHOLE: u32> Arena<O, WHOLE> {
    /// Distance between two objects in bytes. It is a power of two, so that an address is checked without a division.
    pub const STRIDE: usize = {
        let n = size_of::<O>();
        assert!(n <= 1 << 16, "an object is at most 64 KiB");
        if n < 64 { 64 } else { n.next_power_of_two() }
    };
    /// A freed object is reused only once this many are free, or the range is full. As long as new objects can be built, the address of a
    /// freed object belongs to a new object at the earliest when this number, less one, of other objects were created and freed. The range
    /// of addresses has room for more; the limit is memory, because each freed object has been written to.
    pub const REUSE_AFTER: usize = {
        let many = REUSE_BYTES / Self::STRIDE;
        if many < 256 { 256 } else { many }
    };
    const SHIFT: u32 = Self::STRIDE.trailing_zeros();
    /// Number of objects in [`GROWTH`] bytes.
    const STEP: u32 = (GROWTH >> Self::SHIFT) as u32;
    /// Mask of the bits that the offset of an object may have.
    const PLACES: usize = {
        assert!(WHOLE == 0 || WHOLE.is_power_of_two());
        (WHOLE.saturating_sub(1) as usize) << Self::SHIFT
    };

    /// Creates an empty arena for at most `wanted` objects (`WHOLE`, if that is not 0). It reserves nothing until the first
    /// [`Arena::alloc`] or [`Arena::reserve`].
    #[must_use]
    pub const fn new(wanted: u32) -> Self {
        assert!(WHOLE == 0 || WHOLE == wanted);
        Self {
            negated_base: AtomicUsize::new(0),
            built: AtomicU32::new(0),
            capacity: AtomicU32::new(0),
            wanted,
            free: sync::Mutex::new(VecDeque::new()),
            objects: PhantomData,
        }
    }

    /// Returns a free object and its index: a recycled one, or a new `O::default()`. Returns `None` if the range is full or the
    /// process has not enough memory or address space.
    pub fn alloc(&'static self) -> Option<(u32, &'static O)> {
        let mut free = self.free.lock();
        let built = self.built.load(Ordering::Relaxed);
        let full = built != 0 && built >= self.capacity.load(Ordering::Relaxed);
        if free.len() >= Self::REUSE_AFTER || (full && !free.is_empty()) {
            let index = free.pop_front()?;
            return self.get(index).map(|o| (index, o));
        }
        if full {
            return None;
        }
        if !self.reserve_locked() || !self.grow(built) {
            return None;
        }
        // Room for every index, so that `recycle` cannot fail.
        let places = (built as usize + 1).saturating_sub(free.len());
        free.try_reserve(places).ok()?;
        let at = self.base() + ((built as usize) << Self::SHIFT);
        // SAFETY: `at` is in a private mapping of `capacity * STRIDE` bytes, page aligned and writable up to here, as
        // `built < capacity`. No other thread writes here because `free` is locked, and none reads more than `place` allows
        // until `built` is published below.
        unsafe { (at as *mut O).write(O::default()) };
        self.built.store(built + 1, Ordering::Release);
        self.get(built).map(|o| (built, o))
    }

    fn base(&self) -> usize {
        self.negated_base.load(Ordering::Relaxed).wrapping_neg()
    }

    /// Returns the object at `index`, dead or alive, or `None` if it was never built.
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

    /// Returns true if an object, dead or alive, begins at `addr`.
    #[inline(always)]
    pub fn holds(&self, addr: usize) -> bool {
        // Load `built` first: if it is not 0, `negated_base` was set before and is visible. In the other order `negated_base` of an arena
        // without a range could be combined with the count of an arena with one, and any small number would be accepted.
        let built = self.built.load(Ordering::Acquire) as usize;
        #[cfg(test)]
        tests::between_loads();
        let offset = addr.wrapping_add(self.negated_base.load(Ordering::Relaxed));
        // The rotation moves the low bits of a misaligned address to the top, so one comparison checks range and alignment.
        offset.rotate_right(Self::SHIFT) < built
    }

    /// Returns `addr` as a pointer if it is the address of a slot for an object, built or not; `None` for any other address. It takes
    /// one addition and one test, without a load of the number of objects. The slot is readable, and has an `O` or zeros.
    ///
    /// # Safety
    /// `WHOLE` is not 0, and [`Arena::reserve`] has succeeded.
    #[inline(always)]
    pub unsafe fn place(&self, addr: usize) -> Option<*const O> {
        const { assert!(WHOLE != 0) };
        let offset = addr.wrapping_add(self.negated_base.load(Ordering::Relaxed));
        (offset & !Self::PLACES == 0).then_some(addr as *const O)
    }

    /// Returns the object at `addr`.
    ///
    /// # Safety
    /// The arena [holds](Arena::holds) an object at `addr`.
    #[inline(always)]
    pub unsafe fn at(&self, addr: usize) -> &'static O {
        // SAFETY: `addr` is `base + index * STRIDE` with `index < built`, see `get`.
        unsafe { &*(addr as *const O) }
    }

    /// Returns the object that begins at `addr`, dead or alive, or `None` for any other number.
    #[inline(always)]
    pub fn from_addr(&self, addr: usize) -> Option<&'static O> {
        // SAFETY: `holds` is checked before the call of `at`.
        self.holds(addr).then(|| unsafe { self.at(addr) })
    }

    /// Returns the index of an object of this arena.
    #[inline]
    pub fn index_of(&self, object: &'static O) -> u32 {
        let offset = std::ptr::from_ref(object) as usize - self.base();
        (offset >> Self::SHIFT) as u32
    }

    /// Returns the object at `index` to the arena for a later [`Arena::alloc`]. The caller has marked it as dead, and returns it
    /// once.
    pub fn recycle(&self, index: u32) {
        self.free.lock().push_back(index);
    }

    /// Returns the first address and the length in bytes of the reserved range; (0, 0) before the first object.
    pub fn range(&self) -> (usize, usize) {
        // The capacity is set before `negated_base`.
        let base = self.negated_base.load(Ordering::Acquire).wrapping_neg();
        if base == 0 {
            return (0, 0);
        }
        let bytes = (self.capacity.load(Ordering::Relaxed) as usize) << Self::SHIFT;
        (base, bytes)
    }

    /// Calls `f` for every object ever built, dead or alive.
    pub fn for_each(&self, mut f: impl FnMut(u32, &'static O)) {
        for index in 0..self.built.load(Ordering::Acquire) {
            if let Some(object) = self.get(index) {
                f(index, object);
            }
        }
    }

    /// Reserves the range now. Returns false if the process has not enough address space: for the whole range if `WHOLE` is not
    /// 0, else for one object.
    pub fn reserve(&self) -> bool {
        let _free = self.free.lock();
        self.reserve_locked()
    }

    /// Reserves address space (not memory) for `wanted` objects. Under a limit on address space it reserves room for a half, a
    /// quarter ... of them, such that the same amount and [`SPARE_ADDRESS_SPACE`] bytes remain. The caller holds the lock of `free`.
    fn reserve_locked(&self) -> bool {
        if self.negated_base.load(Ordering::Relaxed) != 0 {
            return true;
        }
        let mut count = self.wanted.max(1) as usize;
        loop {
            let bytes = (count << Self::SHIFT).next_multiple_of(GROWTH);
            let rest = SPARE_ADDRESS_SPACE + if WHOLE == 0 { bytes } else { 0 };
            // SAFETY: an anonymous private mapping at an address that the kernel chooses affects no other memory. The part behind
            // the range is unmapped before its address is stored anywhere.
            let at = unsafe {
                let at = libc::mmap(
                    std::ptr::null_mut(),
                    bytes + if cfg!(miri) { 0 } else { rest },
                    RESERVED,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | NORESERVE,
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
                self.negated_base
                    .store((at as usize).wrapping_neg(), Ordering::Release);
                return true;
            }
            if count == 1 || WHOLE != 0 {
                return false;
            }
            count /= 2;
        }
    }

    /// Makes the slot of object `next` writable, and those behind it. The caller holds the lock of `free`.
    fn grow(&self, next: u32) -> bool {
        let step = Self::STEP.max(1);
        if RESERVED == READ_WRITE || !next.is_multiple_of(step) {
            return true;
        }
        let left = self.capacity.load(Ordering::Relaxed) - next;
        let at = self.base() + ((next as usize) << Self::SHIFT);
        // SAFETY: a part of the range that `reserve_locked` has mapped, from a page boundary on; these slots are not in use yet.
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
        /// Function that runs between the two loads of [`Arena::holds`], in place of another thread.
        static MEANWHILE: Cell<Option<fn()>> = const { Cell::new(None) };
    }

    pub(super) fn between_loads() {
        if let Some(meanwhile) = MEANWHILE.take() {
            meanwhile();
        }
    }

    #[test]
    fn an_arena_holds_no_small_number_while_its_first_object_is_built() {
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
    fn a_slot_can_be_read_before_its_object_is_built() {
        static ARENA: Arena<Thing, 4096> = Arena::new(4096);
        assert!(ARENA.reserve() && ARENA.reserve());
        let (base, bytes) = ARENA.range();
        assert_eq!(bytes, 4096 * 128);
        // SAFETY: the range is reserved, and WHOLE is not 0.
        let place = |addr| unsafe { ARENA.place(addr) };
        for wrong in [0, 1, base + 64, base - 128, base + bytes, base + 1, !0] {
            assert!(place(wrong).is_none(), "{wrong:#x}");
        }
        let last = place(base + bytes - 128).unwrap();
        // SAFETY: a slot of the arena; zeros are valid atomics.
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
    fn a_freed_object_is_reused_late_and_a_full_arena_refuses() {
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
