//! dat_strerror: both parts of a return code as text.

use std::ffi::{CString, c_char};
use std::sync::LazyLock;

use dat_core::error::{Error, Kind, Subtype};

use crate::registry::guard;

/// C strings of all types and subtypes, made once.
static KINDS: LazyLock<Vec<(u32, CString)>> = LazyLock::new(|| {
    let success = (0, "DAT_SUCCESS");
    let all = std::iter::once(success).chain(Kind::ALL.iter().map(|k| (*k as u32, k.name())));
    all.map(|(number, name)| (number, CString::new(name).unwrap_or_default()))
        .collect()
});
static SUBTYPES: LazyLock<Vec<CString>> = LazyLock::new(|| {
    Subtype::ALL
        .iter()
        .map(|s| CString::new(s.name()).unwrap_or_default())
        .collect()
});

export! {
    /// Text of a return code: its type, and its subtype ("" if it has none).
    fn dat_strerror(code: u32, major: *mut *const c_char, minor: *mut *const c_char) -> u32 {
        guard(|| {
            if major.is_null() {
                return Err(Error::arg(2));
            }
            if minor.is_null() {
                return Err(Error::arg(3));
            }
            let kind = KINDS.iter().find(|(number, _)| *number == code & 0x3fff_0000).ok_or(Error::arg(1))?;
            let subtype = (code & 0xffff) as usize;
            let text = match subtype {
                0 => c"",
                _ => SUBTYPES.get(subtype).ok_or(Error::arg(1))?,
            };
            // SAFETY: not NULL, so valid by the function's contract; the strings live for ever.
            unsafe {
                major.write(kind.1.as_ptr());
                minor.write(text.as_ptr());
            }
            Ok(())
        })
    }
}
