//! Processors for which there is no recovery from faults: the kernel makes every copy.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Fault;

/// Faults cannot be caught.
pub(super) const RECOVERS_FAULTS: bool = false;

/// Copies. A fault ends the process.
pub(super) unsafe fn copy(to: usize, from: usize, length: usize) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, length) };
    Ok(())
}

/// Stores like [`copy`].
pub(super) unsafe fn store(to: usize, bytes: &[u8]) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { copy(to, bytes.as_ptr() as usize, bytes.len()) }
}

/// Replaces 8 bytes atomically. A fault ends the process.
pub(super) unsafe fn update(at: usize, mut f: impl FnMut(u64) -> u64) -> Result<u64, Fault> {
    // SAFETY: the caller's promise; a multiple of 8.
    let word = unsafe { AtomicU64::from_ptr(at as *mut u64) };
    let old = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(f(old)));
    Ok(old.unwrap_or_else(|old| old))
}

/// A recovery frame, of which there are none.
#[derive(Debug)]
pub(super) enum Frame {}

impl Frame {
    pub(super) const fn acquire() -> Option<&'static Self> {
        None
    }

    pub(super) const fn release(&self) {
        match *self {}
    }

    pub(super) unsafe fn run<R>(
        &self,
        _range: Range<usize>,
        _compute: impl FnOnce() -> R,
    ) -> Result<R, Fault> {
        match *self {}
    }
}

/// Returns the signal handler: there is none.
pub(super) const fn entry() -> Option<usize> {
    None
}
