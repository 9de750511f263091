//! Memory windows of type 1: a DAT remote memory region (RMR).

use std::ptr::NonNull;
use std::sync::Arc;

use dat_core::error::{Error, Kind, Result, Subtype};

use crate::map;
use crate::sys;
use crate::verbs::mr::{Mr, PdHold};
use crate::verbs::pd::Pd;

/// `ibv_mw`, unbound at first.
#[derive(Debug)]
pub struct Rmr {
    mw: NonNull<sys::ibv_mw>,
    pd: PdHold,
}

// SAFETY: the key inside changes only in a bind, which core serialises per queue pair and RMR.
unsafe impl Send for Rmr {}
// SAFETY: as above.
unsafe impl Sync for Rmr {}

/// What a bind opens.
pub(crate) struct Opening<'a> {
    pub(crate) wr_id: u64,
    pub(crate) send_flags: u32,
    /// `None` closes the window.
    pub(crate) region: Option<(&'a Mr, u64, u64)>,
    pub(crate) access: u32,
}

impl Rmr {
    pub(crate) fn new(pd: &Arc<Pd>) -> Result<Self> {
        if !pd.adapter.shared.attr.windows {
            return Err(Error::of(Kind::NotImplemented));
        }
        // SAFETY: the PD is open.
        let mw = unsafe { sys::ibv_alloc_mw(pd.raw(), sys::ibv_mw_type::IBV_MW_TYPE_1) };
        mw.and_then(NonNull::new)
            .map(|mw| Self {
                mw,
                pd: PdHold(Arc::clone(pd)),
            })
            .ok_or_else(|| map::failed("ibv_alloc_mw", sys::errno(), Subtype::ResourceMemoryRegion))
    }

    /// Posts a bind on `qp`; the new key.
    pub(crate) fn bind(&self, qp: *mut sys::ibv_qp, opening: &Opening<'_>) -> Result<u32> {
        let (mr, addr, length) = match opening.region {
            Some(region) => region,
            None => {
                let anchor = self.pd.0.anchor();
                let anchor = anchor.ok_or_else(|| Error::of(Kind::InsufficientResources))?;
                (anchor, anchor.address(), 0)
            }
        };
        let mut bind = sys::ibv_mw_bind {
            wr_id: opening.wr_id,
            send_flags: opening.send_flags,
            bind_info: sys::ibv_mw_bind_info {
                mr: mr.raw(),
                addr,
                length,
                mw_access_flags: opening.access,
            },
        };
        // SAFETY: the window, the region and the queue pair are alive; core serialises the queue pair.
        let result = unsafe { sys::ibv_bind_mw(qp, self.mw.as_ptr(), &raw mut bind) };
        if result != 0 {
            return Err(map::posted(result));
        }
        // SAFETY: the window is alive; the provider has stored its next key.
        Ok(unsafe { self.mw.as_ref() }.rkey)
    }
}

impl Drop for Rmr {
    fn drop(&mut self) {
        // SAFETY: allocated by us and dropped once; this unbinds.
        unsafe { sys::ibv_dealloc_mw(self.mw.as_ptr()) };
    }
}
