//! Service id resolution: how a datagram queue pair is found (IBTA 12.11).

use std::net::{IpAddr, SocketAddr};

use super::connection::{Mad, mad};
use crate::Qpn;
use crate::time::Time;
use crate::wire::cm::{CmMessage, SidrRep, SidrReq, private_data};
use crate::wire::cma::CmaHeader;

/// Arguments of `Engine::sidr_request`.
#[derive(Clone, Copy, Debug)]
pub struct SidrRequest<'a> {
    /// The peer's address and UDP port (4791).
    pub remote: SocketAddr,
    /// What to resolve; [`service_id::udp`](crate::service_id::udp) for rdma_cm ports.
    pub service_id: u64,
    /// Port that the CMA header names as ours.
    pub source_port: u16,
    /// At most 180 bytes.
    pub private_data: &'a [u8],
}

/// Arguments of `Engine::sidr_reply`.
#[derive(Clone, Copy, Debug)]
pub struct SidrReply<'a> {
    /// 0 valid, 1 no such service, 2 rejected, 3 no queue pair.
    pub status: u8,
    /// The service's queue pair.
    pub qpn: Qpn,
    /// Its Q_Key.
    pub qkey: u32,
    /// At most 136 bytes.
    pub private_data: &'a [u8],
}

/// A resolution under way: asked by us (a request is repeated) or by a peer (an answer is owed, or kept
/// for repetitions of the question).
#[derive(Debug)]
pub(crate) struct Resolution {
    pub(crate) ours: bool,
    pub(crate) remote: SocketAddr,
    pub(crate) request_id: u32,
    pub(crate) transaction: u64,
    pub(crate) service_id: u64,
    pub(crate) last: Option<Box<Mad>>,
    pub(crate) repeated: u8,
    /// When ours is repeated; a peer's question waits as `unproven` says.
    pub(crate) due: Option<Time>,
}

impl Resolution {
    /// What a peer's question is known by.
    pub(crate) const fn asked(&self) -> (IpAddr, u32) {
        (self.remote.ip(), self.request_id)
    }
}

pub(crate) fn request(
    request_id: u32,
    transaction: u64,
    local: SocketAddr,
    arguments: &SidrRequest<'_>,
) -> Box<Mad> {
    let mut field = [0; SidrReq::PRIVATE_DATA];
    let (header, rest) = field.split_at_mut(CmaHeader::LEN);
    CmaHeader {
        source: local,
        destination: arguments.remote.ip(),
    }
    .emit(header);
    rest[..arguments.private_data.len()].copy_from_slice(arguments.private_data);
    let message = SidrReq {
        request_id,
        pkey: 0xffff,
        service_id: arguments.service_id,
        private_data: field,
    };
    mad(transaction, &CmMessage::SidrReq(message))
}

pub(crate) fn reply(resolution: &Resolution, arguments: &SidrReply<'_>) -> Box<Mad> {
    let message = SidrRep {
        request_id: resolution.request_id,
        status: arguments.status,
        info_length: 0,
        vendor_high: 0,
        qpn: arguments.qpn,
        vendor_low: 0,
        service_id: resolution.service_id,
        qkey: arguments.qkey,
        info: [0; 72],
        private_data: private_data(arguments.private_data),
    };
    mad(resolution.transaction, &CmMessage::SidrRep(message))
}
