//! The slot of the IB extension, whose arguments come as a C `va_list`: the crate's other edge.

use std::ffi::c_void;

use dat_core::error::{Error as Code, Kind};

use crate::error::{Error, Result};
use crate::sys::{Handle, absent, done};

/// A `va_list` of the System V ABI for x86-64 whose registers are used up, so that all arguments are in memory.
#[repr(C)]
struct VaList {
    gp_offset: u32,
    fp_offset: u32,
    overflow: *const u64,
    registers: *const u8,
}

const REGISTERS_USED_UP: (u32, u32) = (48, 304);

/// Calls operation `op` (`DAT_IB_OP`) on `handle`; `name` is its macro in `dat_ib_extensions.h`.
///
/// # Safety
/// `arguments` are those of the operation; pointers among them are valid as it needs.
///
/// # Errors
/// [`Error::Call`]; `DAT_NOT_IMPLEMENTED` from a provider without extensions, and on other processors.
pub(crate) unsafe fn operate(
    handle: Handle,
    op: i32,
    name: &'static str,
    arguments: &[u64],
) -> Result<()> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err(Error::Call {
            call: name,
            code: Code::of(Kind::NotImplemented),
        });
    }
    let slot = handle.table().handle_extendedop;
    let slot = slot.ok_or_else(|| absent(name))?;
    let (gp_offset, fp_offset) = REGISTERS_USED_UP;
    let mut list = VaList {
        gp_offset,
        fp_offset,
        overflow: arguments.as_ptr(),
        registers: std::ptr::null(),
    };
    let list = (&raw mut list).cast::<c_void>();
    // SAFETY: a provider's handle, and by the caller's promise the operation's arguments.
    done(name, unsafe { slot(handle.0, op, list) })
}
