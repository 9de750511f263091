//! Memory for what must not fail when the process has no more.
//!
//! Most allocations of the library are small ones whose failure Rust answers by ending the process: a name, an entry of a table, a
//! thread's own data. A shared object of ours therefore has [`Reserve`] for its allocator: when the C library has no more, small
//! pieces come out of a pool that is part of the object and was there when it was loaded. The pool only carries what is under way
//! to its end. What begins something new asks [`has_room`] first and answers `DAT_INSUFFICIENT_RESOURCES`; large pieces, which follow
//! what the consumer asks for, are asked for with `try_reserve` and never come out of the pool.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::hint::{black_box, spin_loop};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes of the pool; no page of it is touched before it is needed.
const POOL: usize = 512 << 10;
/// It is given out in multiples of this.
const BLOCK: usize = 64;
const BLOCKS: usize = POOL / BLOCK;
/// No larger piece comes out of it.
const LARGEST: usize = 16 << 10;

/// What [`has_room`] asks the C library for: pieces that lie in its heap, each below what it would map by itself.
const PIECES: usize = 4;
const PIECE: usize = 60 << 10;
/// What [`has_thread_room`] asks the kernel for: a stack with what belongs to it.
const STACK: usize = 4 << 20;

#[repr(C, align(4096))]
struct Pool(UnsafeCell<[u8; POOL]>);

// SAFETY: a block belongs to whom it was given, as of any allocator; the pool itself never reads or writes one.
unsafe impl Sync for Pool {}

static BYTES: Pool = Pool(UnsafeCell::new([0; POOL]));
/// Which blocks are given out; under `LOCK`.
struct Map(UnsafeCell<[u64; BLOCKS / 64]>);
// SAFETY: only touched under `LOCK`.
unsafe impl Sync for Map {}
static MAP: Map = Map(UnsafeCell::new([0; BLOCKS / 64]));
static LOCK: AtomicBool = AtomicBool::new(false);
static USED: AtomicUsize = AtomicUsize::new(0);

/// The allocator of a shared object of ours: the C library's, with the pool behind it.
#[derive(Debug)]
pub struct Reserve;

/// Returns true if something new may be begun: the C library has a quarter of a megabyte left in its heap, and half of the pool is free.
/// A call that makes something asks this first. Takes some microseconds.
#[must_use]
pub fn has_room() -> bool {
    if !is_fit() {
        return false;
    }
    let mut pieces: [Vec<u8>; PIECES] = Default::default();
    let asked = pieces
        .iter_mut()
        .all(|piece| piece.try_reserve_exact(PIECE).is_ok());
    // Else the compiler might see that nothing is done with them.
    black_box(&mut pieces);
    asked
}

/// Returns true if a thread may be started, which also takes address space for its stack: to be asked before each start, as a thread
/// that finds no memory when it begins ends the process in the C library.
#[must_use]
pub fn has_thread_room() -> bool {
    has_room() && has_space(STACK)
}

/// Returns true if the kernel has address space for so many bytes.
#[must_use]
pub fn has_space(bytes: usize) -> bool {
    // SAFETY: a mapping of its own, which is not touched and is given back.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let at = libc::mmap(null_mut(), bytes, libc::PROT_NONE, flags, -1, 0);
        at != libc::MAP_FAILED && libc::munmap(at, bytes) == 0
    }
}

/// Returns true if at least half of the pool is free: what arrives at a thread of ours, which has no caller to refuse, may be
/// begun. One load.
#[must_use]
pub fn is_fit() -> bool {
    USED.load(Ordering::Relaxed) < BLOCKS / 2
}

const fn blocks(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK)
}

fn base() -> usize {
    BYTES.0.get() as usize
}

fn holds(pointer: *const u8) -> bool {
    (pointer as usize).wrapping_sub(base()) < POOL
}

/// Runs `act` on the map, alone.
fn with_map<R>(act: impl FnOnce(&mut [u64; BLOCKS / 64]) -> R) -> R {
    while LOCK
        .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        spin_loop();
    }
    // SAFETY: the lock is held.
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

/// A piece of the pool, or null.
#[cold]
fn take(layout: Layout) -> *mut u8 {
    if layout.size() > LARGEST || layout.align() > BLOCK || layout.size() == 0 {
        return null_mut();
    }
    let count = blocks(layout.size());
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
    let (first, count) = ((pointer as usize - base()) / BLOCK, blocks(layout.size()));
    with_map(|map| mark(map, first, count, false));
    USED.fetch_sub(count, Ordering::Relaxed);
}

// SAFETY: pieces come from the C library's allocator and go back to it, but for those inside the pool, which are told by their address;
// of the pool no block is given out twice, and blocks are aligned for what they are given to.
unsafe impl GlobalAlloc for Reserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is handed on.
        let piece = unsafe { System.alloc(layout) };
        if piece.is_null() { take(layout) } else { piece }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is handed on.
        let mut piece = unsafe { System.alloc_zeroed(layout) };
        if piece.is_null() {
            piece = take(layout);
            if !piece.is_null() {
                // SAFETY: a piece of that size.
                unsafe { piece.write_bytes(0, layout.size()) };
            }
        }
        piece
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if holds(pointer) {
            give_back(pointer, layout);
        } else {
            // SAFETY: not of the pool, so it came from there.
            unsafe { System.dealloc(pointer, layout) };
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !holds(pointer) {
            // SAFETY: the caller's promise is handed on.
            let piece = unsafe { System.realloc(pointer, layout, size) };
            if !piece.is_null() || size > LARGEST {
                return piece;
            }
        }
        // SAFETY: the caller's promise: the size is good for this alignment, and not 0. The old piece stays if there is no new one.
        unsafe {
            let piece = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !piece.is_null() {
                pointer.copy_to_nonoverlapping(piece, size.min(layout.size()));
                self.dealloc(pointer, layout);
            }
            piece
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_the_pool_are_apart_and_come_back() {
        let sizes = [1, 64, 65, 4000, LARGEST];
        let layouts = sizes.map(|size| Layout::from_size_align(size, 16).unwrap());
        let before = USED.load(Ordering::Relaxed);
        let taken: Vec<_> = (0..20)
            .flat_map(|_| layouts)
            .map(|layout| (take(layout), layout))
            .collect();
        let mut ranges: Vec<_> = taken
            .iter()
            .map(|(piece, layout)| (*piece as usize, *piece as usize + layout.size()))
            .collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|two| two[0].1 <= two[1].0));
        for (piece, layout) in &taken {
            assert!(holds(*piece) && (*piece as usize).is_multiple_of(BLOCK));
            // SAFETY: a piece of that size.
            unsafe { piece.write_bytes(7, layout.size()) };
        }
        assert!(!is_fit() && !has_room(), "more than half is given out");
        let too_large = Layout::from_size_align(LARGEST + 1, 16).unwrap();
        assert!(take(too_large).is_null());
        for (piece, layout) in taken {
            // SAFETY: given out above, once.
            unsafe { Reserve.dealloc(piece, layout) };
        }
        assert_eq!(USED.load(Ordering::Relaxed), before);
        assert!(has_room());
    }

    #[test]
    fn a_piece_that_grows_keeps_its_bytes_and_leaves_the_pool() {
        let layout = Layout::from_size_align(100, 8).unwrap();
        let piece = take(layout);
        // SAFETY: pieces of these sizes, used as an allocator's are.
        unsafe {
            piece.write_bytes(9, 100);
            let grown = Reserve.realloc(piece, layout, 1000);
            assert!(!holds(grown));
            assert!((0..100).all(|n| *grown.add(n) == 9));
            Reserve.dealloc(grown, Layout::from_size_align(1000, 8).unwrap());
        }
    }
}
