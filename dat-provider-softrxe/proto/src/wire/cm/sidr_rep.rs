//! SIDR_REP: service id resolution response (IBTA 12.11.2).

use super::Body;
use crate::Qpn;
use crate::wire::{array, be16, be24, be32, be64, put, put24};

/// Service id resolution response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrRep {
    /// The request's id.
    pub request_id: u32,
    /// 0 valid, 1 no such service id, 2 rejected, 3 no queue pair.
    pub status: u8,
    /// Used bytes of `info`.
    pub info_length: u8,
    /// Bytes 6 and 7: vendor id, high part.
    pub vendor_high: u16,
    /// The service's queue pair.
    pub qpn: Qpn,
    /// Byte 11: vendor id, low part.
    pub vendor_low: u8,
    /// The request's service id.
    pub service_id: u64,
    /// Q_Key of the queue pair.
    pub qkey: u32,
    /// Additional information.
    pub info: [u8; 72],
    /// Private data.
    pub private_data: [u8; Self::PRIVATE_DATA],
}

impl SidrRep {
    /// Bytes of private data.
    pub const PRIVATE_DATA: usize = 136;

    pub(super) fn parse(b: &Body) -> Self {
        Self {
            request_id: be32(b, 0),
            status: b[4],
            info_length: b[5],
            vendor_high: be16(b, 6),
            qpn: Qpn::new(be24(b, 8)),
            vendor_low: b[11],
            service_id: be64(b, 12),
            qkey: be32(b, 20),
            info: array(b, 24),
            private_data: array(b, 96),
        }
    }

    pub(super) fn emit(&self, b: &mut Body) {
        put(b, 0, &self.request_id.to_be_bytes());
        b[4] = self.status;
        b[5] = self.info_length;
        put(b, 6, &self.vendor_high.to_be_bytes());
        put24(b, 8, self.qpn.value());
        b[11] = self.vendor_low;
        put(b, 12, &self.service_id.to_be_bytes());
        put(b, 20, &self.qkey.to_be_bytes());
        put(b, 24, &self.info);
        put(b, 96, &self.private_data);
    }
}
