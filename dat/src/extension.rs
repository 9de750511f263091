//! Calls of the IB extension, whose slot takes its arguments as a C `va_list`.

use dat_abi::va_list::VaList;

use crate::error::Result;
use crate::post_error::{PostCall, PostError};
use crate::sys::{ABSENT, Handle, absent, done, posted};

/// Calls operation `op` (`DAT_IB_OP`) on `handle`; `name` is its macro in `dat_ib_extensions.h`.
///
/// # Safety
/// `arguments` are those of the operation; pointers among them are valid as the operation requires.
///
/// # Errors
/// [`Error::Call`](crate::Error::Call); `DAT_NOT_IMPLEMENTED` from a provider without extensions.
pub(crate) unsafe fn operate(
    handle: Handle,
    op: i32,
    name: &'static str,
    arguments: &[u64],
) -> Result<()> {
    // SAFETY: the caller's promise.
    let code = unsafe { code(handle, op, arguments) };
    done(name, code.ok_or_else(|| absent(name))?)
}

/// Does the same as [`operate`] for a post.
///
/// # Safety
/// As [`operate`].
///
/// # Errors
/// [`PostError`]; `DAT_NOT_IMPLEMENTED` from a provider without extensions.
pub(crate) unsafe fn operate_post(
    handle: Handle,
    op: i32,
    call: PostCall,
    arguments: &[u64],
) -> Result<(), PostError> {
    // SAFETY: the caller's promise.
    match unsafe { code(handle, op, arguments) } {
        Some(code) => posted(call, code),
        None => Err(PostError::of(call, ABSENT)),
    }
}

/// Returns the provider's return code; `None` from a provider without extensions.
///
/// # Safety
/// As [`operate`].
unsafe fn code(handle: Handle, op: i32, arguments: &[u64]) -> Option<u32> {
    let slot = handle.table().handle_extendedop?;
    let _turn = crate::serial::enter(handle.table_address());
    let mut list = VaList::in_memory(arguments);
    // SAFETY: a provider's handle, and the operation's arguments by the caller's promise.
    Some(unsafe { slot(handle.0, op, list.as_parameter()) })
}
