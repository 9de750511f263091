//! Memory windows of verbs (`ibv_mw`), and what the queue pair that one is bound on must free.

use std::ptr::NonNull;

use dat_arena::Mutex;
use dat_core::error::{Result, Subtype};

use crate::convert;
use crate::sys;
use crate::verbs::pd::Pd;

/// `ibv_mw`. Freeing it unbinds.
#[derive(Debug)]
pub(super) struct Mw(pub(super) NonNull<sys::ibv_mw>);

// SAFETY: the key inside changes only in a bind, under the window's lock.
unsafe impl Send for Mw {}

impl Mw {
    pub(super) fn alloc(pd: &Pd, kind: u32) -> Result<Self> {
        // SAFETY: the PD is open.
        unsafe { sys::ibv_alloc_mw(pd.raw(), kind) }
            .map(Self)
            .map_err(|e| convert::failed("ibv_alloc_mw", e, Subtype::ResourceMemoryRegion))
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        // SAFETY: allocated by us and dropped once; this unbinds.
        unsafe { sys::ibv_dealloc_mw(self.0.as_ptr()) };
    }
}

/// The part of a type 2 window that the queue pair holds while the window is bound on it.
#[derive(Debug, Default)]
pub(crate) struct Window(pub(super) Mutex<Held>);

#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) mw: Option<Mw>,
    /// Type 2: the number of the queue pair that the last bind was posted on.
    pub(super) bound_on: Option<u32>,
}

impl Window {
    /// Unbinds the window if it is bound on the queue pair with this number. A queue pair must be destroyed after its
    /// windows: rdma_rxe counts them as its users.
    pub(crate) fn unbind_on(&self, qpn: u32) {
        let mut held = self.0.lock();
        if held.bound_on == Some(qpn) {
            *held = Held::default();
        }
    }
}
