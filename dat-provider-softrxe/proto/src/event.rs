//! Events from the engine to the driver.

use std::net::SocketAddr;

use crate::Qpn;
use crate::work::{CqId, SrqId, Status};

/// A connection, attempt or request of the connection manager: its local communication id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct CmId(pub(crate) u32);

impl CmId {
    /// Returns the communication id in our messages.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// An event, from `Engine::poll_event`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Something happened to a connection.
    Cm(CmEvent),
    /// An armed completion queue received a completion; it is no longer armed.
    CqReady(CqId),
    /// A queue pair failed.
    QpError {
        /// The queue pair.
        qpn: Qpn,
        /// The queue pair's connection at that time; it may have another one when the event is read.
        connection: Option<CmId>,
        /// The queue pair's token, as created.
        token: u64,
        /// Cause of the failure.
        status: Status,
    },
    /// Fewer receives than the limit are left; the limit is disarmed.
    SrqLimit(SrqId),
}

/// Something happened to a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CmEvent {
    /// The connection.
    pub id: CmId,
    /// The queue pair, once there is one.
    pub qpn: Option<Qpn>,
    /// What happened.
    pub kind: CmEventKind,
}

/// What happened to a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CmEventKind {
    /// A peer requests a connection: answer with `accept` or `reject`.
    Request(ConnectRequest),
    /// Connected. Active side: the peer's private data in the full length of the field (196).
    Established(Box<[u8]>),
    /// The peer refused, or the attempt failed before the connection was established. The id is dead.
    Rejected {
        /// Reason code of the REJ.
        reason: RejectReason,
        /// Private data, full length of the field (148).
        private_data: Box<[u8]>,
    },
    /// No answer after all retries. The id is dead.
    TimedOut,
    /// Either side ended the connection. The id is dead.
    Disconnected,
    /// A message about a request that was [passed on](crate::Engine::pass_on), for the engine that has it:
    /// [`Engine::forwarded`](crate::Engine::forwarded).
    Forwarded(Forwarded),
    /// A peer requests a datagram queue pair: answer with `sidr_reply`.
    SidrRequest(ConnectRequest),
    /// The answer to `sidr_request`. The id is dead.
    SidrReply {
        /// 0 = valid.
        status: u8,
        /// The peer's queue pair.
        qpn: Qpn,
        /// The peer's Q_Key.
        qkey: u32,
        /// Private data, full length of the field (136).
        private_data: Box<[u8]>,
    },
}

/// What a peer sent to the engine that passed its request on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forwarded {
    /// The REQ again.
    Repeated,
    /// A REJ: the peer gave up before a REP reached it.
    Cancelled,
}

/// A peer's request to connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectRequest {
    /// Service id that is listened on.
    pub service_id: u64,
    /// The peer's address, and its port from the CMA header.
    pub remote: SocketAddr,
    /// Limit of READs and atomics that the peer issues.
    pub initiator_depth: u8,
    /// Limit of READs and atomics that the peer accepts.
    pub responder_resources: u8,
    /// Private data after the CMA header, in the full length of the field (REQ 56, SIDR_REQ 180).
    pub private_data: Box<[u8]>,
}

/// Reason of a REJ (IBTA 12.6.7.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// No queue pair available.
    pub const NO_QP: Self = Self(1);
    /// No resources available.
    pub const NO_RESOURCES: Self = Self(3);
    /// An answer did not come in time.
    pub const TIMEOUT: Self = Self(4);
    /// Unsupported request.
    pub const UNSUPPORTED: Self = Self(5);
    /// Invalid communication id.
    pub const INVALID_COMM_ID: Self = Self(6);
    /// No listener for the service id.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// Invalid transport service type.
    pub const INVALID_TRANSPORT: Self = Self(9);
    /// The request uses ids of a connection that still exists.
    pub const STALE_CONNECTION: Self = Self(10);
    /// The GID is not ours.
    pub const INVALID_GID: Self = Self(12);
    /// The path MTU is not acceptable.
    pub const INVALID_MTU: Self = Self(26);
    /// The consumer refused.
    pub const CONSUMER: Self = Self(28);
}
