//! What the DREQ of an engine of this crate says to another: how far its queue pair had received.
//!
//! The acknowledgement of the last packets may have been lost, and the queue pair that would repeat it is gone by then. A request that
//! arrived must not be reported as flushed because of that.

use crate::Psn;
use crate::wire::cm::Dreq;

/// What is ours, and the version of what follows.
const MARK: &[u8] = b"DAT\x01";

/// Private data of a DREQ: everything before `expected` was received.
pub(crate) fn emit(expected: Psn) -> [u8; Dreq::PRIVATE_DATA] {
    let mut data = [0; Dreq::PRIVATE_DATA];
    let (mark, rest) = data.split_at_mut(MARK.len());
    mark.copy_from_slice(MARK);
    rest[..4].copy_from_slice(&expected.value().to_be_bytes());
    data
}

/// The PSN that the peer expected last, if it says so.
pub(crate) fn parse(data: &[u8; Dreq::PRIVATE_DATA]) -> Option<Psn> {
    let psn = data.strip_prefix(MARK)?.first_chunk()?;
    Some(Psn::new(u32::from_be_bytes(*psn)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood_and_so_is_silence() {
        for psn in [0, 1, 0xff_ffff] {
            assert_eq!(parse(&emit(Psn::new(psn))), Some(Psn::new(psn)));
        }
        assert_eq!(parse(&[0; Dreq::PRIVATE_DATA]), None);
    }
}
