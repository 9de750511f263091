//! A connection request that the consumer has not answered yet.

use std::net::SocketAddr;
use std::sync::Arc;

use dat_core::error::{Error, Kind, Result};
use dat_core::rdma_cm;

use crate::adapter::{Shared, Slot};
use crate::cm::rdma::caller::Caller;
use crate::cm::rdma::id::CmId;
use crate::map;

/// RDMA Reads that the peer offers, seen from here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) reads_in: u8,
    pub(crate) reads_out: u8,
}

/// See [`Transport::ConnRequest`](dat_core::transport::Transport::ConnRequest); dropping it refuses it.
pub(crate) struct ConnRequest {
    shared: Arc<Shared>,
    id: Option<CmId>,
    key: u64,
    offer: Offer,
    /// Of a datagram queue pair.
    pub(crate) caller: Option<Caller>,
}

impl ConnRequest {
    /// For the id of a request, whose context is `key`.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        id: CmId,
        key: u64,
        offer: Offer,
        caller: Option<Caller>,
    ) -> Self {
        shared.put(key, Slot::Pending { withdrawn: false });
        Self {
            shared: Arc::clone(shared),
            id: Some(id),
            key,
            offer,
            caller,
        }
    }

    /// Who asks.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.id.as_ref()?.ends().1
    }

    /// The id for a connection that takes over its key. There always is one: whatever takes it out consumes
    /// the request.
    pub(crate) fn take(mut self) -> Option<(CmId, u64, Offer)> {
        self.id.take().map(|id| (id, self.key, self.offer))
    }

    /// Refuses with the consumer's data.
    pub(crate) fn reject(mut self, private_data: &[u8]) -> Result<()> {
        if private_data.len() > rdma_cm::REJ_PRIVATE {
            return Err(Error::of(Kind::InvalidParameter));
        }
        let Some(id) = self.id.take() else {
            return Ok(());
        };
        self.shared.remove(self.key);
        if let Err(e) = id.reject(private_data) {
            // The peer has given up: it does not need to be told.
            tracing::debug!("rdma_reject: {}", map::text(e));
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
