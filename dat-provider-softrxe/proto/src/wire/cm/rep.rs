//! REP: reply to a request for communication (IBTA 12.6.8).

use super::Body;
use crate::wire::{array, be24, be32, be64, put, put24};
use crate::{Psn, Qpn};

/// Reply to a request for communication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rep {
    /// Sender's communication id.
    pub local_id: u32,
    /// Receiver's communication id.
    pub remote_id: u32,
    /// Local Q_Key. For RC the [offer](dat_handshake::Offer) of an engine of this project to another, else 0.
    pub qkey: u32,
    /// Sender's queue pair.
    pub qpn: Qpn,
    /// Byte 15: vendor id, high part.
    pub vendor_high: u8,
    /// End-to-end context, 0 for RC.
    pub ee_context: u32,
    /// First PSN that the sender expects to receive.
    pub starting_psn: Psn,
    /// READs and atomics that the sender accepts.
    pub responder_resources: u8,
    /// READs and atomics that the sender issues.
    pub initiator_depth: u8,
    /// The sender answers packets within 4.096 us * 2^this.
    pub target_ack_delay: u8,
    /// Failover accepted.
    pub failover: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// RNR retries that the receiver may make.
    pub rnr_retry: u8,
    /// The sender's receives come from an SRQ.
    pub srq: bool,
    /// Sender's adapter.
    pub ca_guid: u64,
    /// Private data.
    pub private_data: [u8; Self::PRIVATE_DATA],
}

impl Rep {
    /// Bytes of private data.
    pub const PRIVATE_DATA: usize = 196;

    pub(super) fn parse(b: &Body) -> Self {
        Self {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            qkey: be32(b, 8),
            qpn: Qpn::new(be24(b, 12)),
            vendor_high: b[15],
            ee_context: be24(b, 16),
            starting_psn: Psn::new(be24(b, 20)),
            responder_resources: b[24],
            initiator_depth: b[25],
            target_ack_delay: b[26] >> 3,
            failover: b[26] >> 1 & 3,
            flow_control: b[26] & 1 != 0,
            rnr_retry: b[27] >> 5,
            srq: b[27] & 0x10 != 0,
            ca_guid: be64(b, 28),
            private_data: array(b, 36),
        }
    }

    pub(super) fn emit(&self, b: &mut Body) {
        put(b, 0, &self.local_id.to_be_bytes());
        put(b, 4, &self.remote_id.to_be_bytes());
        put(b, 8, &self.qkey.to_be_bytes());
        put24(b, 12, self.qpn.value());
        b[15] = self.vendor_high;
        put24(b, 16, self.ee_context);
        put24(b, 20, self.starting_psn.value());
        b[24] = self.responder_resources;
        b[25] = self.initiator_depth;
        b[26] = self.target_ack_delay << 3 | (self.failover & 3) << 1 | u8::from(self.flow_control);
        b[27] = self.rnr_retry << 5 | u8::from(self.srq) << 4;
        put(b, 28, &self.ca_guid.to_be_bytes());
        put(b, 36, &self.private_data);
    }
}
