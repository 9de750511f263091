//! Connection manager (IBTA 12), as rdma_cm uses it over RoCE.
//!
//! `state` is the pure state table. `connection` and `sidr` hold the data of a connection or resolution and build its
//! messages. `table` indexes them, `peer` identifies the other end. `pending` limits the requests that wait for the consumer,
//! `answered` knows those that have come before, `asked` the services that they are for. The engine (`engine::cm`) executes the actions of the state table.

pub(crate) mod answered;
pub(crate) mod asked;
pub(crate) mod connection;
pub(crate) mod peer;
pub(crate) mod pending;
pub(crate) mod sidr;
pub mod state;
pub(crate) mod table;

use std::net::SocketAddr;

use crate::{CmId, Qpn};

/// Arguments of `Engine::connect`.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// The peer's address and UDP port (4791).
    pub remote: SocketAddr,
    /// Service to connect to; [`service_id::tcp`](crate::service_id::tcp) for rdma_cm ports.
    pub service_id: u64,
    /// Our port in the CMA header.
    pub source_port: u16,
    /// At most 56 bytes.
    pub private_data: &'a [u8],
    /// Limit of READs and atomics that this side issues; the peer may allow fewer.
    pub initiator_depth: u8,
    /// Limit of READs and atomics that this side accepts.
    pub responder_resources: u8,
    /// Path MTU, if smaller than the engine's.
    pub mtu: Option<u16>,
    /// Consecutive timeouts of the queue pair before it fails, 0..=7.
    pub retry_count: u8,
    /// Consecutive RNR NAKs before the queue pair fails; 7 means no limit.
    pub rnr_retry: u8,
}

impl<'a> Connect<'a> {
    /// Returns arguments with 16 READs each way and the highest retry counts.
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
    /// Limit of READs and atomics that this side issues; the peer may allow fewer.
    pub initiator_depth: u8,
    /// Limit of READs and atomics that this side accepts; the peer may use fewer.
    pub responder_resources: u8,
    /// Consecutive RNR NAKs before the peer's queue pair fails; 7 means no limit.
    pub rnr_retry: u8,
}

impl<'a> Accept<'a> {
    /// Returns arguments with 16 READs each way.
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
    /// The id is dead or never existed.
    #[error("{0:?} has ended; its last event has the reason")]
    UnknownId(CmId),
    /// No such queue pair, or not one that can be connected.
    #[error("{0:?} is not an unconnected RC queue pair; create one or reset it")]
    QueuePair(Qpn),
    /// The connection's state does not allow the call.
    #[error(
        "{id:?} is in state {state:?}, which does not allow this call; wait for its next event"
    )]
    State {
        /// The connection.
        id: CmId,
        /// Its state.
        state: state::State,
    },
    /// The service id already has a listener.
    #[error("service id {0:#x} has a listener already; choose another port")]
    ServiceInUse(u64),
    /// More private data than the message has room for.
    #[error("{given} bytes of private data; the message has room for {max}")]
    PrivateData {
        /// Bytes given.
        given: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// The local and remote address are of different families.
    #[error("{0} cannot be reached from this engine's address: different family")]
    Family(SocketAddr),
    /// The peer's queue pair has a connection that has not ended here.
    #[error(
        "the peer's {0:?} is still connected here; the peer may connect again once that has ended"
    )]
    Stale(Qpn),
    /// An allocation failed.
    #[error("no memory for another connection; end some, or raise the process's limit")]
    NoMemory,
}
