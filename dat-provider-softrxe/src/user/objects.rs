//! What core holds of an adapter; dropping an object destroys it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use dat_verbs::Caller;
use softrxe_proto::{CmId, ConnectRequest, CqId, Pd, Qpn, RejectReason, SrqId, WindowType};

use super::datagram;
use super::hub::Hub;

/// An open adapter and its helper thread.
pub struct Adapter {
    pub(crate) hub: Arc<Hub>,
    pub(crate) thread: Option<JoinHandle<()>>,
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.hub.end();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the helper thread of a user-space adapter panicked");
        }
    }
}

/// A protection zone.
pub struct Pz {
    pub(crate) hub: Arc<Hub>,
    pub(crate) pd: Pd,
}

/// A registered region.
pub struct Lmr {
    pub(crate) hub: Arc<Hub>,
    pub(crate) key: u32,
}

impl std::fmt::Debug for Lmr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lmr")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl Drop for Lmr {
    fn drop(&mut self) {
        // Copies run under the same lock: from here on none touches the memory.
        self.hub.state.lock().engine.memory().deregister(self.key);
    }
}

/// A memory window.
pub struct Rmr {
    pub(crate) hub: Arc<Hub>,
    pub(crate) kind: WindowType,
    /// Its key after everything that was posted.
    pub(crate) key: AtomicU32,
}

impl std::fmt::Debug for Rmr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rmr")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl Drop for Rmr {
    fn drop(&mut self) {
        let key = self.key.load(Ordering::Acquire);
        self.hub.state.lock().engine.memory().destroy_window(key);
    }
}

/// A completion queue.
pub struct Cq {
    pub(crate) hub: Arc<Hub>,
    pub(crate) id: CqId,
}

impl Drop for Cq {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        state.cqs.remove(&self.id);
        state.engine.destroy_cq(self.id);
    }
}

/// A shared receive queue.
pub struct Srq {
    pub(crate) hub: Arc<Hub>,
    pub(crate) id: SrqId,
}

impl Drop for Srq {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        state.srqs.remove(&self.id);
        state.engine.destroy_srq(self.id);
    }
}

/// A queue pair.
pub struct Qp {
    pub(crate) hub: Arc<Hub>,
    pub(crate) qpn: Qpn,
    pub(crate) reads_in: u8,
    pub(crate) reads_out: u8,
    /// For datagrams instead of a connection.
    pub(crate) datagram: bool,
    /// Lives as long as its queue pairs.
    pub(crate) _uses: (Arc<Pz>, Arc<Cq>, Arc<Cq>, Option<Arc<Srq>>),
}

impl Drop for Qp {
    fn drop(&mut self) {
        self.hub.with(|state, now| {
            if let Some(id) = state.by_qpn.remove(&self.qpn) {
                state.connections.remove(&id);
            }
            datagram::forget(state, self.qpn);
            state.engine.destroy_qp(now, self.qpn);
            state.engine.memory().forget_queue_pair(self.qpn);
        });
    }
}

/// A service point.
pub struct Listener {
    pub(crate) hub: Arc<Hub>,
    /// For connections, and for datagrams if nobody else has that one.
    pub(crate) service_ids: Vec<u64>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        for service_id in &self.service_ids {
            state.engine.unlisten(*service_id);
            state.services.remove(service_id);
        }
    }
}

/// A connection request that is not answered yet; dropping it refuses it.
pub struct ConnRequest {
    pub(crate) hub: Arc<Hub>,
    pub(crate) id: CmId,
    /// The peer has its answer, or needs none.
    pub(crate) answered: bool,
    /// That it came in at.
    pub(crate) port: u16,
    pub(crate) remote: SocketAddr,
    /// Of a datagram queue pair.
    pub(crate) caller: Option<Caller>,
}

impl ConnRequest {
    pub(crate) fn new(hub: &Arc<Hub>, id: CmId, asked: &ConnectRequest) -> Self {
        Self {
            hub: Arc::clone(hub),
            id,
            answered: false,
            // rdma_cm's service ids end with it.
            port: asked.service_id as u16,
            remote: asked.remote,
            caller: None,
        }
    }
}

impl ConnRequest {
    /// Tells the peer that it is refused, as the consumer if `data` says so.
    pub(crate) fn refuse(&mut self, data: &[u8]) {
        self.answered = true;
        let (id, datagram) = (self.id, self.caller.is_some());
        self.hub.with(|state, now| {
            if datagram {
                datagram::refuse(state, now, id, data);
            } else {
                // The peer may have given up: then it does not need to be told.
                let _ = state.engine.reject(now, id, RejectReason::CONSUMER, data);
            }
        });
    }
}

impl Drop for ConnRequest {
    fn drop(&mut self) {
        if !self.answered {
            self.refuse(&[]);
        }
    }
}
