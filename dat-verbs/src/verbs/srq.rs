//! Shared receive queues.

use std::ptr::NonNull;
use std::sync::Arc;

use dat_core::attributes::SrqAttr;
use dat_core::error::{Result, Subtype};
use dat_core::iov::LmrTriplet;
use dat_core::transport::Token;

use crate::convert;
use crate::sys;
use crate::verbs::pd::Pd;

/// `ibv_srq`.
pub struct Srq {
    srq: NonNull<sys::ibv_srq>,
    _pd: Arc<Pd>,
}

// SAFETY: providers lock inside an SRQ; the pointer is freed once, in drop.
unsafe impl Send for Srq {}
// SAFETY: as above.
unsafe impl Sync for Srq {}

impl Srq {
    pub(crate) fn new(pd: &Arc<Pd>, attr: &SrqAttr, token: Token) -> Result<Self> {
        let limits = &pd.adapter.shared.attr;
        let mut init = sys::ibv_srq_init_attr {
            srq_context: std::ptr::without_provenance_mut(token.0 as usize),
            attr: sys::ibv_srq_attr {
                max_wr: attr.max_recv_dtos.clamp(1, limits.max_recv_per_srq.max(1)),
                max_sge: attr.max_recv_iov.clamp(1, limits.max_iov.max(1)),
                srq_limit: 0,
            },
        };
        // SAFETY: the PD is open, `init` is valid.
        let srq = unsafe { sys::ibv_create_srq(pd.raw(), &raw mut init) };
        let srq = NonNull::new(srq)
            .ok_or_else(|| convert::failed("ibv_create_srq", sys::errno(), Subtype::ResourceSrq))?;
        Ok(Self {
            srq,
            _pd: Arc::clone(pd),
        })
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_srq {
        self.srq.as_ptr()
    }

    fn modify(&self, attr: sys::ibv_srq_attr, mask: i32) -> Result<()> {
        let mut attr = attr;
        // SAFETY: the SRQ is alive, `attr` is valid.
        match unsafe { sys::ibv_modify_srq(self.raw(), &raw mut attr, mask) } {
            0 => Ok(()),
            e => Err(convert::failed("ibv_modify_srq", e, Subtype::ResourceSrq)),
        }
    }

    pub(crate) fn resize(&self, max_wr: u32) -> Result<()> {
        let attr = sys::ibv_srq_attr {
            max_wr,
            max_sge: 0,
            srq_limit: 0,
        };
        self.modify(attr, sys::srq_mask::MAX_WR)
    }

    pub(crate) fn arm_limit(&self, low: u32) -> Result<()> {
        let attr = sys::ibv_srq_attr {
            max_wr: 0,
            max_sge: 0,
            srq_limit: low,
        };
        self.modify(attr, sys::srq_mask::LIMIT)
    }

    pub(crate) fn post_recv(&self, wr_id: u64, iov: &[LmrTriplet]) -> Result<()> {
        let mut wr = sys::ibv_recv_wr {
            wr_id,
            next: std::ptr::null_mut(),
            sg_list: sys::sges(iov),
            num_sge: iov.len() as i32,
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: the SRQ is alive; `wr` and its segments outlive the call.
        match unsafe { sys::ibv_post_srq_recv(self.raw(), &raw mut wr, &raw mut bad) } {
            0 => Ok(()),
            // As with a queue pair's own receives.
            e if iov.is_empty() && e.saturating_abs() == libc::EINVAL => {
                self.post_recv(wr_id, &[LmrTriplet::default()])
            }
            e => Err(convert::posted(e)),
        }
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        // SAFETY: created by us and dropped once; queue pairs on it hold an Arc, so none is left.
        unsafe { sys::ibv_destroy_srq(self.raw()) };
    }
}
