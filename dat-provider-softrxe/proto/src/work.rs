//! Work requests and completions.

use std::net::IpAddr;

use crate::Qpn;
use crate::memory::MwBind;

/// A range of local registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// L_Key.
    pub key: u32,
}

/// A completion queue of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CqId(pub(crate) u32);

/// A shared receive queue of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SrqId(pub(crate) u32);

/// Remote memory named by a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// First byte at the peer.
    pub address: u64,
    /// The peer's R_Key.
    pub key: u32,
}

/// What a send-queue request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// SEND.
    Send,
    /// SEND with immediate data, in wire order.
    SendImm([u8; 4]),
    /// SEND that invalidates a key of the peer.
    SendInvalidate(u32),
    /// RDMA WRITE.
    Write(Remote),
    /// RDMA WRITE that also consumes a receive of the peer.
    WriteImm(Remote, [u8; 4]),
    /// RDMA READ into the SGEs.
    Read(Remote),
    /// Compare and swap eight bytes; the value before goes to the SGEs.
    CompareSwap {
        /// Eight aligned bytes at the peer.
        remote: Remote,
        /// Value expected.
        compare: u64,
        /// Value to store.
        swap: u64,
    },
    /// Fetch and add; the value before goes to the SGEs.
    FetchAdd {
        /// Eight aligned bytes at the peer.
        remote: Remote,
        /// Value to add, with wrap-around.
        add: u64,
    },
    /// Invalidates a local key, in order.
    LocalInvalidate(u32),
    /// Binds a memory window, in order.
    Bind(MwBind),
    /// UD SEND to any queue pair, at most one path MTU.
    Datagram {
        /// Destination.
        to: DatagramPeer,
        /// Immediate data, in wire order.
        immediate: Option<[u8; 4]>,
    },
}

/// The other end of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramPeer {
    /// Address.
    pub address: IpAddr,
    /// Queue pair.
    pub qpn: Qpn,
    /// Its Q_Key.
    pub qkey: u32,
}

/// A request for a send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Name of the request in its completion.
    pub wr_id: u64,
    /// Operation.
    pub op: Op,
    /// Local memory, at most the queue pair's `max_sge`.
    pub sges: &'a [Sge],
    /// Raise a completion also on success.
    pub signaled: bool,
    /// Request a solicited event at the peer.
    pub solicited: bool,
    /// Wait for all earlier READs and atomics.
    pub fence: bool,
}

impl<'a> SendRequest<'a> {
    /// Creates a signaled request without flags.
    #[must_use]
    pub const fn new(wr_id: u64, op: Op, sges: &'a [Sge]) -> Self {
        Self {
            wr_id,
            op,
            sges,
            signaled: true,
            solicited: false,
            fence: false,
        }
    }
}

/// Status of a completed work request (IBTA 10.10.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Status {
    /// Success.
    #[default]
    Success,
    /// A message was longer than the receive or the READ's SGEs.
    LocalLength,
    /// A local key does not grant the access.
    LocalProtection,
    /// The local side failed in another way.
    LocalOperation,
    /// Flushed: the queue pair is in Error.
    Flushed,
    /// Binding or invalidating a window failed.
    MemoryWindowBind,
    /// The peer found the request invalid (NAK 0x61).
    RemoteInvalidRequest,
    /// The peer refused the access (NAK 0x62).
    RemoteAccess,
    /// The peer failed (NAK 0x63).
    RemoteOperation,
    /// No answer after all retries.
    RetryExceeded,
    /// No receive was posted at the peer after all retries.
    RnrRetryExceeded,
}

impl Status {
    /// Says why a queue pair failed with this status, at either end.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Success | Self::Flushed => "it was ended",
            Self::LocalLength => "a message of the peer is longer than the receive or the READ",
            Self::LocalProtection => "memory of a request or receive is not registered for it",
            Self::LocalOperation => "an operation failed here",
            Self::MemoryWindowBind => "a window could not be bound or invalidated",
            Self::RemoteInvalidRequest => "one end sent what the other one finds invalid",
            Self::RemoteAccess => "one end used a key that the other one refuses",
            Self::RemoteOperation => "the end that received a request could not execute it",
            Self::RetryExceeded => {
                "the peer does not answer, or its process has ended; see also `retry` and `ack_timer` of ia_params"
            }
            Self::RnrRetryExceeded => {
                "the peer has no receive posted for a message; it says by `rnr_retry` of its ia_params how often that is repeated"
            }
        }
    }
}

/// Operation of a completed work request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CompletedOp {
    /// SEND, with or without immediate or invalidate, or a datagram.
    #[default]
    Send,
    /// RDMA WRITE, with or without immediate.
    Write,
    /// RDMA READ.
    Read,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// Local invalidate.
    LocalInvalidate,
    /// Window bind.
    Bind,
    /// A receive of a SEND.
    Receive,
    /// A receive consumed by a WRITE with immediate.
    ReceiveWriteImm,
}

/// A completed work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Completion {
    /// Name of the request, as posted.
    pub wr_id: u64,
    /// Token of the queue pair, as created.
    pub token: u64,
    /// The queue pair.
    pub qpn: Qpn,
    /// How it ended.
    pub status: Status,
    /// What ended.
    pub op: CompletedOp,
    /// Bytes received, written or read; for a UD receive including the 40 bytes of global route header.
    pub length: u32,
    /// Immediate data, in wire order.
    pub immediate: Option<[u8; 4]>,
    /// Key that the peer invalidated.
    pub invalidated: Option<u32>,
    /// The message asked for a solicited event.
    pub solicited: bool,
    /// Source of a datagram.
    pub source: Option<(IpAddr, Qpn)>,
}

/// Reason to refuse a post; nothing was posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PostError {
    /// No such queue pair or shared receive queue.
    #[error("the queue does not exist any more; create a new one")]
    UnknownQueue,
    /// The ring is full.
    #[error("all {0} work requests of the queue are outstanding; wait for completions")]
    Full(usize),
    /// The memory for a larger ring is missing.
    #[error(
        "no memory for a queue of {0} work requests; wait for completions, or raise the process's limit"
    )]
    NoMemory(usize),
    /// Too many SGEs.
    #[error("{given} SGEs posted to a queue made for {max}; raise max_sge when creating it")]
    TooManySges {
        /// SGEs posted.
        given: usize,
        /// The queue's limit.
        max: usize,
    },
    /// The length is more than 2^31 bytes, more than the path MTU for a datagram, or not 8 for an atomic.
    #[error(
        "{0} bytes: a message has at most 2^31, a datagram at most the path MTU, an atomic 8; split the request"
    )]
    Length(u64),
    /// The queue pair's state does not allow the request.
    #[error("the queue pair is in state {0:?}; connect it first")]
    State(crate::qp::QpState),
    /// The queue pair's kind does not support the operation, or its receives come from an SRQ.
    #[error("this queue pair does not support {0}")]
    Unsupported(&'static str),
}
