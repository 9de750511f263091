//! The objects of [`CTransport`]: each is a context of C's, and what has to outlive it.

use std::sync::Arc;

use dat_core::upcall::Upcalls;
use dat_provider_parts::cq::Cq;

use crate::CTransport;
use crate::context::Object;
use crate::report;
use crate::table::PzView;

/// An open adapter.
#[derive(Debug)]
pub struct Adapter {
    pub(crate) object: Object,
    pub(crate) ia: u64,
    pub(crate) upcalls: Upcalls<CTransport>,
}

impl Drop for Adapter {
    fn drop(&mut self) {
        report::forget(self.ia);
    }
}

/// A protection zone.
#[derive(Debug)]
pub struct Pz {
    pub(crate) view: PzView,
    pub(crate) _object: Option<Object>,
    pub(crate) _adapter: Arc<Adapter>,
}

// SAFETY: the view has contexts, which any thread may use.
unsafe impl Send for Pz {}
// SAFETY: as above.
unsafe impl Sync for Pz {}

/// A registered region: of the transport, or a key of this library.
#[derive(Debug)]
pub enum Lmr {
    /// Made by `register_memory`.
    Theirs(Object),
    /// The lmr_context.
    Ours(u32),
}

impl Drop for Lmr {
    fn drop(&mut self) {
        if let Self::Ours(key) = self {
            crate::memory::KEYS.lock().deregister(*key);
        }
    }
}

/// A queue pair, and what it uses. Fields are dropped in this order: first the queue pair is freed.
#[derive(Debug)]
pub struct Qp {
    pub(crate) object: Object,
    pub(crate) _srq: Option<Arc<Srq>>,
    pub(crate) _cqs: [Arc<Cq<CTransport>>; 2],
    pub(crate) _pz: Arc<Pz>,
}

/// A shared receive queue.
#[derive(Debug)]
pub struct Srq {
    pub(crate) object: Object,
    pub(crate) _pz: Arc<Pz>,
}

/// A memory window.
#[derive(Debug)]
pub struct Rmr {
    pub(crate) object: Object,
    pub(crate) _pz: Arc<Pz>,
}

/// A listener.
#[derive(Debug)]
pub struct Listener {
    pub(crate) _object: Object,
    pub(crate) _adapter: Arc<Adapter>,
}
