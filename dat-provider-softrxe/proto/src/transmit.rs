//! Datagrams between engine and driver: what to send, and how a received one arrived.

use std::net::SocketAddr;

/// Packets in the caller's buffer, from `Engine::poll_transmit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Destination of all packets.
    pub destination: SocketAddr,
    /// Bytes of the buffer in use.
    pub length: usize,
    /// Bytes of each packet but the last, which may be shorter. Equal to `length` for one packet.
    pub segment: usize,
}

impl Transmit {
    /// Returns the number of packets.
    #[must_use]
    pub const fn packets(&self) -> usize {
        self.length.div_ceil(self.segment)
    }
}

/// What a socket reports about a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    /// Sender.
    pub source: SocketAddr,
    /// The IPv4 identification if it is known, else the most likely one: 0, or the index in a GRO run.
    pub ip_id: u16,
}
