//! Upcalls into core, as data: they are queued under the lock and run without it.

use std::net::SocketAddr;

use dat_core::transport::Token;
use dat_core::upcall::{ConnOutcome, DatagramOutcome};
use dat_handshake::Caller;
use softrxe_proto::{CmId, Forwarded};

use crate::user_engine::UserEngine;

/// A peer's request that the consumer has not answered.
pub(crate) struct IncomingRequest {
    pub(crate) id: CmId,
    /// Port that the peer connects to.
    pub(crate) port: u16,
    /// Address and port of the peer.
    pub(crate) remote: SocketAddr,
    /// The peer's datagram queue pair; `None` for a connection.
    pub(crate) datagram: Option<Caller>,
    pub(crate) private_data: Box<[u8]>,
}

/// An upcall to be run without the lock. The token names the object in core.
pub(crate) enum Upcall {
    /// A request for a service point. Without a service point the token is a stale one, and core drops the request, which refuses it.
    Request(Token, IncomingRequest),
    /// The outcome of a connection, with the peer's private data if the outcome has any.
    Connection(Token, ConnOutcome, Box<[u8]>),
    Datagram(Token, DatagramOutcome<UserEngine>),
    CqReady(Token),
    SrqLow(Token),
    /// What the peer of a request sent after the request had passed to another lane.
    Forwarded(CmId, Forwarded),
}

impl Upcall {
    /// Makes the upcall for an outcome without private data.
    pub(crate) fn outcome(token: Token, outcome: ConnOutcome) -> Self {
        Self::Connection(token, outcome, Box::default())
    }
}
