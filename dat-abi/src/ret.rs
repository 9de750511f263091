//! Return codes (`DAT_RETURN`), and the conversion between the two versions' numbers.

use dat_core::error::{Error, Kind, Result, Subtype};

/// `DAT_RETURN`: class, type and subtype in one word, as a C function returns it.
pub type DatReturn = u32;

/// `DAT_SUCCESS`.
pub const DAT_SUCCESS: DatReturn = 0;
/// `DAT_CLASS_ERROR`.
pub const CLASS_ERROR: DatReturn = 0x8000_0000;
/// `DAT_TYPE_MASK`.
pub const TYPE_MASK: DatReturn = 0x3fff_0000;
/// `DAT_SUBTYPE_MASK`.
pub const SUBTYPE_MASK: DatReturn = 0x0000_ffff;

/// `DAT_NOT_IMPLEMENTED` of 1.2; 2.0 moved it to `0x3fff0000`.
const NOT_IMPLEMENTED_1_2: u32 = 0x0fff_0000;

/// Returns the 2.0 code of a result. Core's numbers are 2.0's; the two codes without the class bit ([`Error::without_class`]) stay
/// without it.
#[inline(always)]
pub fn pack_v2_0(result: Result<()>) -> DatReturn {
    result.err().map_or(DAT_SUCCESS, Error::code)
}

/// Converts a 2.0 code to 1.2. 2.0 inserted two subtypes (`INVALID_HANDLE_CSP`, `INVALID_STATE_SRQ_SHUTDOWN`), so that later ones
/// have lower numbers in 1.2, and moved `DAT_NOT_IMPLEMENTED`.
#[inline]
#[must_use]
pub const fn to_v1_2(code: DatReturn) -> DatReturn {
    let mut subtype = code & SUBTYPE_MASK;
    if subtype > Subtype::InvalidStateSrqShutdown as u32 {
        subtype -= 2;
    } else if subtype > Subtype::InvalidHandleCsp as u32 {
        subtype -= 1;
    }
    let kind = match code & TYPE_MASK {
        kind if kind == Kind::NotImplemented as u32 => NOT_IMPLEMENTED_1_2,
        NOT_IMPLEMENTED_1_2 => Kind::NotImplemented as u32,
        kind => kind,
    };
    code & !(TYPE_MASK | SUBTYPE_MASK) | kind | subtype
}

/// Converts a 1.2 code to 2.0: the inverse of [`to_v1_2`].
#[must_use]
pub const fn from_v1_2(code: DatReturn) -> DatReturn {
    let mut subtype = code & SUBTYPE_MASK;
    if subtype >= Subtype::InvalidHandleCsp as u32 {
        subtype += 1;
    }
    if subtype >= Subtype::InvalidStateSrqShutdown as u32 {
        subtype += 1;
    }
    if subtype > SUBTYPE_MASK {
        // No subtype of either version.
        subtype = SUBTYPE_MASK;
    }
    let kind = match code & TYPE_MASK {
        NOT_IMPLEMENTED_1_2 => Kind::NotImplemented as u32,
        // 1.2 has no such type.
        kind if kind == Kind::NotImplemented as u32 => NOT_IMPLEMENTED_1_2,
        kind => kind,
    };
    code & !(TYPE_MASK | SUBTYPE_MASK) | kind | subtype
}

/// Converts a 2.0 code to a result.
///
/// # Errors
/// The error of the code, if it is not `DAT_SUCCESS`.
#[inline]
pub const fn unpack_v2_0(code: DatReturn) -> Result<()> {
    match Error::from_code(code) {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are from the 1.2 header.
    #[test]
    fn numbers_of_1_2() {
        for (error, number) in [
            (Error::handle(Subtype::InvalidHandleSrq), 0x8005_0019),
            (Error::handle(Subtype::InvalidHandle1), 0x8005_001a),
            (Error::arg(1), 0x8006_0024),
            (Error::arg(10), 0x8006_002d),
            (
                Error::state(Subtype::InvalidStateEpUnconnected),
                0x8007_002e,
            ),
            (Error::of(Kind::NotImplemented), 0x8fff_0000),
            (Error::of(Kind::QueueEmpty).without_class(), 0x000d_0000),
            (Error::of(Kind::QueueEmpty), 0x800d_0000),
        ] {
            assert_eq!(to_v1_2(error.code()), number, "{error}");
        }
    }

    #[test]
    fn every_code_converts_to_1_2_and_back() {
        let mut seen = std::collections::HashSet::new();
        for kind in Kind::ALL {
            for subtype in Subtype::ALL {
                // 1.2 has no numbers for these two.
                if matches!(
                    subtype,
                    Subtype::InvalidHandleCsp | Subtype::InvalidStateSrqShutdown
                ) {
                    continue;
                }
                let code = Error::new(*kind, *subtype).code();
                let packed = to_v1_2(code);
                assert_eq!(from_v1_2(packed), code);
                assert!(seen.insert(packed), "{packed:#x} stands for two codes");
                assert_eq!(pack_v2_0(unpack_v2_0(code)), code);
            }
        }
        assert_eq!((to_v1_2(DAT_SUCCESS), from_v1_2(DAT_SUCCESS)), (0, 0));
        assert_eq!(unpack_v2_0(DAT_SUCCESS), Ok(()));
    }
}
