//! DREP: disconnection reply (IBTA 12.6.11).

use super::Body;
use crate::wire::{array, be32, put};

/// Disconnection reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drep {
    /// Sender's communication id.
    pub local_id: u32,
    /// Receiver's communication id.
    pub remote_id: u32,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE_DATA],
}

impl Drep {
    /// Bytes of private data.
    pub const PRIVATE_DATA: usize = 224;

    pub(super) fn parse(b: &Body) -> Self {
        Self {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            private_data: array(b, 8),
        }
    }

    pub(super) fn emit(&self, b: &mut Body) {
        put(b, 0, &self.local_id.to_be_bytes());
        put(b, 4, &self.remote_id.to_be_bytes());
        put(b, 8, &self.private_data);
    }
}
