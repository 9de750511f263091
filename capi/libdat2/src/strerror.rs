//! dat_strerror: both parts of a return code as text.

use std::ffi::c_char;

use dat_abi::strerror::{UNKNOWN_MAJOR, UNKNOWN_MINOR, strings};
use dat_core::error::Error;

use crate::registry::guard;

export! {
    /// Text of a return code: its type, and its subtype ("" if it has none). `minor` may be NULL.
    fn dat_strerror(code: u32, major: *mut *const c_char, minor: *mut *const c_char) -> u32 {
        guard(|| {
            if major.is_null() {
                return Err(Error::arg(2));
            }
            let found = strings(code);
            // SAFETY: not NULL, so valid by the function's contract; the strings live for ever.
            unsafe {
                major.write(found.major.unwrap_or(UNKNOWN_MAJOR).as_ptr());
                if !minor.is_null() {
                    minor.write(found.minor.unwrap_or(UNKNOWN_MINOR).as_ptr());
                }
            }
            match found.major.and(found.minor) {
                Some(_) => Ok(()),
                None => Err(Error::arg(1)),
            }
        })
    }
}
