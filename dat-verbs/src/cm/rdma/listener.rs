//! A listening service point.

use std::sync::Arc;

use dat_core::error::{Result, Subtype};
use dat_core::transport::Token;
use dat_handshake::rdma_cm;

use crate::adapter::{EventTarget, Shared};
use crate::cm::addr;
use crate::cm::rdma::id::{CmId, PortSpace};
use crate::convert;

/// Implements [`Transport::Listener`](dat_core::transport::Transport::Listener).
pub(crate) struct Listener {
    shared: Arc<Shared>,
    key: u64,
    _connections: CmId,
    _datagrams: Option<CmId>,
}

impl Listener {
    /// Listens on `conn_qual`, or on a port that the kernel chooses; returns the qualifier too.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        conn_qual: Option<u64>,
        token: Token,
    ) -> Result<(Self, u64)> {
        let key = shared.new_key();
        let make = |space| {
            CmId::new(&shared.channel, key, space)
                .map_err(|e| convert::failed("rdma_create_id", e, Subtype::ResourceDevice))
        };
        let id = make(PortSpace::Connection)?;
        let port = conn_qual.map_or(0, rdma_cm::port_of);
        let at = addr::socket(shared.attr.address, port, shared.attr.scope_id);
        // Entered before the kernel listens, so that the first request finds it.
        shared.put(key, EventTarget::Listener(token));
        if let Err(e) = id.bind(at).and_then(|()| id.listen()) {
            shared.remove(key);
            tracing::warn!(
                "cannot listen on {at}: {}; if the port is in use, choose another qualifier",
                convert::text(e)
            );
            return Err(convert::listening(e));
        }
        let qual = conn_qual.unwrap_or_else(|| id.source_port().into());
        // The same port for datagram queue pairs, if the device has any. The two port spaces are independent, so another
        // process may have this one; then only connections are accepted.
        let at = addr::socket(shared.attr.address, id.source_port(), shared.attr.scope_id);
        let datagrams = (shared.attr.max_datagram > 0)
            .then(|| make(PortSpace::Datagram).ok())
            .flatten()
            .filter(|id| {
                let listening = id.bind(at).and_then(|()| id.listen());
                if let Err(e) = listening {
                    tracing::warn!("no datagram peers at {at}: {}", convert::text(e));
                }
                listening.is_ok()
            });
        let listener = Self {
            shared: Arc::clone(shared),
            key,
            _connections: id,
            _datagrams: datagrams,
        };
        Ok((listener, qual))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.remove(self.key);
    }
}
