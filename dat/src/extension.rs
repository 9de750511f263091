//! Calls of the IB extension, whose slot takes its arguments as a C `va_list`.

use std::ffi::c_void;

use dat_abi::va_list::VaList;

use crate::error::{Error, Queue, Result};
use crate::sys::{Handle, absent, done};

/// Calls operation `op` (`DAT_IB_OP`) on `handle`; `name` is its macro in `dat_ib_extensions.h`.
///
/// # Safety
/// `arguments` are those of the operation; pointers among them are valid as the operation requires.
///
/// # Errors
/// [`Error::Call`]; `DAT_NOT_IMPLEMENTED` from a provider without extensions.
pub(crate) unsafe fn operate(
    handle: Handle,
    op: i32,
    name: &'static str,
    arguments: &[u64],
) -> Result<()> {
    let slot = handle.table().handle_extendedop;
    let slot = slot.ok_or_else(|| absent(name))?;
    let _turn = crate::serial::enter(handle.table_address());
    let mut list = VaList::in_memory(arguments);
    let list = (&raw mut list).cast::<c_void>();
    // SAFETY: a provider's handle, and the operation's arguments by the caller's promise.
    done(name, unsafe { slot(handle.0, op, list) })
}

/// Converts the error of a post of the extension.
pub(crate) fn full(error: Error, call: &'static str) -> Error {
    match error {
        Error::Resources { code, .. } => Error::of_post(call, Queue::Requests, code),
        other => other,
    }
}
