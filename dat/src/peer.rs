//! Peers of datagram endpoints.

use std::net::SocketAddr;

use dat_abi::sockaddr;
use dat_abi::v2_0::types::{DatIbAddrHandle, DatIbExtensionEventData};

use crate::ia::Ia;

/// A peer that a datagram endpoint found ([`Event::Datagram`](crate::Event::Datagram)). Every datagram endpoint of the adapter may send
/// to it, until the endpoint that found it is dropped.
///
/// A value holds nothing: what the provider keeps for a peer, some 512 bytes, is freed by [`Ep::forget_peer`](crate::Ep::forget_peer), or
/// with the endpoint. A server with many clients forgets those that have gone.
///
/// Examples: [`Ep::post_send_datagram`](crate::Ep::post_send_datagram), and with futures [`Datagrams`](crate::aio::Datagrams).
#[derive(Clone, Debug)]
pub struct Peer {
    pub(crate) address: DatIbAddrHandle,
    pub(crate) context: u64,
    _ia: Ia,
}

// SAFETY: the pointer is a provider's handle, which is passed back to the provider only.
unsafe impl Send for Peer {}
// SAFETY: as above.
unsafe impl Sync for Peer {}

impl Peer {
    pub(crate) fn new(ia: &Ia, data: DatIbExtensionEventData) -> Self {
        Self {
            address: data.remote_ah,
            context: data.context,
            _ia: ia.clone(),
        }
    }

    /// Returns the number of the peer's queue pair.
    #[must_use]
    pub fn queue_pair(&self) -> u32 {
        self.address.qpn
    }

    /// Returns the peer's address.
    #[must_use]
    pub fn socket_address(&self) -> Option<SocketAddr> {
        // SAFETY: 28 bytes of a socket address.
        unsafe { sockaddr::read(self.address.ia_addr.as_ptr()) }
    }
}
