//! REJ: reject (IBTA 12.6.7).

use super::{Answered, Body};
use crate::RejectReason;
use crate::wire::{array, be16, be32, put};

/// Reject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rej {
    /// Sender's communication id; 0 if it made none.
    pub local_id: u32,
    /// Receiver's communication id.
    pub remote_id: u32,
    /// Which message is rejected.
    pub message: Answered,
    /// Used bytes of `info`.
    pub info_length: u8,
    /// Reason for the REJ.
    pub reason: RejectReason,
    /// Additional reject information: for a timeout the CA GUID.
    pub info: [u8; 72],
    /// Private data.
    pub private_data: [u8; Self::PRIVATE_DATA],
}

impl Rej {
    /// Bytes of private data.
    pub const PRIVATE_DATA: usize = 148;

    pub(super) fn parse(b: &Body) -> Self {
        Self {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            message: Answered::from_wire(b[8] >> 6),
            info_length: b[9] >> 1,
            reason: RejectReason(be16(b, 10)),
            info: array(b, 12),
            private_data: array(b, 84),
        }
    }

    pub(super) fn emit(&self, b: &mut Body) {
        put(b, 0, &self.local_id.to_be_bytes());
        put(b, 4, &self.remote_id.to_be_bytes());
        b[8] = (self.message as u8) << 6;
        b[9] = self.info_length << 1;
        put(b, 10, &self.reason.0.to_be_bytes());
        put(b, 12, &self.info);
        put(b, 84, &self.private_data);
    }
}
