//! Copies by relaxed atomic accesses of each byte.

use std::sync::atomic::{AtomicU8, Ordering};

/// Copies out of shared memory.
///
/// # Safety
/// Both ranges are valid; `to` is exclusive.
pub(super) unsafe fn read(from: *const u8, to: *mut u8, length: usize) {
    for at in 0..length {
        // SAFETY: the caller's promise.
        unsafe {
            let byte = AtomicU8::from_ptr(from.add(at).cast_mut()).load(Ordering::Relaxed);
            to.add(at).write(byte);
        }
    }
}

/// Copies into shared memory.
///
/// # Safety
/// Both ranges are valid; `from` is not written meanwhile.
pub(super) unsafe fn write(to: *mut u8, from: *const u8, length: usize) {
    for at in 0..length {
        // SAFETY: the caller's promise.
        unsafe {
            let byte = from.add(at).read();
            AtomicU8::from_ptr(to.add(at)).store(byte, Ordering::Relaxed);
        }
    }
}

/// Loads one byte with acquire ordering.
///
/// # Safety
/// `from` is valid.
pub(super) unsafe fn load(from: *const u8) -> u8 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU8::from_ptr(from.cast_mut()) }.load(Ordering::Acquire)
}
