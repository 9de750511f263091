//! What a queue pair is created with, and the path that connects it.

use std::net::SocketAddr;

use dat_handshake::Agreement;

use crate::memory::{Pd, Rights};
use crate::near::Link;
use crate::psn::{Psn, Qpn};
use crate::work::{CqId, SrqId};

/// Kind of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpKind {
    /// Reliable connection.
    Rc,
    /// Unreliable datagram; ready at once.
    Ud,
}

/// Arguments of `Engine::create_qp`.
#[derive(Clone, Copy, Debug)]
pub struct QpInit {
    /// Kind of the queue pair.
    pub kind: QpKind,
    /// Protection domain.
    pub pd: Pd,
    /// The driver's name for the queue pair; completions and events contain it.
    pub token: u64,
    /// Queue for completions of requests.
    pub send_cq: CqId,
    /// Queue for completions of receives.
    pub recv_cq: CqId,
    /// Source of receives instead of the queue pair's own ring.
    pub srq: Option<SrqId>,
    /// Limit of outstanding requests.
    pub send_depth: usize,
    /// Limit of outstanding receives.
    pub recv_depth: usize,
    /// Limit of SGEs of a work request.
    pub max_sge: usize,
    /// Remote rights of the peer (`REMOTE_*`).
    pub access: Rights,
    /// Q_Key, for UD.
    pub qkey: u32,
}

/// The path to a connected peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// The peer's address and UDP port.
    pub remote: SocketAddr,
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// Path MTU: 256, 512, 1024, 2048 or 4096; that of the channel where `link` is one.
    pub mtu: u16,
    /// First PSN that we send.
    pub send_psn: Psn,
    /// First PSN that we expect.
    pub receive_psn: Psn,
    /// Limit of our READs and atomics outstanding at the peer.
    pub initiator_depth: u8,
    /// Limit of the peer's READs and atomics that are kept for repetition.
    pub responder_resources: u8,
    /// Consecutive timeouts before the queue pair fails, 0..=7.
    pub retry_count: u8,
    /// Consecutive RNR NAKs before the queue pair fails; 7 means no limit.
    pub rnr_retry: u8,
    /// The handshake's result: what both ends can do beyond RoCE.
    pub agreement: Agreement,
    /// What carries the packets.
    pub link: Link,
}
