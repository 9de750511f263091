//! Processors for which there is no recovery from faults: the kernel makes every copy.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::Fault;

/// Faults cannot be caught.
pub(super) const RECOVERS_FAULTS: bool = false;

/// Copies byte by byte. A fault ends the process.
pub(super) unsafe fn copy(to: usize, from: usize, length: usize) -> Result<(), Fault> {
    for at in 0..length {
        // SAFETY: the caller's promise; one side is registered memory, which only atomics and assembly access.
        let (to, from) = unsafe {
            (
                AtomicU8::from_ptr((to + at) as *mut u8),
                AtomicU8::from_ptr((from + at) as *mut u8),
            )
        };
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    Ok(())
}

/// Like [`copy`].
pub(super) unsafe fn stream(to: usize, from: usize, length: usize) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { copy(to, from, length) }
}

/// Stores 1, 2, 4 or 8 bytes in one store, after all stores before it; copies any other number. A fault ends the process.
pub(super) unsafe fn store(to: usize, bytes: &[u8]) -> Result<(), Fault> {
    // SAFETY: the caller's promise; `to` is a multiple of the size.
    unsafe {
        match *bytes {
            [a] => AtomicU8::from_ptr(to as *mut u8).store(a, Ordering::Release),
            [a, b] => AtomicU16::from_ptr(to as *mut u16)
                .store(u16::from_ne_bytes([a, b]), Ordering::Release),
            [a, b, c, d] => AtomicU32::from_ptr(to as *mut u32)
                .store(u32::from_ne_bytes([a, b, c, d]), Ordering::Release),
            [a, b, c, d, e, f, g, h] => {
                let word = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
                AtomicU64::from_ptr(to as *mut u64).store(word, Ordering::Release);
            }
            _ => return copy(to, bytes.as_ptr() as usize, bytes.len()),
        }
    }
    Ok(())
}

/// Replaces 8 bytes atomically. A fault ends the process.
pub(super) unsafe fn update(at: usize, mut f: impl FnMut(u64) -> u64) -> Result<u64, Fault> {
    // SAFETY: the caller's promise; a multiple of 8.
    let word = unsafe { AtomicU64::from_ptr(at as *mut u64) };
    let old = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(f(old)));
    Ok(old.unwrap_or_else(|old| old))
}

/// Returns the signal handler: there is none.
pub(super) const fn entry() -> Option<usize> {
    None
}
