//! The function table of a handle.

use dat_abi::types::DatHandle;

/// Returns the function table to which an object's first word points. `None` if the word is 0: no complete object is at that address.
///
/// # Safety
/// A word can be read at `handle`, and is 0 or the address of a `Table` that lives for ever.
#[inline(always)]
#[must_use]
pub unsafe fn table<Table>(handle: DatHandle) -> Option<&'static Table> {
    // SAFETY: the caller's promise.
    unsafe { (handle as *const *const Table).read().as_ref() }
}
