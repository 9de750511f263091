//! Recognizes an engine of this project by the CA GUID in its REQ, REP and timeout REJ.
//!
//! The first 16 bits of the GUID are the mark. Bit 0 of the first byte is set in it, which makes it a group address; no adapter
//! has such a GUID. The mark is not negotiated, because messages that carry no [offer](crate::offer) depend on it. It says,
//! in every version:
//!
//! * The engine sends all its datagrams from one UDP port, and receives answers there. That port is part of its identity.
//! * The Q_Key field of its REQ and REP holds its offer.

/// First 16 bits of the CA GUID of every engine of this project.
const MARK: u64 = 0x5d52;

/// Returns the CA GUID of an engine of this project: the mark, and the lower 48 bits of `number`.
#[must_use]
pub const fn own(number: u64) -> u64 {
    MARK << 48 | (number & ((1 << 48) - 1))
}

/// Returns true for the CA GUID of an engine of this project.
#[must_use]
pub const fn is_own(guid: u64) -> bool {
    guid >> 48 == MARK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_guids_are_recognized_and_others_are_not() {
        assert_eq!(own(0x0102_0304_0506_0708), 0x5d52_0304_0506_0708);
        assert!(is_own(own(0)));
        assert!(is_own(own(u64::MAX)));
        // rdma_rxe's GUID is made of a MAC address.
        assert!(!is_own(0x0200_00ff_fe00_0001));
        assert!(!is_own(0));
    }
}
