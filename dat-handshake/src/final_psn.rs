//! The private data of the DREQ of an engine of this project: how far its queue pair had received, and what it refused.
//!
//! The acknowledgement of the last packets, or the NAK, may have been lost, or may wait for room in a channel that the DREQ does not use.
//! The queue pair that would send it is gone by then. The peer must not report a request as flushed that arrived or was refused.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 3 | `DAT` |
//! | 3 | 1 | version, 1 |
//! | 4 | 4 | the PSN that the queue pair expected last, big endian; everything before it was received |
//! | 8 | 1 | the AETH syndrome of the NAK after which the queue pair was in Error, or 0 |
//! | 9 | 3 | its PSN, big endian |
//!
//! Engines from before the NAK was added write zeros there, and do not read it.

/// Bytes of the whole.
pub const LEN: usize = 12;
/// The name and the version.
const MARK: [u8; 4] = *b"DAT\x01";

/// A request that was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// AETH syndrome of the NAK.
    pub syndrome: u8,
    /// PSN of the NAK, of 24 bits.
    pub psn: u32,
}

/// Returns the private data that says that everything before `expected` was received, and what was refused.
#[must_use]
pub const fn emit(expected: u32, refusal: Option<Refusal>) -> [u8; LEN] {
    let [a, b, c, d] = expected.to_be_bytes();
    let [m, n, o, p] = MARK;
    let (syndrome, psn) = match refusal {
        Some(refusal) => (refusal.syndrome, refusal.psn),
        None => (0, 0),
    };
    let [_, x, y, z] = psn.to_be_bytes();
    [m, n, o, p, a, b, c, d, syndrome, x, y, z]
}

/// Returns the PSN that the peer expected last, if `data` says so.
#[must_use]
pub fn parse(data: &[u8]) -> Option<u32> {
    let psn = data.strip_prefix(&MARK)?.first_chunk()?;
    Some(u32::from_be_bytes(*psn))
}

/// Returns what the peer refused, if `data` says so.
#[must_use]
pub fn parse_refusal(data: &[u8]) -> Option<Refusal> {
    let &[_, _, _, _, syndrome, x, y, z] = data.strip_prefix(&MARK)?.first_chunk()?;
    let psn = u32::from_be_bytes([0, x, y, z]);
    (syndrome != 0).then_some(Refusal { syndrome, psn })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSAL: Refusal = Refusal {
        syndrome: 0x62,
        psn: 0x00ab_cdef,
    };

    #[test]
    fn the_layout_is_as_documented() {
        assert_eq!(emit(0x0012_3456, None), *b"DAT\x01\x00\x12\x34\x56\0\0\0\0");
        assert_eq!(
            emit(0x0012_3456, Some(REFUSAL)),
            *b"DAT\x01\x00\x12\x34\x56\x62\xab\xcd\xef"
        );
    }

    #[test]
    fn what_is_written_is_read_and_other_data_is_not() {
        for psn in [0, 1, 0xff_ffff] {
            for refusal in [None, Some(REFUSAL)] {
                let mut field = [0; 220];
                field[..LEN].copy_from_slice(&emit(psn, refusal));
                assert_eq!((parse(&field), parse_refusal(&field)), (Some(psn), refusal));
            }
        }
        assert_eq!(parse(&[0; 220]), None);
        assert_eq!(parse(b"DAT\x02\x00\x00\x00\x00"), None);
        for length in 0..LEN {
            let part = &emit(7, Some(REFUSAL))[..length];
            assert_eq!(parse(part), (length >= 8).then_some(7), "{length}");
            assert_eq!(parse_refusal(part), None, "{length}");
        }
    }
}
