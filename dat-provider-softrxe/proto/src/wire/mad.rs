//! Common header of management datagrams (IBTA 13.4.3), as the connection manager uses it.

use super::{be16, be32, be64, put};

/// Management datagram header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MadHeader {
    /// Base version, 1.
    pub base_version: u8,
    /// Management class.
    pub class: u8,
    /// Class version.
    pub class_version: u8,
    /// Response bit and method.
    pub method: u8,
    /// Status.
    pub status: u16,
    /// Class specific.
    pub class_specific: u16,
    /// Transaction id.
    pub transaction_id: u64,
    /// Attribute id: which message.
    pub attribute_id: u16,
    /// Attribute modifier.
    pub modifier: u32,
}

impl MadHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 24;
    /// Bytes of a whole management datagram.
    pub const MAD_LEN: usize = 256;
    /// Management class of communication management.
    pub const CLASS_CM: u8 = 0x07;
    /// Method Send: every CM message, answers too.
    pub const METHOD_SEND: u8 = 0x03;

    /// Header of a CM message.
    #[must_use]
    pub const fn cm(transaction_id: u64, attribute_id: u16) -> Self {
        Self {
            base_version: 1,
            class: Self::CLASS_CM,
            class_version: 2,
            method: Self::METHOD_SEND,
            status: 0,
            class_specific: 0,
            transaction_id,
            attribute_id,
            modifier: 0,
        }
    }

    /// Reads a header; `None` if it is cut short.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.get(..Self::LEN)?;
        Some(Self {
            base_version: b[0],
            class: b[1],
            class_version: b[2],
            method: b[3],
            status: be16(b, 4),
            class_specific: be16(b, 6),
            transaction_id: be64(b, 8),
            attribute_id: be16(b, 16),
            modifier: be32(b, 20),
        })
    }

    /// Writes the header to the front of `out`.
    pub fn emit(&self, out: &mut [u8]) {
        out[0] = self.base_version;
        out[1] = self.class;
        out[2] = self.class_version;
        out[3] = self.method;
        put(out, 4, &self.status.to_be_bytes());
        put(out, 6, &self.class_specific.to_be_bytes());
        put(out, 8, &self.transaction_id.to_be_bytes());
        put(out, 16, &self.attribute_id.to_be_bytes());
        put(out, 18, &[0, 0]);
        put(out, 20, &self.modifier.to_be_bytes());
    }
}
