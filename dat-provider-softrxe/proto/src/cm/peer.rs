//! Identity of a peer. An id or a queue pair number of a peer is unique only together with it.

use std::net::{IpAddr, SocketAddr};

use dat_handshake::guid::is_own;

/// The owner of communication ids and queue pair numbers, as far as a message identifies it.
///
/// A CA GUID is public and any host can write it into a REQ; the source address of a datagram is harder to forge. An own
/// engine sends from one UDP port for its whole life, and no other process of its address can send from that port. rdma_rxe
/// sends from any port, because the kernel serves all processes of the address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Peer {
    address: IpAddr,
    /// UDP port of an engine of this project, 0 for others.
    port: u16,
    guid: u64,
}

impl Peer {
    /// Returns the owner of the ids in a message from `source` with this CA GUID.
    pub(crate) const fn new(source: SocketAddr, guid: u64) -> Self {
        Self {
            address: source.ip(),
            port: if is_own(guid) { source.port() } else { 0 },
            guid,
        }
    }
}
