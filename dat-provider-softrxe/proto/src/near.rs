//! Channels: the link of two engines of one host, through shared memory. What engine and driver exchange about it.
//!
//! A **channel** carries **records** in both directions, in order and without loss. A record holds one packet without ICRC and
//! padding. Of its bytes the engine sees the transport headers only. It names payload by its position in the record, and
//! [`Memory::fill`](crate::Memory::fill) and [`Memory::place`](crate::Memory::place) copy it. `engine/near.rs` has the calls.

/// A channel, named by the driver. The engine keeps a table that is as long as the largest number in use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NearId(pub u16);

/// Link below a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Link {
    /// Datagrams, which may be lost.
    #[default]
    Wire,
    /// A channel.
    Near(NearId),
    /// A channel that has ended: nothing is sent or received.
    Down,
}

/// Bytes before the transport headers of a record.
pub const RECORD_HEAD: usize = 16;
/// A record begins at a multiple of this, and its length is one.
pub const RECORD_ALIGN: usize = 64;
/// Largest length of the transport headers.
pub const MAX_HEADER: usize = crate::wire::packet::MAX_HEADERS;
/// The bit of the transport headers of a request that is followed by an acknowledgement: byte (reserved in the BTH) and mask.
/// The acknowledgement is the last part of the headers: the newest PSN that it covers, as a u32. It saves a record of its own, or a
/// datagram where [`REQUEST_ACKNOWLEDGES`](dat_handshake::Capabilities::REQUEST_ACKNOWLEDGES) is agreed on.
pub(crate) const ACK_FLAG: (usize, u8) = (8, 0x40);
/// Bytes of an acknowledgement behind a request's headers.
pub(crate) const ACK_LEN: usize = 4;
/// Longest payload that begins right behind the headers. A longer one begins at a multiple of [`RECORD_ALIGN`].
const MAX_PACKED: usize = 512;
/// Shortest payload that is [lent](crate::Memory::lend_record). A shorter one is copied in less time than the peer's system call takes.
pub const MIN_LENT: u32 = 16 << 10;
/// Longest payload that a record lends: a multiple of each MTU.
pub const MAX_LENT: u32 = 512 << 10;
/// Bytes of a record that describe a lent payload, in place of the payload.
pub const LENT_LEN: usize = 8;
/// Smallest and largest MTU of a channel, a power of two.
pub const MTU_RANGE: std::ops::RangeInclusive<u16> = 256..=32_768;

/// Returns the position of the payload in a record.
#[must_use]
pub const fn payload_at(header_length: usize, payload_length: usize) -> usize {
    let end = RECORD_HEAD + header_length;
    if payload_length > MAX_PACKED {
        end.next_multiple_of(RECORD_ALIGN)
    } else {
        end.next_multiple_of(8)
    }
}

/// Returns the length of a record.
#[must_use]
pub const fn record_length(header_length: usize, payload_length: usize) -> usize {
    (payload_at(header_length, payload_length) + payload_length).next_multiple_of(RECORD_ALIGN)
}

/// A part of the record at hand: position from its beginning, and bytes. Or a part of the memory that the record lends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordPart {
    /// Position of the first byte.
    pub at: usize,
    /// Bytes.
    pub length: usize,
    /// The bytes are in memory of the peer, at this position of what it lends.
    pub lent: bool,
}

/// A packet for a channel, from `Engine::poll_near`. Its payload is in the record already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NearOut {
    /// Transport headers, in the first `header_length` bytes.
    pub header: [u8; MAX_HEADER],
    /// Bytes of the transport headers.
    pub header_length: usize,
    /// Position of the payload in the record.
    pub payload_at: usize,
    /// Bytes of payload.
    pub payload_length: usize,
    /// The record has a description of the payload in its place, of [`LENT_LEN`] bytes.
    pub lent: bool,
}

impl NearOut {
    /// No packet.
    pub const EMPTY: Self = Self {
        header: [0; MAX_HEADER],
        header_length: 0,
        payload_at: 0,
        payload_length: 0,
        lent: false,
    };

    /// Returns the transport headers.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header[..self.header_length]
    }

    /// Returns the length of the record.
    #[inline]
    #[must_use]
    pub const fn record_length(&self) -> usize {
        let length = if self.lent {
            LENT_LEN
        } else {
            self.payload_length
        };
        record_length(self.header_length, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_room_for_headers_and_payload() {
        for header in [12, 16, 24, 28, 32, MAX_HEADER] {
            for payload in [0, 1, 8, 64, 511, 512, 513, 4096, 32_768] {
                let at = payload_at(header, payload);
                assert!(at >= RECORD_HEAD + header);
                assert!(at.is_multiple_of(8));
                assert!(payload <= 512 || at.is_multiple_of(64));
                let length = record_length(header, payload);
                assert!(length.is_multiple_of(64) && length >= at + payload);
            }
        }
        assert_eq!(record_length(16, 0), 64);
        assert_eq!(record_length(28, 8), 64);
        assert_eq!(record_length(12, 64), 128);
        assert_eq!(record_length(28, 32_768), 64 + 32_768);
    }
}
