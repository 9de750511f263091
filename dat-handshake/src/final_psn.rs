//! The private data of the DREQ of an engine of this project: how far its queue pair had received.
//!
//! The acknowledgement of the last packets may have been lost, and the queue pair that would repeat it is gone by then. The peer
//! must not report a request as flushed that arrived.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 3 | `DAT` |
//! | 3 | 1 | version, 1 |
//! | 4 | 4 | the PSN that the queue pair expected last, big endian; everything before it was received |

/// Bytes of the whole.
pub const LEN: usize = 8;
/// The name and the version.
const MARK: [u8; 4] = *b"DAT\x01";

/// Returns the private data that says that everything before `expected` was received.
#[must_use]
pub const fn emit(expected: u32) -> [u8; LEN] {
    let [a, b, c, d] = expected.to_be_bytes();
    let [m, n, o, p] = MARK;
    [m, n, o, p, a, b, c, d]
}

/// Returns the PSN that the peer expected last, if `data` says so.
#[must_use]
pub fn parse(data: &[u8]) -> Option<u32> {
    let psn = data.strip_prefix(&MARK)?.first_chunk()?;
    Some(u32::from_be_bytes(*psn))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_as_documented() {
        assert_eq!(emit(0x0012_3456), *b"DAT\x01\x00\x12\x34\x56");
    }

    #[test]
    fn what_is_written_is_read_and_other_data_is_not() {
        for psn in [0, 1, 0xff_ffff] {
            let mut field = [0; 220];
            field[..LEN].copy_from_slice(&emit(psn));
            assert_eq!(parse(&field), Some(psn));
        }
        assert_eq!(parse(&[0; 220]), None);
        assert_eq!(parse(b"DAT\x02\x00\x00\x00\x00"), None);
        for length in 0..LEN {
            assert_eq!(parse(&emit(7)[..length]), None, "{length}");
        }
    }
}
