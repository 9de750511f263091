//! 24-bit numbers: packet sequence numbers and queue pair numbers.

use std::fmt;

/// Largest 24-bit number.
const MASK: u32 = 0xff_ffff;

/// A packet sequence number: serial arithmetic modulo 2^24 (IBTA 9.7.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// Returns the number in the low 24 bits of `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value & MASK)
    }

    /// Returns the number, below 2^24.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the PSN `count` packets later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// Returns the PSN `count` packets earlier.
    #[must_use]
    pub const fn minus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_sub(count))
    }

    /// Returns the distance from `other` to this PSN, in -2^23 .. 2^23; negative if this one is before `other`.
    #[must_use]
    pub const fn distance(self, other: Self) -> i32 {
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }

    /// Returns true if this PSN is strictly before `other`.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        self.distance(other) < 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "psn {:#08x}", self.0)
    }
}

/// A queue pair number. 0 is not used, 1 is the connection manager's, 0xffffff is multicast.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// The general services queue pair, which the connection manager uses.
    pub const GSI: Self = Self(1);

    /// Returns the number in the low 24 bits of `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value & MASK)
    }

    /// Returns the number, below 2^24.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// True of numbers that a connected queue pair can have: not 0 and 1, which are for management, and not the multicast one.
    #[must_use]
    pub const fn is_connectable(self) -> bool {
        self.0 > Self::GSI.0 && self.0 < MASK
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qpn {:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_signed_and_wraps() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.plus(1), Psn::new(0));
        assert_eq!(Psn::new(0).distance(last), 1);
        assert_eq!(last.distance(Psn::new(0)), -1);
        assert_eq!(Psn::new(0x7f_ffff).distance(Psn::new(0)), 0x7f_ffff);
        assert_eq!(Psn::new(0x80_0000).distance(Psn::new(0)), -0x80_0000);
        assert_eq!(Psn::new(2).minus(5), Psn::new(0xff_fffd));
    }

    #[test]
    fn order_holds_for_every_offset_across_the_wrap() {
        for start in [0, 1, 0x7f_fff0, 0xff_fff0, 0xff_ffff] {
            let start = Psn::new(start);
            for offset in 1..64 {
                assert!(start.is_before(start.plus(offset)));
                assert!(!start.plus(offset).is_before(start));
            }
        }
    }
}
