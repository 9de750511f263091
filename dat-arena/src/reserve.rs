//! A memory pool for operations that must not fail when the process is out of memory.
//!
//! Most allocations of the library are small: a name, a table entry, thread-local data. If one of them fails, Rust aborts the process.
//! Therefore each shared object of this project has [`Reserve`] as its allocator: if the C library's allocator fails, small blocks come
//! from a pool that is part of the shared object. The pool is for operations that are already in progress. A call that begins a
//! new operation checks [`has_room`] first and otherwise returns `DAT_INSUFFICIENT_RESOURCES`. Large allocations, whose size depends on
//! the consumer, use `try_reserve` and never come from the pool.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::hint::{black_box, spin_loop};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Size of the pool in bytes. Its pages occupy no memory before they are used.
const POOL: usize = 512 << 10;
/// Unit of allocation in bytes.
const BLOCK: usize = 64;
const BLOCKS: usize = POOL / BLOCK;
/// Maximum size of an allocation from the pool.
const LARGEST: usize = 16 << 10;

/// Number of blocks that [`has_room`] allocates as a test. Each is smaller than what the C library would map separately.
const TEST_BLOCKS: usize = 4;
const TEST_BLOCK: usize = 60 << 10;
/// Address space that [`has_thread_room`] requires: a thread's stack and its other mappings.
const STACK: usize = 4 << 20;

#[repr(C, align(4096))]
struct Pool(UnsafeCell<[u8; POOL]>);

// SAFETY: a block belongs to its owner, as with any allocator; the pool itself never reads or writes one.
unsafe impl Sync for Pool {}

static BYTES: Pool = Pool(UnsafeCell::new([0; POOL]));
/// One bit for each block that is in use; protected by `LOCK`.
struct Map(UnsafeCell<[u64; BLOCKS / 64]>);
// SAFETY: it is only accessed under `LOCK`.
unsafe impl Sync for Map {}
static MAP: Map = Map(UnsafeCell::new([0; BLOCKS / 64]));
static LOCK: AtomicBool = AtomicBool::new(false);
static USED: AtomicUsize = AtomicUsize::new(0);

/// Allocator of the shared objects of this project: the C library's, with the pool behind it.
#[derive(Debug)]
pub struct Reserve;

/// The allocator `A` with the pool behind it. Tests use it with an allocator that fails on demand.
#[derive(Debug)]
pub struct Backed<A>(pub A);

/// Returns true if a new operation may begin: the C library can allocate a quarter of a megabyte, and half of the pool is free. Each
/// call that creates something checks this first. It takes some microseconds.
#[must_use]
pub fn has_room() -> bool {
    if !pool_is_half_free() {
        return false;
    }
    let mut blocks: [Vec<u8>; TEST_BLOCKS] = Default::default();
    let allocated = blocks
        .iter_mut()
        .all(|block| block.try_reserve_exact(TEST_BLOCK).is_ok());
    // Keeps the compiler from removing unused allocations.
    black_box(&mut blocks);
    allocated
}

/// Returns true if a thread may be started, which also needs address space for its stack. Each start checks this first, because the C
/// library aborts the process if a thread finds no memory when it begins.
#[must_use]
pub fn has_thread_room() -> bool {
    has_room() && has_space(STACK)
}

/// Returns true if the process has `bytes` of address space left.
#[must_use]
pub fn has_space(bytes: usize) -> bool {
    if cfg!(miri) {
        // Miri has no protection but READ and WRITE, and fills such memory.
        return true;
    }
    // SAFETY: the mapping is new, is not accessed, and is unmapped again.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let at = libc::mmap(null_mut(), bytes, libc::PROT_NONE, flags, -1, 0);
        at != libc::MAP_FAILED && libc::munmap(at, bytes) == 0
    }
}

/// Returns true if at least half of the pool is free. A thread of the library checks this before it begins an operation for which it
/// has no caller to report an error to, such as an incoming connection request. It is one load.
#[must_use]
pub fn pool_is_half_free() -> bool {
    USED.load(Ordering::Relaxed) < BLOCKS / 2
}

const fn blocks_of(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK)
}

fn base() -> usize {
    BYTES.0.get() as usize
}

fn holds(pointer: *const u8) -> bool {
    (pointer as usize).wrapping_sub(base()) < POOL
}

/// Runs `act` on the map under the lock.
fn with_map<R>(act: impl FnOnce(&mut [u64; BLOCKS / 64]) -> R) -> R {
    while LOCK
        .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        spin_loop();
    }
    // SAFETY: this thread holds the lock.
    let result = act(unsafe { &mut *MAP.0.get() });
    LOCK.store(false, Ordering::Release);
    result
}

fn mark(map: &mut [u64; BLOCKS / 64], first: usize, count: usize, taken: bool) {
    for block in first..first + count {
        if taken {
            map[block / 64] |= 1 << (block % 64);
        } else {
            map[block / 64] &= !(1 << (block % 64));
        }
    }
}

/// Allocates from the pool; returns null if it has no room for the layout.
#[cold]
fn take(layout: Layout) -> *mut u8 {
    if layout.size() > LARGEST || layout.align() > BLOCK || layout.size() == 0 {
        return null_mut();
    }
    let count = blocks_of(layout.size());
    let first = with_map(|map| {
        let mut run = 0;
        let last = (0..BLOCKS).find(|block| {
            let free = map[block / 64] >> (block % 64) & 1 == 0;
            run = if free { run + 1 } else { 0 };
            run == count
        })?;
        let first = last + 1 - count;
        mark(map, first, count, true);
        Some(first)
    });
    match first {
        None => null_mut(),
        Some(first) => {
            USED.fetch_add(count, Ordering::Relaxed);
            (base() + first * BLOCK) as *mut u8
        }
    }
}

#[cold]
fn give_back(pointer: *mut u8, layout: Layout) {
    let (first, count) = (
        (pointer as usize - base()) / BLOCK,
        blocks_of(layout.size()),
    );
    with_map(|map| mark(map, first, count, false));
    USED.fetch_sub(count, Ordering::Relaxed);
}

// SAFETY: see `Backed`.
unsafe impl GlobalAlloc for Reserve {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        unsafe { Backed(System).alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        unsafe { Backed(System).alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { Backed(System).dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        unsafe { Backed(System).realloc(pointer, layout, size) }
    }
}

// SAFETY: a block outside the pool comes from allocator `A` and goes back to it; a block of the pool is recognised by its address. No
// block of the pool is in use twice, and each is aligned for its layout.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Backed<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        let block = unsafe { self.0.alloc(layout) };
        if block.is_null() { take(layout) } else { block }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        let mut block = unsafe { self.0.alloc_zeroed(layout) };
        if block.is_null() {
            block = take(layout);
            if !block.is_null() {
                // SAFETY: the block has that size.
                unsafe { block.write_bytes(0, layout.size()) };
            }
        }
        block
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if holds(pointer) {
            give_back(pointer, layout);
        } else {
            // SAFETY: the block is not of the pool, so it came from `A`.
            unsafe { self.0.dealloc(pointer, layout) };
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !holds(pointer) {
            // SAFETY: the caller's promise is passed on.
            let block = unsafe { self.0.realloc(pointer, layout, size) };
            if !block.is_null() || size > LARGEST {
                return block;
            }
        }
        // SAFETY: the caller promises that the size is valid for this alignment, and not 0. The old block stays if there is no new one.
        unsafe {
            let block = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !block.is_null() {
                pointer.copy_to_nonoverlapping(block, size.min(layout.size()));
                self.dealloc(pointer, layout);
            }
            block
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// The pool is one for the process, and `cargo test` runs the tests of a process at the same time.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn blocks_of_the_pool_do_not_overlap_and_are_reused() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let sizes = [1, 64, 65, 4000, LARGEST];
        let layouts = sizes.map(|size| Layout::from_size_align(size, 16).unwrap());
        let before = USED.load(Ordering::Relaxed);
        let taken: Vec<_> = (0..20)
            .flat_map(|_| layouts)
            .map(|layout| (take(layout), layout))
            .collect();
        let mut ranges: Vec<_> = taken
            .iter()
            .map(|(block, layout)| (*block as usize, *block as usize + layout.size()))
            .collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|two| two[0].1 <= two[1].0));
        for (block, layout) in &taken {
            assert!(holds(*block) && (*block as usize).is_multiple_of(BLOCK));
            // SAFETY: the block has that size.
            unsafe { block.write_bytes(7, layout.size()) };
        }
        assert!(
            !pool_is_half_free() && !has_room(),
            "more than half is in use"
        );
        let too_large = Layout::from_size_align(LARGEST + 1, 16).unwrap();
        assert!(take(too_large).is_null());
        for (block, layout) in taken {
            // SAFETY: allocated above, and freed once.
            unsafe { Reserve.dealloc(block, layout) };
        }
        assert_eq!(USED.load(Ordering::Relaxed), before);
        assert!(has_room());
    }

    #[test]
    fn a_block_that_grows_keeps_its_bytes_and_leaves_the_pool() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let layout = Layout::from_size_align(100, 8).unwrap();
        let block = take(layout);
        // SAFETY: blocks of these sizes, used like those of any allocator.
        unsafe {
            block.write_bytes(9, 100);
            let grown = Reserve.realloc(block, layout, 1000);
            assert!(!holds(grown));
            assert!((0..100).all(|n| *grown.add(n) == 9));
            Reserve.dealloc(grown, Layout::from_size_align(1000, 8).unwrap());
        }
    }
}
