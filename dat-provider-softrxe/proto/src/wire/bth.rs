//! Base transport header (IBTA 9.2).

use super::{be16, be24, put};
use crate::{Psn, Qpn};

/// Base transport header: the first 12 bytes of every packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bth {
    /// Opcode as on the wire; see [`Opcode::from_wire`](crate::opcode::Opcode::from_wire).
    pub opcode: u8,
    /// Solicited event.
    pub solicited: bool,
    /// Migration state; hardware sends 1, rxe 0. It is not used here.
    pub migrated: bool,
    /// Bytes of padding after the payload, 0..=3.
    pub pad: u8,
    /// Transport header version, 0.
    pub version: u8,
    /// Partition key.
    pub pkey: u16,
    /// FECN, BECN and six reserved bits.
    pub congestion: u8,
    /// Destination queue pair.
    pub destination: Qpn,
    /// The sender requests an acknowledgement.
    pub ack_request: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Bytes on the wire.
    pub const LEN: usize = 12;
    /// The default partition, full membership.
    pub const DEFAULT_PKEY: u16 = 0xffff;

    /// Returns a header with the default partition and no flags.
    #[must_use]
    pub const fn new(opcode: u8, destination: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            pad: 0,
            version: 0,
            pkey: Self::DEFAULT_PKEY,
            congestion: 0,
            destination,
            ack_request: false,
            psn,
        }
    }

    /// Reads a header; `None` if there are fewer than 12 bytes.
    #[must_use]
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b: &[u8; Self::LEN] = bytes.first_chunk()?;
        Some(Self {
            opcode: b[0],
            solicited: b[1] & 0x80 != 0,
            migrated: b[1] & 0x40 != 0,
            pad: (b[1] >> 4) & 3,
            version: b[1] & 0x0f,
            pkey: be16(b, 2),
            congestion: b[4],
            destination: Qpn::new(be24(b, 5)),
            ack_request: b[8] & 0x80 != 0,
            psn: Psn::new(be24(b, 9)),
        })
    }

    /// Returns the header as three numbers, whose bytes in network order are its bytes.
    // Inlined in any case: a header that was written to memory in parts a moment ago is slow to read in larger ones.
    #[inline(always)]
    #[must_use]
    pub fn words(&self) -> [u32; 3] {
        let flags = u8::from(self.solicited) << 7
            | u8::from(self.migrated) << 6
            | (self.pad & 3) << 4
            | self.version & 0x0f;
        let first = u32::from(self.opcode) << 24 | u32::from(flags) << 16 | u32::from(self.pkey);
        let target = u32::from(self.congestion) << 24 | self.destination.value();
        let ack = u32::from(self.ack_request) << 31;
        [first, target, ack | self.psn.value()]
    }

    /// Writes the header to the first 12 bytes of `out`.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        // Whole words: compilers write single bytes one by one.
        let [first, target, last] = self.words();
        put(out, 0, &first.to_be_bytes());
        put(out, 4, &target.to_be_bytes());
        put(out, 8, &last.to_be_bytes());
    }
}
