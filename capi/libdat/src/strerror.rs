//! dat_strerror.

use std::ffi::c_char;

use crate::registry::LIBRARY;

export! {
    /// Returns the names of a return code's type and subtype ("" if it has none). `minor` may be NULL.
    fn dat_strerror(code: u32, major: *mut *const c_char, minor: *mut *const c_char) -> u32 {
        // SAFETY: the contract is the same.
        unsafe { LIBRARY.strerror(code, major, minor) }
    }
}
