//! Protection domains: a DAT protection zone (PZ).

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// True once the PZ had a zero-based region.
    zero_based: AtomicBool,
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
                zero_based: AtomicBool::new(false),
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

    /// Records that a zero-based region is registered.
    pub(crate) fn record_zero_based(&self) {
        self.zero_based.store(true, Ordering::Relaxed);
    }

    /// Returns true if the addresses in all segments of this PZ are virtual addresses. Those in a zero-based region are
    /// offsets, which a driver library must not read as inline data. The load may be relaxed: a consumer that posts the
    /// key of a region has it from the call that registered it.
    #[inline(always)]
    pub(crate) fn has_addresses_only(&self) -> bool {
        !self.zero_based.load(Ordering::Relaxed)
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
