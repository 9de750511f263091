//! Protection domains: a DAT protection zone (PZ).

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use dat_core::error::{Result, Subtype};

use crate::adapter::Adapter;
use crate::map;
use crate::sys;
use crate::verbs::mr::Mr;

/// `ibv_pd`.
pub struct Pd {
    pd: NonNull<sys::ibv_pd>,
    pub(crate) adapter: Arc<Adapter>,
    anchor: OnceLock<Option<Mr>>,
}

// SAFETY: libibverbs locks inside; the pointer is freed once, in drop.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

/// What an unbind names as its region, see [`Pd::anchor`]. Writable, as whatever windows can be bound to.
static ANCHOR: AtomicU64 = AtomicU64::new(0);

impl Pd {
    pub(crate) fn new(adapter: &Arc<Adapter>) -> Result<Self> {
        // SAFETY: the context is open.
        let pd = unsafe { sys::ibv_alloc_pd(adapter.shared.device.raw()) };
        NonNull::new(pd)
            .map(|pd| Self {
                pd,
                adapter: Arc::clone(adapter),
                anchor: OnceLock::new(),
            })
            .ok_or_else(|| {
                map::failed(
                    "ibv_alloc_pd",
                    sys::errno(),
                    Subtype::ResourceProtectionDomain,
                )
            })
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_pd {
        self.pd.as_ptr()
    }

    /// A region of eight bytes. Unbinding a window is a bind of length 0, and librxe follows the
    /// region's pointer even then, so there has to be one that cannot go away.
    pub(crate) fn anchor(&self) -> Option<&Mr> {
        self.anchor
            .get_or_init(|| {
                let address = (&raw const ANCHOR).addr();
                Mr::register(self, address, 8, &[sys::access::MW_BIND], false).ok()
            })
            .as_ref()
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        drop(self.anchor.take());
        // SAFETY: everything made from the PD holds this object, so nothing is left.
        unsafe { sys::ibv_dealloc_pd(self.raw()) };
    }
}
