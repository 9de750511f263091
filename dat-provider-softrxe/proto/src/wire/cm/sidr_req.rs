//! SIDR_REQ: service id resolution request (IBTA 12.11.1).

use super::Body;
use crate::wire::{array, be16, be32, be64, put};

/// Service id resolution request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrReq {
    /// Sender's request id.
    pub request_id: u32,
    /// Partition key.
    pub pkey: u16,
    /// Service to resolve.
    pub service_id: u64,
    /// Private data, the CMA header first.
    pub private_data: [u8; Self::PRIVATE_DATA],
}

impl SidrReq {
    /// Bytes of private data.
    pub const PRIVATE_DATA: usize = 216;

    pub(super) fn parse(b: &Body) -> Self {
        Self {
            request_id: be32(b, 0),
            pkey: be16(b, 4),
            service_id: be64(b, 8),
            private_data: array(b, 16),
        }
    }

    pub(super) fn emit(&self, b: &mut Body) {
        put(b, 0, &self.request_id.to_be_bytes());
        put(b, 4, &self.pkey.to_be_bytes());
        put(b, 8, &self.service_id.to_be_bytes());
        put(b, 16, &self.private_data);
    }
}
