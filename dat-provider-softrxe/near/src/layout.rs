//! Layout of the shared memory and of a record. All numbers are in the byte order of the machine: both ends are on it.
//!
//! | offset in a record | content |
//! |---|---|
//! | 0 | the seal, a word that says that the record is published (`ring`) |
//! | 8 | `lines: u16`, the length of the whole record in units of 64 bytes |
//! | 10 | `header_length: u8` |
//! | 11 | `payload_at: u8` |
//! | 12 | `payload_length`, 3 bytes |
//! | 15 | `lent: u8`, 1 if the payload is in the sender's memory: at `payload_at` is its address, a `u64` |
//! | 16 | headers, at most [`MAX_HEADER`] bytes |
//! | `payload_at` | payload |

use crate::violation::Violation;

/// Length of the page of indices before each ring's data: the largest page that a kernel of this processor can have, as the data is
/// mapped apart from it. What is not used of it occupies no memory.
pub const CONTROL: usize = if cfg!(any(target_arch = "aarch64", target_arch = "powerpc64")) {
    64 << 10
} else {
    4096
};
/// Distance of two lines of indices: processors fetch two cache lines of 64 bytes at a time.
pub const LINE: usize = 128;
/// A record begins at a multiple of this.
pub const ALIGNMENT: usize = 64;
/// Where the headers begin in a record.
pub const HEADER_AT: usize = 16;
/// Maximum length of the headers.
pub const MAX_HEADER: usize = 40;
/// Length of the fixed part with the longest headers.
pub(crate) const FIXED: usize = HEADER_AT + MAX_HEADER;
/// Payloads above this length begin at a cache line.
const LONG_PAYLOAD: usize = 512;
/// Maximum length of a payload that stays in the sender's memory.
pub const MAX_LENT: usize = 512 << 10;
/// Bytes of a record that describe a lent payload: its address.
pub const LENT_LEN: usize = 8;
/// Largest number that the field of a payload's length can have.
const MAX_PAYLOAD: u32 = (1 << 24) - 1;
/// Divisor of the ring's size that gives the maximum length of a payload, up to [`MAX_MTU`].
pub(crate) const MTU_DIVISOR: usize = 8;
/// Maximum length of a payload in any ring.
pub const MAX_MTU: usize = 32 << 10;

/// Returns where a payload of `payload_length` bytes begins in a record with headers of `header_length` bytes.
#[must_use]
pub const fn payload_at(header_length: usize, payload_length: usize) -> usize {
    let unit = if payload_length > LONG_PAYLOAD {
        ALIGNMENT
    } else {
        8
    };
    (HEADER_AT + header_length).next_multiple_of(unit)
}

/// Returns the length of a record whose payload of `payload_length` bytes begins at `payload_at`.
#[must_use]
pub const fn record_length(payload_at: usize, payload_length: usize) -> usize {
    (payload_at + payload_length).next_multiple_of(ALIGNMENT)
}

/// What the second word of a record says, copied out of the shared memory. The word has the parts in the order of the table above on a
/// machine whose lowest byte is first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fixed {
    pub(crate) length: u32,
    pub(crate) payload_length: u32,
    pub(crate) header_length: u8,
    pub(crate) payload_at: u8,
    /// The payload is in the sender's memory.
    pub(crate) lent: bool,
}

impl Fixed {
    /// Returns the word.
    #[inline]
    pub(crate) const fn encode(self) -> u64 {
        (self.length as u64 / ALIGNMENT as u64)
            | (self.header_length as u64) << 16
            | (self.payload_at as u64) << 24
            | (self.payload_length as u64) << 32
            | (self.lent as u64) << 56
    }

    /// Parses a word that [`encode`](Self::encode) made, and checks all lengths. The record must not be longer than the ring, which has
    /// `size` bytes, and headers and payload must be within the record.
    #[inline]
    pub(crate) const fn parse(word: u64, size: u64, mtu: u32) -> Result<Self, Violation> {
        let fixed = Self {
            length: (word as u16) as u32 * ALIGNMENT as u32,
            payload_length: (word >> 32) as u32 & MAX_PAYLOAD,
            header_length: (word >> 16) as u8,
            payload_at: (word >> 24) as u8,
            lent: (word >> 56) as u8 != 0,
        };
        let length = fixed.length as u64;
        let (in_record, longest) = if fixed.lent {
            (LENT_LEN as u32, MAX_LENT as u32)
        } else {
            (fixed.payload_length, mtu)
        };
        let payload_end = fixed.payload_at as u64 + in_record as u64;
        let fits = length >= ALIGNMENT as u64
            && length <= size
            && fixed.header_length as usize <= MAX_HEADER
            && payload_end <= length
            && fixed.payload_length <= longest
            && (!fixed.lent || fixed.payload_at.is_multiple_of(8));
        if fits {
            return Ok(fixed);
        }
        Err(Violation::Record {
            length: fixed.length,
            header_length: fixed.header_length,
            payload_at: fixed.payload_at,
            payload_length: fixed.payload_length,
            size,
            mtu,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(length: u32, payload_length: u32, header_length: u8, payload_at: u8) -> Fixed {
        Fixed {
            length,
            payload_length,
            header_length,
            payload_at,
            lent: false,
        }
    }

    #[test]
    fn the_bytes_of_a_record_are_as_documented() {
        let word = fixed(0x0201 * 64, 0x0007_0605, 3, 4).encode();
        assert_eq!(word.to_le_bytes(), [1, 2, 3, 4, 5, 6, 7, 0]);
        let lent = Fixed {
            lent: true,
            ..fixed(64, 8, 0, 0)
        };
        assert_eq!(lent.encode().to_le_bytes(), [1, 0, 0, 0, 8, 0, 0, 1]);
    }

    #[test]
    fn a_record_that_fits_is_parsed_as_it_was_encoded() {
        for header in 0..=MAX_HEADER {
            for payload in [0, 1, 8, 511, 512, 513, 4096, 8192] {
                let at = payload_at(header, payload);
                let length = record_length(at, payload);
                assert!(at >= HEADER_AT + header && at + payload <= length);
                assert!(at.is_multiple_of(if payload > 512 { 64 } else { 8 }));
                assert!(length - at - payload < ALIGNMENT);
                let record = fixed(length as u32, payload as u32, header as u8, at as u8);
                let parsed = Fixed::parse(record.encode(), length as u64, 8192);
                assert_eq!(parsed, Ok(record));
            }
        }
        assert_eq!(record_length(payload_at(12, 8), 8), 64, "one line");
    }

    #[test]
    fn a_record_that_lends_its_payload_holds_an_aligned_address() {
        let lent = |length, payload_length, payload_at| Fixed {
            lent: true,
            ..fixed(length, payload_length, 28, payload_at)
        };
        let (long, mtu) = (MAX_LENT as u32, 8192);
        for good in [lent(64, long, 48), lent(64, 1, 56), lent(128, long, 120)] {
            assert_eq!(Fixed::parse(good.encode(), 128, mtu), Ok(good));
        }
        for wrong in [
            lent(64, long + 1, 48),
            lent(64, 1, 57),
            lent(64, 1, 64),
            lent(128, 1, 52),
        ] {
            assert!(Fixed::parse(wrong.encode(), 128, mtu).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_record_whose_lengths_contradict_each_other_is_refused() {
        let good = fixed(128, 64, 12, 32);
        assert_eq!(Fixed::parse(good.encode(), 128, 64), Ok(good));
        for (wrong, size, mtu) in [
            (good, 64, 64),
            (good, 128, 63),
            (fixed(0, 0, 12, 32), 128, 64),
            (fixed(64, 64, 12, 32), 128, 64),
            (fixed(128, 64, 41, 32), 128, 64),
            (fixed(128, 64, 12, 65), 128, 64),
            (fixed(128, MAX_PAYLOAD, 12, 32), 128, u32::MAX),
            (fixed(0xffff * 64, 64, 12, 32), 128, 64),
        ] {
            let error = Fixed::parse(wrong.encode(), size, mtu).unwrap_err();
            assert!(
                matches!(error, Violation::Record { length, .. } if length == wrong.length),
                "{wrong:?}"
            );
        }
    }
}
