//! RDMA extended transport header (IBTA 9.3.3).

use super::{be32, be64, put};

/// Target of a WRITE or source of a READ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reth {
    /// First byte at the responder.
    pub va: u64,
    /// R_Key.
    pub rkey: u32,
    /// Length of the whole message.
    pub length: u32,
}

impl Reth {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Reads a header; `None` if it is cut short.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.get(..Self::LEN)?;
        Some(Self {
            va: be64(b, 0),
            rkey: be32(b, 8),
            length: be32(b, 12),
        })
    }

    /// Writes the header to the front of `out`.
    pub fn emit(&self, out: &mut [u8]) {
        put(out, 0, &self.va.to_be_bytes());
        put(out, 8, &self.rkey.to_be_bytes());
        put(out, 12, &self.length.to_be_bytes());
    }
}
