//! The strings of dat_strerror: names of type and subtype, as constant C strings.
//!
//! DAPL's library lacks names for some of its own codes (connection qualifiers, ports, SRQ states); this one has a name for every
//! code of `dat_error.h`.

use std::ffi::{CStr, CString};
use std::sync::OnceLock;

use dat_core::error::{Kind, Subtype};

use crate::ret::{DatReturn, SUBTYPE_MASK, TYPE_MASK};

/// The strings of a return code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Strings {
    /// Name of the type; `None` for a type that the specification lacks, for which dat_strerror fails.
    pub major: Option<&'static CStr>,
    /// Name of the subtype, empty for `DAT_NO_SUBTYPE`; `None` for one that the specification lacks.
    pub minor: Option<&'static CStr>,
}

/// Major string of an unknown type.
pub const UNKNOWN_MAJOR: &CStr = c"unknown error";
/// Minor string of an unknown subtype.
pub const UNKNOWN_MINOR: &CStr = c"unknown minor error";

/// Types of `dat_error.h` that core never returns.
const NOT_IN_CORE: [(u32, &CStr); 4] = [
    (0, c"DAT_SUCCESS"),
    (0x0015_0000, c"DAT_RESERVED_LMR"),
    (0x1000_0000, c"DAT_IB_ERR"),
    (0x1001_0000, c"DAT_IB_COLLECTIVE_ERR"),
];

/// Returns the strings of a 2.0 code. [`crate::ret::from_v1_2`] converts a code of 1.2.
#[must_use]
pub fn strings(code: DatReturn) -> Strings {
    static KINDS: OnceLock<Vec<CString>> = OnceLock::new();
    static SUBTYPES: OnceLock<Vec<CString>> = OnceLock::new();
    let kinds = KINDS.get_or_init(|| Kind::ALL.iter().map(|k| c_string(k.name())).collect());
    let subtypes =
        SUBTYPES.get_or_init(|| Subtype::ALL.iter().map(|s| c_string(s.name())).collect());

    let kind = code & TYPE_MASK;
    let major = match Kind::ALL.iter().position(|k| *k as u32 == kind) {
        Some(at) => Some(kinds[at].as_c_str()),
        None => NOT_IN_CORE
            .iter()
            .find(|(n, _)| *n == kind)
            .map(|(_, s)| *s),
    };
    let minor = match code & SUBTYPE_MASK {
        0 => Some(c""),
        subtype => subtypes.get(subtype as usize).map(CString::as_c_str),
    };
    Strings { major, minor }
}

fn c_string(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ret::from_v1_2;
    use dat_core::error::Error;

    #[test]
    fn every_code_has_its_name() {
        for kind in Kind::ALL {
            for subtype in Subtype::ALL {
                let found = strings(Error::new(*kind, *subtype).code());
                assert_eq!(found.major.unwrap().to_str(), Ok(kind.name()));
                let minor = match subtype {
                    Subtype::NoSubtype => "",
                    named => named.name(),
                };
                assert_eq!(found.minor.unwrap().to_str(), Ok(minor));
            }
        }
        assert_eq!(strings(0).major, Some(c"DAT_SUCCESS"));
        assert_eq!(strings(0x000d_0000).major, Some(c"DAT_QUEUE_EMPTY"));
        assert_eq!(strings(0x8018_0000).major, None);
        assert_eq!(strings(0x8005_00ff).minor, None);
    }

    #[test]
    fn every_code_of_1_2_has_its_name() {
        let found = strings(from_v1_2(0x8006_0024));
        assert_eq!(found.minor, Some(c"DAT_INVALID_ARG1"));
        let found = strings(from_v1_2(0x8fff_0000));
        assert_eq!(found.major, Some(c"DAT_NOT_IMPLEMENTED"));
    }

    #[test]
    fn a_code_that_1_2_lacks_has_no_name() {
        // The last one is 2.0's DAT_NOT_IMPLEMENTED.
        for code in [0xffff_ffff, 0x8018_ffff, 0xbfff_0000] {
            assert_eq!(strings(from_v1_2(code)).major, None, "{code:#x}");
        }
        for subtype in [0xffff, 0xfffe, 0xfffd] {
            let found = strings(from_v1_2(0x8006_0000 | subtype));
            assert_eq!(found.major, Some(c"DAT_INVALID_PARAMETER"));
            assert_eq!(found.minor, None, "{subtype:#x}");
        }
    }
}
