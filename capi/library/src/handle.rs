//! The function table that a handle names.

use dat_abi::types::DatHandle;

/// The function table of an object: its first word. `None` where the word is 0: no object was finished at that place, or none begun.
///
/// # Safety
/// A word can be read at `handle`, and is 0 or the address of a `Table` that lives for ever.
#[inline(always)]
#[must_use]
pub unsafe fn table<Table>(handle: DatHandle) -> Option<&'static Table> {
    // SAFETY: the caller's promise.
    unsafe { (handle as *const *const Table).read().as_ref() }
}
