//! Memory regions of verbs.

use std::ptr::NonNull;

use dat_core::error::{Error, Kind, Result, Subtype};

use crate::convert;
use crate::sys;

/// `ibv_mr` without a reference to its PD; see [`Lmr`](super::lmr::Lmr).
#[derive(Debug)]
pub(crate) struct Mr(NonNull<sys::ibv_mr>);

// SAFETY: libibverbs locks inside; keys are constant, the pointer is freed once, in drop.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers `[address, address + length)` with the first of `accesses` that works. With `zero_based`, remote and
    /// local addresses begin at 0.
    ///
    /// # Safety
    /// `pd` is open and stays open until the region is dropped.
    pub(super) unsafe fn register(
        pd: *mut sys::ibv_pd,
        address: usize,
        length: u64,
        accesses: &[u32],
        zero_based: bool,
    ) -> Result<Self> {
        let length = usize::try_from(length).map_err(|_| Error::of(Kind::InsufficientResources))?;
        let start = std::ptr::with_exposed_provenance_mut::<libc::c_void>(address);
        let try_with = |access: &u32| {
            let access = access.cast_signed();
            // SAFETY: the caller guarantees the PD; the kernel checks the range itself and pins it, nothing is dereferenced here.
            NonNull::new(unsafe {
                if zero_based {
                    sys::ibv_reg_mr_iova(pd, start, length, 0, access)
                } else {
                    sys::ibv_reg_mr(pd, start, length, access)
                }
            })
        };
        accesses.iter().find_map(try_with).map(Self).ok_or_else(|| {
            let errno = sys::errno();
            tracing::error!("{}", convert::registration_text(address, length, errno));
            convert::errno(errno, Subtype::ResourceMemoryRegion)
        })
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_mr {
        self.0.as_ptr()
    }

    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: the region is registered until drop.
        unsafe { self.0.as_ref() }.lkey
    }

    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.0.as_ref() }.rkey
    }

    /// Returns the address of the first byte, as an unbind passes it.
    pub(crate) fn address(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.0.as_ref() }.addr.addr() as u64
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: registered by us and dropped once. The call fails while a window is bound; core's use counts do not
        // let such an LMR be freed, and closing the device frees the rest.
        let result = unsafe { sys::ibv_dereg_mr(self.raw()) };
        if result != 0 {
            tracing::warn!(
                "ibv_dereg_mr failed, the region is leaked until the device is closed: {}",
                convert::text(result)
            );
        }
    }
}
