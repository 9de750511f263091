//! dat_strerror: the type and the subtype of a return code as text.

use std::ffi::c_char;

use dat_abi::strerror::{UNKNOWN_MAJOR, UNKNOWN_MINOR, strings};
use dat_core::error::Error;

use crate::Library;

impl Library {
    /// Writes the names of a return code's type and subtype ("" if it has none).
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
            let found = strings((self.version.from_own)(code));
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
