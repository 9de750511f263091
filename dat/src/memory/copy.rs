//! Copies in and out of shared memory: bytes that the adapter, a peer or another thread may access at the same time.
//!
//! **Why they are sound in Rust's terms.** A plain access that races with another one is undefined behaviour, whatever the bytes.
//! On x86-64 the shared side is accessed by assembly only, as in the user engine (`memory/guard`). The compiler does not look
//! into assembly; it may do what the processor allows, and every processor gives each byte one of the values that were stored there.
//! So its effect is that of relaxed atomic accesses of each byte, which never race. On other processors, under miri, and with
//! `--cfg udapl_bytewise` (for ThreadSanitizer, which does not see assembly either) the copies are such atomic accesses.
//!
//! A [`word`] is the exception: the program accesses it by Rust's atomics. Rust has no rule for a race of atomic accesses of different sizes.
//! So on x86-64 single bytes are loaded by assembly, too. Elsewhere a copy that overlaps a word which another thread changes relies on
//! the processor, which gives each byte a value that was stored there.

use std::sync::atomic::AtomicU64;

#[cfg(all(target_arch = "x86_64", not(miri), not(udapl_bytewise)))]
#[path = "copy_x86_64.rs"]
mod machine;
#[cfg(not(all(target_arch = "x86_64", not(miri), not(udapl_bytewise))))]
#[path = "copy_bytewise.rs"]
mod machine;

/// Copies `into.len()` bytes out of shared memory.
///
/// # Safety
/// `from` is valid for reads of that length, and nothing but this module, [`word`] and adapters accesses it.
#[inline]
pub(crate) unsafe fn read(from: *const u8, into: &mut [u8]) {
    // SAFETY: the caller's promise; the destination is exclusive.
    unsafe { machine::read(from, into.as_mut_ptr(), into.len()) }
}

/// Copies `bytes` into shared memory.
///
/// # Safety
/// `to` is valid for writes of that length, and nothing but this module, [`word`] and adapters accesses it.
#[inline]
pub(crate) unsafe fn write(to: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller's promise; the source is private.
    unsafe { machine::write(to, bytes.as_ptr(), bytes.len()) }
}

/// Returns the aligned word at `at`. The processor makes its accesses whole; copies may overlap it and see or store single bytes.
///
/// # Safety
/// `at` is valid for reads and writes of 8 bytes for `'a`, is a multiple of 8, and only adapters, this function's words and this
/// module's copies access it.
#[inline]
pub(crate) unsafe fn word<'a>(at: *mut u8) -> &'a AtomicU64 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU64::from_ptr(at.cast()) }
}

/// Loads one byte with acquire ordering.
///
/// # Safety
/// As [`read`], for one byte.
#[inline]
pub(crate) unsafe fn load(at: *mut u8) -> u8 {
    // SAFETY: the caller's promise.
    unsafe { machine::load(at) }
}
