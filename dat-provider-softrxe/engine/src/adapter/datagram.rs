//! Datagram queue pairs: service id resolution (IBTA 12.11), the way in which rdma_cm resolves them, with the header
//! [`Caller`](dat_handshake::Caller) in the request. The peer may be the kernel's engine or this one.

use std::net::{IpAddr, SocketAddr};

use dat_core::transport::Token;
use dat_core::upcall::DatagramOutcome;
use dat_handshake::rdma_cm::consumers_refusal;
use softrxe_proto::{CmEventKind, CmId, Engine, Qpn, SidrReply, Time};

use crate::memory::regions::Regions;
use crate::user_engine::UserEngine;

/// The Q_Key of all datagram queue pairs that rdma_cm connects.
pub(crate) const QKEY: u32 = 0x0123_4567;

/// Statuses of a reply (IBTA 12.11.2).
pub(crate) const VALID: u8 = 0;
const NO_SERVICE: u8 = 1;
const REJECTED: u8 = 2;

/// Destination of datagrams.
#[derive(Clone, Copy, Debug)]
pub struct AddressHandle {
    pub(crate) address: IpAddr,
    pub(crate) qkey: u32,
}

/// A resolution request of this side that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(crate) token: Token,
    /// The queue pair that is to send to the peer.
    pub(crate) qpn: Qpn,
    /// Address and port of the peer.
    pub(crate) remote: SocketAddr,
}

impl Query {
    /// Returns the outcome of this query, which the event `kind` ends.
    pub(crate) fn outcome(&self, kind: &CmEventKind) -> DatagramOutcome<UserEngine> {
        match kind {
            CmEventKind::SidrReply {
                status: VALID,
                qpn,
                qkey,
                private_data,
            } => DatagramOutcome::Resolved {
                address: AddressHandle {
                    address: self.remote.ip(),
                    qkey: *qkey,
                },
                qpn: qpn.value(),
                remote: self.remote,
                private_data: private_data.clone(),
            },
            CmEventKind::SidrReply {
                status: REJECTED,
                private_data,
                ..
            } => match consumers_refusal(private_data) {
                Some(data) => DatagramOutcome::PeerRejected {
                    private_data: data.into(),
                },
                None => DatagramOutcome::Failed,
            },
            CmEventKind::SidrReply {
                status: NO_SERVICE, ..
            } => DatagramOutcome::NoListener,
            _ => DatagramOutcome::Failed,
        }
    }
}

/// Refuses the peer's query `id`. `data` begins with the version word of a refusal if the consumer refuses it.
pub(crate) fn refuse(engine: &mut Engine<Regions>, now: Time, id: CmId, data: &[u8]) {
    let reply = SidrReply {
        status: REJECTED,
        qpn: Qpn::default(),
        qkey: 0,
        private_data: data,
    };
    // Fails if the peer has given up, which then needs no reply.
    let _ = engine.sidr_reply(now, id, &reply);
}
