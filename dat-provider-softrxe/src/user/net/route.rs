//! For whom a datagram is that arrived at the shared port: decided from its first bytes, before any check.

use super::door::{Addressee, slot_of_comm_id, slot_of_qpn};

/// Offsets within the UDP payload: BTH, then for the connection manager DETH and the MAD.
mod field {
    pub(super) const DESTINATION_QPN: usize = 4; // a byte of flags, then 24 bits
    pub(super) const ATTRIBUTE: usize = 20 + 16;
    pub(super) const CM: usize = 20 + 24;
}

const REQ: u16 = 0x10;
const SIDR_REQ: u16 = 0x17;
const SIDR_REP: u16 = 0x18;

fn word(datagram: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(
        datagram.get(at..at + 4)?.try_into().ok()?,
    ))
}

/// The engine or listener that `datagram` is for. `None`: too short to say.
///
/// Requests go by their service id, answers by our communication id (SIDR: request id) in them, everything
/// else by the destination queue pair.
#[must_use]
pub fn addressee(datagram: &[u8]) -> Option<Addressee> {
    let qpn = word(datagram, field::DESTINATION_QPN)? & 0x00ff_ffff;
    if qpn != 1 {
        return Some(Addressee::Slot(slot_of_qpn(qpn)));
    }
    let attribute = (word(datagram, field::ATTRIBUTE)? >> 16) as u16;
    Some(match attribute {
        REQ | SIDR_REQ => {
            let high = word(datagram, field::CM + 8)?;
            let low = word(datagram, field::CM + 12)?;
            Addressee::Service(u64::from(high) << 32 | u64::from(low))
        }
        SIDR_REP => Addressee::Slot(slot_of_comm_id(word(datagram, field::CM)?)),
        _ => Addressee::Slot(slot_of_comm_id(word(datagram, field::CM + 4)?)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mad(attribute: u16, words: [u32; 4]) -> Vec<u8> {
        let mut bytes = vec![0; 280];
        bytes[7] = 1;
        bytes[36..38].copy_from_slice(&attribute.to_be_bytes());
        for (i, word) in words.into_iter().enumerate() {
            bytes[44 + 4 * i..48 + 4 * i].copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    #[test]
    fn each_message_finds_its_engine() {
        let mut data = vec![0; 16];
        data[4..8].copy_from_slice(&(0xff00_0000u32 | 5 << 14 | 3).to_be_bytes());
        assert_eq!(addressee(&data), Some(Addressee::Slot(5)));
        assert_eq!(addressee(&data[..7]), None);
        let words = [9 << 22 | 1, 7 << 22 | 2, 0x0106, 0x1b59 | 1 << 24];
        let service = 0x0000_0106_0100_1b59;
        assert_eq!(
            addressee(&mad(0x10, words)),
            Some(Addressee::Service(service))
        );
        assert_eq!(
            addressee(&mad(0x17, words)),
            Some(Addressee::Service(service))
        );
        assert_eq!(addressee(&mad(0x18, words)), Some(Addressee::Slot(9)));
        for answer in [0x11, 0x12, 0x13, 0x14, 0x15, 0x16] {
            assert_eq!(
                addressee(&mad(answer, words)),
                Some(Addressee::Slot(7)),
                "{answer:#x}"
            );
        }
        assert_eq!(addressee(&mad(0x10, words)[..50]), None);
    }
}
