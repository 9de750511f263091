//! Datagram extended transport header (IBTA 9.3.1).

use super::{be24, be32, put, put24};
use crate::Qpn;

/// Datagram extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deth {
    /// Q_Key, which must be that of the receiving queue pair.
    pub qkey: u32,
    /// Sending queue pair.
    pub source: Qpn,
}

impl Deth {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Reads a header; `None` if it is cut short.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.get(..Self::LEN)?;
        Some(Self {
            qkey: be32(b, 0),
            source: Qpn::new(be24(b, 5)),
        })
    }

    /// Writes the header to the front of `out`.
    pub fn emit(&self, out: &mut [u8]) {
        put(out, 0, &self.qkey.to_be_bytes());
        out[4] = 0;
        put24(out, 5, self.source.value());
    }
}
