//! The header in front of a datagram endpoint's private data, in the request of a service id resolution (SIDR_REQ).
//!
//! The resolution gives the requester the peer's queue pair, and the responder nothing. DAT gives each side the other's, so the
//! request carries it (numbers big endian):
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | `DATu` |
//! | 4 | 1 | version, 1 |
//! | 5 | 1 | bytes of private data |
//! | 6 | 2 | LID of the port, 0 on RoCE |
//! | 8 | 4 | queue pair number |
//! | 12 | 4 | Q_Key |

/// Bytes of the header.
const LENGTH: usize = 16;
const MAGIC: [u8; 4] = *b"DATu";
const VERSION: u8 = 1;

/// The datagram queue pair that sends a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// LID of the port, 0 on RoCE.
    pub lid: u16,
    /// Queue pair number.
    pub qpn: u32,
    /// Q_Key that datagrams to the queue pair must have.
    pub qkey: u32,
}

impl Caller {
    /// Returns the header with the consumer's `private_data`, at most 255 bytes, after it.
    #[must_use]
    pub fn write(self, private_data: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(LENGTH + private_data.len());
        out.extend_from_slice(&MAGIC);
        out.push(VERSION);
        out.push(private_data.len() as u8);
        out.extend_from_slice(&self.lid.to_be_bytes());
        out.extend_from_slice(&self.qpn.to_be_bytes());
        out.extend_from_slice(&self.qkey.to_be_bytes());
        out.extend_from_slice(private_data);
        out
    }

    /// Reads the header and the consumer's private data; `None` if there is no such header or it is cut short.
    #[must_use]
    pub fn read(data: &[u8]) -> Option<(Self, &[u8])> {
        let (header, rest) = data.split_at_checked(LENGTH)?;
        if header[..4] != MAGIC || header[4] != VERSION {
            return None;
        }
        let word = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
        let caller = Self {
            lid: u16::from_be_bytes([header[6], header[7]]),
            qpn: word(8)?,
            qkey: word(12)?,
        };
        Some((caller, rest.get(..usize::from(header[5]))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: Caller = Caller {
        lid: 0x0102,
        qpn: 0x0304_0506,
        qkey: 0x0123_4567,
    };

    #[test]
    fn the_header_is_as_documented() {
        let expected = b"DATu\x01\x02\x01\x02\x03\x04\x05\x06\x01\x23\x45\x67hi";
        assert_eq!(CALLER.write(b"hi"), expected);
    }

    #[test]
    fn what_is_written_is_read_with_any_padding_behind_it() {
        let mut sent = CALLER.write(b"private");
        sent.resize(180, 0);
        assert_eq!(Caller::read(&sent), Some((CALLER, &b"private"[..])));
        assert_eq!(Caller::read(&CALLER.write(b"")), Some((CALLER, &b""[..])));
    }

    #[test]
    fn other_data_and_truncated_headers_are_refused() {
        let sent = CALLER.write(b"private");
        for length in 0..sent.len() {
            assert_eq!(Caller::read(&sent[..length]), None, "{length}");
        }
        for at in 0..5 {
            let mut other = sent.clone();
            other[at] ^= 1;
            assert_eq!(Caller::read(&other), None, "{at}");
        }
    }
}
