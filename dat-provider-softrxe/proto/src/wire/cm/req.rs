//! REQ: request for communication (IBTA 12.6.5).

use super::Body;
use crate::wire::{array, be16, be24, be32, be64, put, put24};
use crate::{Psn, Qpn};

/// A path of a REQ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CmPath {
    /// Sender's LID, 0xffff on RoCE.
    pub local_lid: u16,
    /// Receiver's LID, 0xffff on RoCE.
    pub remote_lid: u16,
    /// Sender's GID.
    pub local_gid: [u8; 16],
    /// Receiver's GID.
    pub remote_gid: [u8; 16],
    /// Flow label, 20 bits: entropy for the UDP source port.
    pub flow_label: u32,
    /// Rate code, 6 bits.
    pub packet_rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level.
    pub service_level: u8,
    /// Both ends in one subnet.
    pub subnet_local: bool,
    /// Local ACK timeout code: 4.096 us * 2^this.
    pub ack_timeout: u8,
}

impl CmPath {
    fn parse(b: &[u8]) -> Self {
        Self {
            local_lid: be16(b, 0),
            remote_lid: be16(b, 2),
            local_gid: array(b, 4),
            remote_gid: array(b, 20),
            flow_label: be24(b, 36) >> 4,
            packet_rate: b[39] & 0x3f,
            traffic_class: b[40],
            hop_limit: b[41],
            service_level: b[42] >> 4,
            subnet_local: b[42] & 8 != 0,
            ack_timeout: b[43] >> 3,
        }
    }

    fn emit(&self, b: &mut [u8]) {
        put(b, 0, &self.local_lid.to_be_bytes());
        put(b, 2, &self.remote_lid.to_be_bytes());
        put(b, 4, &self.local_gid);
        put(b, 20, &self.remote_gid);
        put24(b, 36, self.flow_label << 4);
        b[39] = self.packet_rate & 0x3f;
        b[40] = self.traffic_class;
        b[41] = self.hop_limit;
        b[42] = self.service_level << 4 | u8::from(self.subnet_local) << 3;
        b[43] = self.ack_timeout << 3;
    }
}

/// Request for communication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Req {
    /// Sender's communication id.
    pub local_id: u32,
    /// Bytes 4 to 7: vendor id.
    pub vendor: u32,
    /// Service to connect to.
    pub service_id: u64,
    /// Sender's adapter.
    pub ca_guid: u64,
    /// Local Q_Key. For RC the [offer](dat_handshake::Offer) of an engine of this project, else 0.
    pub qkey: u32,
    /// Sender's queue pair.
    pub qpn: Qpn,
    /// READs and atomics that the sender accepts.
    pub responder_resources: u8,
    /// Sender's end-to-end context, 0 for RC.
    pub local_ee_context: u32,
    /// READs and atomics that the sender issues.
    pub initiator_depth: u8,
    /// Receiver's end-to-end context, 0 for RC.
    pub remote_ee_context: u32,
    /// The receiver shall answer within 4.096 us * 2^this.
    pub remote_response_timeout: u8,
    /// 0 RC, 1 UC, 3 XRC.
    pub transport: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// First PSN that the sender expects to receive.
    pub starting_psn: Psn,
    /// The sender answers within 4.096 us * 2^this.
    pub local_response_timeout: u8,
    /// Retries of the queue pairs.
    pub retry_count: u8,
    /// Partition key.
    pub pkey: u16,
    /// Path MTU code, 1 = 256 to 5 = 4096.
    pub mtu: u8,
    /// RDC exists.
    pub rdc_exists: bool,
    /// RNR retries that the receiver may make.
    pub rnr_retry: u8,
    /// Repetitions of connection manager messages.
    pub max_cm_retries: u8,
    /// The sender's receives come from an SRQ.
    pub srq: bool,
    /// Extended transport type.
    pub extended_transport: u8,
    /// Path.
    pub primary: CmPath,
    /// Alternate path, zero for none.
    pub alternate: CmPath,
    /// Private data, the CMA header first.
    pub private_data: [u8; Self::PRIVATE_DATA],
}

impl Req {
    /// Bytes of private data.
    pub const PRIVATE_DATA: usize = 92;

    /// Changes the path MTU's code in the bytes of a REQ.
    pub(crate) fn set_mtu(b: &mut [u8], code: u8) {
        b[50] = code << 4 | b[50] & 0xf;
    }

    pub(super) fn parse(b: &Body) -> Self {
        Self {
            local_id: be32(b, 0),
            vendor: be32(b, 4),
            service_id: be64(b, 8),
            ca_guid: be64(b, 16),
            qkey: be32(b, 28),
            qpn: Qpn::new(be24(b, 32)),
            responder_resources: b[35],
            local_ee_context: be24(b, 36),
            initiator_depth: b[39],
            remote_ee_context: be24(b, 40),
            remote_response_timeout: b[43] >> 3,
            transport: b[43] >> 1 & 3,
            flow_control: b[43] & 1 != 0,
            starting_psn: Psn::new(be24(b, 44)),
            local_response_timeout: b[47] >> 3,
            retry_count: b[47] & 7,
            pkey: be16(b, 48),
            mtu: b[50] >> 4,
            rdc_exists: b[50] & 8 != 0,
            rnr_retry: b[50] & 7,
            max_cm_retries: b[51] >> 4,
            srq: b[51] & 8 != 0,
            extended_transport: b[51] & 7,
            primary: CmPath::parse(&b[52..96]),
            alternate: CmPath::parse(&b[96..140]),
            private_data: array(b, 140),
        }
    }

    pub(super) fn emit(&self, b: &mut Body) {
        put(b, 0, &self.local_id.to_be_bytes());
        put(b, 4, &self.vendor.to_be_bytes());
        put(b, 8, &self.service_id.to_be_bytes());
        put(b, 16, &self.ca_guid.to_be_bytes());
        put(b, 28, &self.qkey.to_be_bytes());
        put24(b, 32, self.qpn.value());
        b[35] = self.responder_resources;
        put24(b, 36, self.local_ee_context);
        b[39] = self.initiator_depth;
        put24(b, 40, self.remote_ee_context);
        b[43] = self.remote_response_timeout << 3
            | (self.transport & 3) << 1
            | u8::from(self.flow_control);
        put24(b, 44, self.starting_psn.value());
        b[47] = self.local_response_timeout << 3 | self.retry_count & 7;
        put(b, 48, &self.pkey.to_be_bytes());
        b[50] = self.mtu << 4 | u8::from(self.rdc_exists) << 3 | self.rnr_retry & 7;
        b[51] = self.max_cm_retries << 4 | u8::from(self.srq) << 3 | self.extended_transport & 7;
        self.primary.emit(&mut b[52..96]);
        self.alternate.emit(&mut b[96..140]);
        put(b, 140, &self.private_data);
    }
}
