//! Atomic extended transport header (IBTA 9.3.4).

use super::{be32, be64, put};

/// Target and operands of an atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicEth {
    /// Eight bytes at the responder.
    pub va: u64,
    /// R_Key.
    pub rkey: u32,
    /// Value to store, or to add.
    pub swap_or_add: u64,
    /// Value expected; 0 for fetch and add.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// Reads a header; `None` if it is cut short.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.get(..Self::LEN)?;
        Some(Self {
            va: be64(b, 0),
            rkey: be32(b, 8),
            swap_or_add: be64(b, 12),
            compare: be64(b, 20),
        })
    }

    /// Writes the header to the front of `out`.
    pub fn emit(&self, out: &mut [u8]) {
        put(out, 0, &self.va.to_be_bytes());
        put(out, 8, &self.rkey.to_be_bytes());
        put(out, 12, &self.swap_or_add.to_be_bytes());
        put(out, 20, &self.compare.to_be_bytes());
    }
}
