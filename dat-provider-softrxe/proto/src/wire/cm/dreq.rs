//! DREQ: disconnection request (IBTA 12.6.10).

use super::Body;
use crate::Qpn;
use crate::wire::{array, be24, be32, put, put24};

/// Disconnection request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dreq {
    /// Sender's communication id.
    pub local_id: u32,
    /// Receiver's communication id.
    pub remote_id: u32,
    /// The receiver's own queue pair.
    pub remote_qpn: Qpn,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE_DATA],
}

impl Dreq {
    /// Bytes of private data.
    pub const PRIVATE_DATA: usize = 220;

    pub(super) fn parse(b: &Body) -> Self {
        Self {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            remote_qpn: Qpn::new(be24(b, 8)),
            private_data: array(b, 12),
        }
    }

    pub(super) fn emit(&self, b: &mut Body) {
        put(b, 0, &self.local_id.to_be_bytes());
        put(b, 4, &self.remote_id.to_be_bytes());
        put24(b, 8, self.remote_qpn.value());
        put(b, 12, &self.private_data);
    }
}
