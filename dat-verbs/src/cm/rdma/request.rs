//! A connection request that the consumer has not answered yet.

use std::net::SocketAddr;
use std::sync::Arc;

use dat_core::error::{Error, Kind, Result};
use dat_handshake::{Caller, rdma_cm};

use crate::adapter::{EventTarget, Shared};
use crate::cm::rdma::id::CmId;
use crate::convert;

/// RDMA Reads that the peer offers, from this side's view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) reads_in: u8,
    pub(crate) reads_out: u8,
}

/// Implements [`Transport::ConnRequest`](dat_core::transport::Transport::ConnRequest). Dropping it refuses the
/// request.
pub(crate) struct ConnRequest {
    shared: Arc<Shared>,
    id: Option<CmId>,
    key: u64,
    offer: Offer,
    /// The peer's queue pair, if the request is one of a datagram queue pair.
    pub(crate) caller: Option<Caller>,
}

impl ConnRequest {
    /// Makes the request of `id`, whose context is `key`.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        id: CmId,
        key: u64,
        offer: Offer,
        caller: Option<Caller>,
    ) -> Self {
        shared.put(key, EventTarget::Pending { withdrawn: false });
        Self {
            shared: Arc::clone(shared),
            id: Some(id),
            key,
            offer,
            caller,
        }
    }

    /// Returns the address of the requester.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.id.as_ref()?.ends().1
    }

    /// Returns the id for a connection that takes over its key. The id is always present: every path that takes it
    /// consumes the request.
    pub(crate) fn take(mut self) -> Option<(CmId, u64, Offer)> {
        self.id.take().map(|id| (id, self.key, self.offer))
    }

    /// Refuses the request with the consumer's private data.
    pub(crate) fn reject(mut self, private_data: &[u8]) -> Result<()> {
        if private_data.len() > rdma_cm::REJ_PRIVATE {
            return Err(Error::of(Kind::InvalidParameter));
        }
        let Some(id) = self.id.take() else {
            return Ok(());
        };
        self.shared.remove(self.key);
        if let Err(e) = id.reject(private_data) {
            // The peer has given up and needs no refusal.
            tracing::debug!("rdma_reject: {}", convert::text(e));
        }
        Ok(())
    }
}

impl Drop for ConnRequest {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.shared.remove(self.key);
            id.refuse();
        }
    }
}
