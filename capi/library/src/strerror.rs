//! dat_strerror: both parts of a return code as text.

use std::ffi::c_char;

use dat_abi::strerror::{UNKNOWN_MAJOR, UNKNOWN_MINOR, strings};
use dat_core::error::Error;

use crate::Library;

impl Library {
    /// dat_strerror of a code of this library's numbers: its type, and its subtype ("" if it has none).
    ///
    /// # Safety
    /// `major` and `minor` are NULL or valid; `minor` may be NULL.
    pub unsafe fn strerror(
        &self,
        code: u32,
        major: *mut *const c_char,
        minor: *mut *const c_char,
    ) -> u32 {
        self.guard(|| {
            if major.is_null() {
                return Err(Error::arg(2));
            }
            let found = strings((self.version.from_numbers)(code));
            // SAFETY: not NULL, so valid by the function's contract; the strings live for ever.
            unsafe {
                major.write_unaligned(found.major.unwrap_or(UNKNOWN_MAJOR).as_ptr());
                if !minor.is_null() {
                    minor.write_unaligned(found.minor.unwrap_or(UNKNOWN_MINOR).as_ptr());
                }
            }
            match found.major.and(found.minor) {
                Some(_) => Ok(()),
                None => Err(Error::arg(1)),
            }
        })
    }
}
