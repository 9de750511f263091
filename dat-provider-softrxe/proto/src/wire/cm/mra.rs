//! MRA: message receipt acknowledgement (IBTA 12.6.6).

use super::{Answered, Body};
use crate::wire::{array, be32, put};

/// Message receipt acknowledgement: the answer takes longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mra {
    /// Sender's communication id.
    pub local_id: u32,
    /// Receiver's communication id.
    pub remote_id: u32,
    /// Which message was received.
    pub message: Answered,
    /// The answer arrives within 4.096 us * 2^this.
    pub service_timeout: u8,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE_DATA],
}

impl Mra {
    /// Bytes of private data.
    pub const PRIVATE_DATA: usize = 222;

    pub(super) fn parse(b: &Body) -> Self {
        Self {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            message: Answered::from_wire(b[8] >> 6),
            service_timeout: b[9] >> 3,
            private_data: array(b, 10),
        }
    }

    pub(super) fn emit(&self, b: &mut Body) {
        put(b, 0, &self.local_id.to_be_bytes());
        put(b, 4, &self.remote_id.to_be_bytes());
        b[8] = (self.message as u8) << 6;
        b[9] = self.service_timeout << 3;
        put(b, 10, &self.private_data);
    }
}
