//! Connection manager (IBTA 12), as rdma_cm uses it over RoCE.
//!
//! `state` is the pure table; `connection` and `sidr` hold what a connection or resolution knows and build its messages;
//! `table` finds them, `unproven` says which requests may wait. The engine (`engine::cm`) executes what the table says.

pub(crate) mod connection;
pub(crate) mod sidr;
pub mod state;
pub(crate) mod table;
pub(crate) mod unproven;

use std::net::SocketAddr;

use crate::{CmId, Qpn};

/// Arguments of `Engine::connect`.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// The peer's address and UDP port (4791).
    pub remote: SocketAddr,
    /// What to connect to; [`service_id::tcp`](crate::service_id::tcp) for rdma_cm ports.
    pub service_id: u64,
    /// Port that the CMA header names as ours.
    pub source_port: u16,
    /// At most 56 bytes.
    pub private_data: &'a [u8],
    /// READs and atomics that we issue at most; the peer may allow fewer.
    pub initiator_depth: u8,
    /// READs and atomics that we accept at most.
    pub responder_resources: u8,
    /// Path MTU, if smaller than the engine's.
    pub mtu: Option<u16>,
    /// Timeouts of the queue pair in a row before giving up, 0..=7.
    pub retry_count: u8,
    /// RNR NAKs in a row before giving up; 7 is for ever.
    pub rnr_retry: u8,
}

impl<'a> Connect<'a> {
    /// With 16 READs each way and as many retries as there are.
    #[must_use]
    pub const fn new(remote: SocketAddr, service_id: u64, private_data: &'a [u8]) -> Self {
        Self {
            remote,
            service_id,
            source_port: 0,
            private_data,
            initiator_depth: 16,
            responder_resources: 16,
            mtu: None,
            retry_count: 7,
            rnr_retry: 7,
        }
    }
}

/// Arguments of `Engine::accept`.
#[derive(Clone, Copy, Debug)]
pub struct Accept<'a> {
    /// At most 196 bytes.
    pub private_data: &'a [u8],
    /// READs and atomics that we issue at most; the peer may allow fewer.
    pub initiator_depth: u8,
    /// READs and atomics that we accept at most; the peer may want fewer.
    pub responder_resources: u8,
    /// RNR NAKs in a row that the peer stands; 7 is for ever.
    pub rnr_retry: u8,
}

impl<'a> Accept<'a> {
    /// With 16 READs each way.
    #[must_use]
    pub const fn new(private_data: &'a [u8]) -> Self {
        Self {
            private_data,
            initiator_depth: 16,
            responder_resources: 16,
            rnr_retry: 7,
        }
    }
}

/// Why the connection manager refused a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CmError {
    /// The id is dead or was never one.
    #[error("{0:?} is over; its last event said why")]
    UnknownId(CmId),
    /// No such queue pair, or not one that can be connected.
    #[error("{0:?} is not an unconnected RC queue pair; create one or reset it")]
    QueuePair(Qpn),
    /// Not possible in the present state.
    #[error("{id:?} is in state {state:?}, which does not allow it")]
    State {
        /// The connection.
        id: CmId,
        /// Its state.
        state: state::State,
    },
    /// The service id has a listener.
    #[error("service id {0:#x} is listened on already; choose another port")]
    ServiceInUse(u64),
    /// More private data than the message has room for.
    #[error("{given} bytes of private data where {max} fit")]
    PrivateData {
        /// Bytes given.
        given: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// The local and remote address are of different families.
    #[error("{0} cannot be reached from this engine's address: different family")]
    Family(SocketAddr),
    /// The process has no memory for it.
    #[error("no memory for another connection; end some, or raise the process's limit")]
    NoMemory,
}
