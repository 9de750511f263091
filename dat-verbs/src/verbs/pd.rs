//! Protection domains: a DAT protection zone (PZ).

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use dat_core::error::{Result, Subtype};

use crate::adapter::Adapter;
use crate::convert;
use crate::sys;
use crate::verbs::mr::Mr;

/// `ibv_pd`.
pub struct Pd {
    pd: NonNull<sys::ibv_pd>,
    pub(crate) adapter: Arc<Adapter>,
    unbind_region: OnceLock<Option<Mr>>,
}

// SAFETY: libibverbs locks inside; the pointer is freed once, in drop.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

/// Memory of the region that an unbind names, see [`Pd::unbind_region`]. Writable, as windows require.
static UNBIND_MEMORY: AtomicU64 = AtomicU64::new(0);

impl Pd {
    pub(crate) fn new(adapter: &Arc<Adapter>) -> Result<Self> {
        // SAFETY: the context is open.
        let pd = unsafe { sys::ibv_alloc_pd(adapter.shared.device.raw()) };
        NonNull::new(pd)
            .map(|pd| Self {
                pd,
                adapter: Arc::clone(adapter),
                unbind_region: OnceLock::new(),
            })
            .ok_or_else(|| {
                convert::failed(
                    "ibv_alloc_pd",
                    sys::errno(),
                    Subtype::ResourceProtectionDomain,
                )
            })
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_pd {
        self.pd.as_ptr()
    }

    /// Returns a region of eight bytes for unbinds. An unbind is a bind of length 0, and librxe dereferences the
    /// region's pointer even then, so the region must outlive the window.
    pub(crate) fn unbind_region(&self) -> Option<&Mr> {
        self.unbind_region
            .get_or_init(|| {
                let address = (&raw const UNBIND_MEMORY).addr();
                // SAFETY: the PD is open, and its drop frees the region first.
                unsafe { Mr::register(self.raw(), address, 8, &[sys::access::MW_BIND], false) }.ok()
            })
            .as_ref()
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        drop(self.unbind_region.take());
        // SAFETY: everything made from the PD holds this object, so nothing is left.
        unsafe { sys::ibv_dealloc_pd(self.raw()) };
    }
}
