//! Layout of the shared memory and of a record. All numbers are in the byte order of the machine: both ends are on it.
//!
//! | offset in a record | content |
//! |---|---|
//! | 0 | `length: u32`, the whole record, a multiple of 64 |
//! | 4 | `payload_length: u32` |
//! | 8 | `header_length: u8` |
//! | 9 | `payload_at: u8` |
//! | 10 | `lent: u8`, 1 if the payload is in the sender's memory: at `payload_at` is its address, a `u64` |
//! | 11 | 5 bytes of 0 |
//! | 16 | headers, at most [`MAX_HEADER`] bytes |
//! | `payload_at` | payload |

use crate::violation::Violation;

/// Length of the page of indices before each ring's data.
pub const CONTROL: usize = 4096;
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
pub const MAX_LENT: usize = 256 << 10;
/// Bytes of a record that describe a lent payload: its address.
pub const LENT_LEN: usize = 8;
/// Divisor of the ring's size that gives the maximum length of a payload.
pub(crate) const MTU_DIVISOR: usize = 8;

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

/// First part of a record, copied out of the shared memory.
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
    /// Returns the first [`HEADER_AT`] bytes of a record as two words.
    pub(crate) const fn encode(self) -> [u64; 2] {
        let first = self.length as u64 | (self.payload_length as u64) << 32;
        let second =
            self.header_length as u64 | (self.payload_at as u64) << 8 | (self.lent as u64) << 16;
        [u64::from_le(first), u64::from_le(second)]
    }

    /// Parses two words that are in memory as [`encode`](Self::encode) gives them, and checks all lengths: the record
    /// is within the `published` bytes from its beginning, headers and payload are within the record.
    pub(crate) const fn parse(
        words: [u64; 2],
        published: u64,
        mtu: u32,
    ) -> Result<Self, Violation> {
        let [first, second] = [words[0].to_le(), words[1].to_le()];
        let fixed = Self {
            length: first as u32,
            payload_length: (first >> 32) as u32,
            header_length: second as u8,
            payload_at: (second >> 8) as u8,
            lent: (second >> 16) as u8 != 0,
        };
        let length = fixed.length as u64;
        let (in_record, longest) = if fixed.lent {
            (LENT_LEN as u32, MAX_LENT as u32)
        } else {
            (fixed.payload_length, mtu)
        };
        let payload_end = fixed.payload_at as u64 + in_record as u64;
        let fits = length >= ALIGNMENT as u64
            && length.is_multiple_of(ALIGNMENT as u64)
            && length <= published
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
            published,
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
        let words = fixed(0x0403_0240, 0x0807_0605, 9, 10).encode();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let ne = |value: u32| value.to_ne_bytes();
        assert_eq!(bytes[..4], ne(0x0403_0240));
        assert_eq!(bytes[4..8], ne(0x0807_0605));
        assert_eq!(bytes[8..], [9, 10, 0, 0, 0, 0, 0, 0]);
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
        for (wrong, published, mtu) in [
            (good, 64, 64),
            (good, 128, 63),
            (fixed(0, 0, 12, 32), 128, 64),
            (fixed(127, 64, 12, 32), 128, 64),
            (fixed(64, 64, 12, 32), 128, 64),
            (fixed(128, 64, 41, 32), 128, 64),
            (fixed(128, 64, 12, 65), 128, 64),
            (fixed(128, u32::MAX, 12, 32), 128, u32::MAX),
            (fixed(u32::MAX, 64, 12, 32), 128, 64),
        ] {
            let error = Fixed::parse(wrong.encode(), published, mtu).unwrap_err();
            assert!(
                matches!(error, Violation::Record { length, .. } if length == wrong.length),
                "{wrong:?}"
            );
        }
    }
}
