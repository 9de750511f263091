//! Service id resolution: finds a datagram queue pair by its service id (IBTA 12.11).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::connection::{Mad, mad};
use crate::Qpn;
use crate::time::{Spared, Time};
use crate::wire::cm::{CmMessage, SidrRep, SidrReq, private_data};
use crate::wire::cma::CmaHeader;

/// Arguments of `Engine::sidr_request`.
#[derive(Clone, Copy, Debug)]
pub struct SidrRequest<'a> {
    /// The peer's address and UDP port (4791).
    pub remote: SocketAddr,
    /// Service to resolve; [`service_id::udp`](crate::service_id::udp) for rdma_cm ports.
    pub service_id: u64,
    /// Our port in the CMA header.
    pub source_port: u16,
    /// At most 180 bytes.
    pub private_data: &'a [u8],
    /// Time after which the answer is not needed and the request is not repeated; `None` if there is no such time.
    pub timeout: Option<Duration>,
}

/// Arguments of `Engine::sidr_reply`.
#[derive(Clone, Copy, Debug)]
pub struct SidrReply<'a> {
    /// 0 valid, 1 no such service, 2 rejected, 3 no queue pair.
    pub status: u8,
    /// The service's queue pair.
    pub qpn: Qpn,
    /// The queue pair's Q_Key.
    pub qkey: u32,
    /// At most 136 bytes.
    pub private_data: &'a [u8],
}

/// What makes a peer's request the same one as an earlier one: address, request id and transaction. The answer has the transaction of its
/// request, so it is none to another request with that id.
pub(crate) type RequestKey = (IpAddr, u32, u64);

/// A resolution. Ours: its request is repeated. A peer's: it is unanswered, or its answer is kept for repetition.
#[derive(Debug)]
pub(crate) struct Resolution {
    pub(crate) ours: bool,
    pub(crate) remote: SocketAddr,
    pub(crate) request_id: u32,
    pub(crate) transaction: u64,
    pub(crate) service_id: u64,
    pub(crate) last: Option<Box<Mad>>,
    pub(crate) repeated: u8,
    pub(crate) spared: Spared,
    /// Time from which on ours is not repeated.
    pub(crate) until: Option<Time>,
    /// Time of the next repetition of ours. The deadline of a peer's is in `pending`.
    pub(crate) due: Option<Time>,
}

impl Resolution {
    /// Returns the key of a peer's resolution.
    pub(crate) const fn request_key(&self) -> RequestKey {
        (self.remote.ip(), self.request_id, self.transaction)
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
