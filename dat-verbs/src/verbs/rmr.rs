//! Remote memory regions (RMR): memory windows of verbs. A window of a PZ is of type 1; a window of an endpoint is of type
//! 2, which the peer may invalidate (IBTA 10.6.7.2).

use std::sync::Arc;

use dat_arena::Mutex;
use dat_core::error::{Error, Kind, Result};
use dat_core::rmr::Scope;

use crate::convert;
use crate::sys::{self, ibv_mw_type as mw_type, ibv_wr_opcode as opcode};
use crate::verbs::lmr::PdHold;
use crate::verbs::mr::Mr;
use crate::verbs::mw::{Held, Mw, Window};
use crate::verbs::pd::Pd;
use crate::verbs::qp::Qp;

/// A window, initially unbound.
#[derive(Debug)]
pub struct Rmr {
    window: Arc<Window>,
    pd: PdHold,
    scope: Scope,
}

/// Parameters of a bind.
pub(crate) struct BindRequest<'a> {
    pub(crate) wr_id: u64,
    pub(crate) send_flags: u32,
    /// Region, address and length; `None` unbinds the window.
    pub(crate) region: Option<(&'a Mr, u64, u64)>,
    pub(crate) access: u32,
}

impl Rmr {
    /// Creates a type 2 window for an endpoint if the device supports it, else one of type 1.
    pub(crate) fn new(pd: &Arc<Pd>, scope: Scope) -> Result<Self> {
        if !pd.adapter.shared.attr.windows {
            return Err(Error::of(Kind::NotImplemented));
        }
        let of_endpoint = match scope {
            Scope::Endpoint => Mw::alloc(pd, mw_type::IBV_MW_TYPE_2).ok(),
            Scope::Zone => None,
        };
        let (mw, scope) = match of_endpoint {
            Some(mw) => (mw, Scope::Endpoint),
            None => (Mw::alloc(pd, mw_type::IBV_MW_TYPE_1)?, Scope::Zone),
        };
        Ok(Self {
            window: Arc::new(Window(Mutex::new(Held {
                mw: Some(mw),
                bound_on: None,
            }))),
            pd: PdHold(Arc::clone(pd)),
            scope,
        })
    }

    /// Posts a bind on `qp` and returns the new key.
    pub(crate) fn bind(&self, qp: &Qp, bind_request: &BindRequest<'_>) -> Result<u32> {
        match self.scope {
            Scope::Zone => self.bind_type_1(qp, bind_request),
            Scope::Endpoint => self.bind_type_2(qp, bind_request),
        }
    }

    fn bind_type_1(&self, qp: &Qp, bind_request: &BindRequest<'_>) -> Result<u32> {
        let (mr, addr, length) = match bind_request.region {
            Some(region) => region,
            None => {
                let anchor = self.pd.0.unbind_region();
                let anchor = anchor.ok_or_else(|| Error::of(Kind::InsufficientResources))?;
                (anchor, anchor.address(), 0)
            }
        };
        let mut bind = sys::ibv_mw_bind {
            wr_id: bind_request.wr_id,
            send_flags: bind_request.send_flags,
            bind_info: sys::ibv_mw_bind_info {
                mr: mr.raw(),
                addr,
                length,
                mw_access_flags: bind_request.access,
            },
        };
        let held = self.window.0.lock();
        let mw = held.mw.as_ref().ok_or(Error::of(Kind::InternalError))?;
        // SAFETY: the window, the region and the queue pair are alive; core serialises the queue pair.
        let result = unsafe { sys::ibv_bind_mw(qp.raw(), mw.0.as_ptr(), &raw mut bind) };
        if result != 0 {
            return Err(convert::posted(result));
        }
        // SAFETY: the window is alive; the provider has stored its next key.
        Ok(unsafe { mw.0.as_ref() }.rkey)
    }

    /// Binds a new window each time, and frees the previous one. Whether a peer has invalidated the previous window is
    /// not known here, and to invalidate a free window is an error (rdma_rxe of Linux 6.1 follows a NULL pointer
    /// then).
    fn bind_type_2(&self, qp: &Qp, bind_request: &BindRequest<'_>) -> Result<u32> {
        let mut held = self.window.0.lock();
        if held.bound_on.is_some() {
            *held = Held::default();
        }
        // SAFETY: all-zero is a valid value of this plain C struct.
        let mut wr: sys::ibv_send_wr = unsafe { std::mem::zeroed() };
        wr.wr_id = bind_request.wr_id;
        wr.send_flags = bind_request.send_flags;
        let Some((mr, addr, length)) = bind_request.region else {
            // The window is unbound already. An empty write needs no key and completes in the order of the posts.
            wr.opcode = opcode::IBV_WR_RDMA_WRITE;
            return qp.post(&mut wr).map(|()| 0);
        };
        let mw = match held.mw.take() {
            Some(mw) => mw,
            None => Mw::alloc(&self.pd.0, mw_type::IBV_MW_TYPE_2)?,
        };
        let at = mw.0.as_ptr();
        // SAFETY: the window is alive, and no other thread uses it.
        let old = unsafe { (*at).rkey };
        // The upper bits identify the window; the consumer chooses the lowest byte.
        let rkey = old & !0xff | old.wrapping_add(1) & 0xff;
        wr.opcode = opcode::IBV_WR_BIND_MW;
        wr.bind_or_tso.bind_mw = sys::BindWr {
            mw: at,
            rkey,
            bind_info: sys::ibv_mw_bind_info {
                mr: mr.raw(),
                addr,
                length,
                mw_access_flags: bind_request.access,
            },
        };
        let posted = qp.post(&mut wr);
        if posted.is_ok() {
            // SAFETY: as above. Providers read the current key from this field.
            unsafe { (*at).rkey = rkey };
            held.bound_on = Some(qp.number());
            qp.add_window(&self.window);
        }
        held.mw = Some(mw);
        posted.map(|()| rkey)
    }
}
