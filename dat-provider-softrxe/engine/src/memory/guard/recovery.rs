//! Copies that recover from faults: the instructions that may fault are in one place, and a thread that the signal handler finds
//! there continues behind it. `machine` has the instructions and the registers of the processor.

use super::Fault;
use super::machine;

/// Faults can be caught.
pub(super) const RECOVERS_FAULTS: bool = true;

unsafe extern "C" {
    fn dat_softrxe_guard_copy(to: usize, from: usize, bytes: usize) -> u32;
    #[cfg(target_arch = "x86_64")]
    fn dat_softrxe_guard_stream(to: usize, from: usize, bytes: usize) -> u32;
    fn dat_softrxe_guard_store8(to: usize, value: u64) -> u32;
    fn dat_softrxe_guard_store4(to: usize, value: u32) -> u32;
    fn dat_softrxe_guard_store2(to: usize, value: u16) -> u32;
    fn dat_softrxe_guard_store1(to: usize, value: u8) -> u32;
    fn dat_softrxe_guard_exchange(at: usize, expected: *mut u64, new: u64) -> u32;
    fn dat_softrxe_guard_begin();
    fn dat_softrxe_guard_end();
    fn dat_softrxe_guard_entry();
}

/// Converts the return value of the functions above.
const fn result(code: u32) -> Result<(), Fault> {
    if code == 0 { Ok(()) } else { Err(Fault) }
}

/// Copies. Source or destination may fault.
///
/// # Safety
/// Source and destination are memory of this crate of that length, or registered memory.
pub(super) unsafe fn copy(to: usize, from: usize, length: usize) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    result(unsafe { dat_softrxe_guard_copy(to, from, length) })
}

/// Alignment of the destination of [`stream`], and its minimum length.
#[cfg(target_arch = "x86_64")]
const STREAMED: usize = 16;

/// Like [`copy`], past the caches where the processor has instructions for that.
///
/// # Safety
/// As [`copy`].
pub(super) unsafe fn stream(to: usize, from: usize, length: usize) -> Result<(), Fault> {
    #[cfg(target_arch = "x86_64")]
    if to.is_multiple_of(STREAMED) && length >= STREAMED {
        // SAFETY: the caller's promise.
        return result(unsafe { dat_softrxe_guard_stream(to, from, length) });
    }
    // SAFETY: the caller's promise.
    unsafe { copy(to, from, length) }
}

/// Stores 1, 2, 4 or 8 bytes in one store; copies any other number.
///
/// # Safety
/// `to` is registered memory.
pub(super) unsafe fn store(to: usize, bytes: &[u8]) -> Result<(), Fault> {
    // SAFETY: the caller's promise. Each store becomes visible after those before it.
    result(unsafe {
        match *bytes {
            [a] => dat_softrxe_guard_store1(to, a),
            [a, b] => dat_softrxe_guard_store2(to, u16::from_ne_bytes([a, b])),
            [a, b, c, d] => dat_softrxe_guard_store4(to, u32::from_ne_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => {
                dat_softrxe_guard_store8(to, u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
            }
            _ => dat_softrxe_guard_copy(to, bytes.as_ptr() as usize, bytes.len()),
        }
    })
}

/// Replaces 8 aligned bytes atomically; returns the old value.
///
/// # Safety
/// `at` is registered memory, and a multiple of 8.
pub(super) unsafe fn update(at: usize, mut f: impl FnMut(u64) -> u64) -> Result<u64, Fault> {
    let mut expected = 0;
    loop {
        let mut seen = expected;
        // SAFETY: the caller's promise; `seen` is a local variable.
        result(unsafe { dat_softrxe_guard_exchange(at, &raw mut seen, f(expected)) })?;
        if seen == expected {
            return Ok(seen);
        }
        expected = seen;
    }
}

/// Returns the signal handler.
pub(super) fn entry() -> Option<usize> {
    Some(dat_softrxe_guard_entry as *const () as usize)
}

/// Makes the interrupted thread continue where it recovers, if it was at an instruction that may fault. Returns whether it was.
///
/// # Safety
/// `context` is the argument of a signal handler, which returns afterwards.
pub(super) unsafe fn recover(context: *mut libc::ucontext_t) -> bool {
    // SAFETY: the caller's promise.
    let context = unsafe { &mut *context };
    let begin = dat_softrxe_guard_begin as *const () as usize;
    let end = dat_softrxe_guard_end as *const () as usize;
    let is_guarded = (begin..end).contains(&machine::instruction(context));
    if is_guarded {
        machine::fail(context);
    }
    is_guarded
}
