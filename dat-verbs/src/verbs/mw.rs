//! Memory windows: a DAT remote memory region (RMR). One that belongs to a PZ is of type 1, one that belongs to an
//! endpoint of type 2, which the peer may invalidate (IBTA 10.6.7.2).

use std::ptr::NonNull;
use std::sync::Arc;

use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::rmr::Scope;
use parking_lot::Mutex;

use crate::map;
use crate::sys::{self, ibv_mw_type as mw_type, ibv_wr_opcode as opcode};
use crate::verbs::mr::{Mr, PdHold};
use crate::verbs::pd::Pd;
use crate::verbs::qp::Qp;

/// A window, unbound at first.
#[derive(Debug)]
pub struct Rmr {
    window: Arc<Window>,
    pd: PdHold,
    scope: Scope,
}

/// `ibv_mw`. Freeing it unbinds.
#[derive(Debug)]
struct Mw(NonNull<sys::ibv_mw>);

// SAFETY: the key inside changes only in a bind, under the window's lock.
unsafe impl Send for Mw {}

impl Mw {
    fn alloc(pd: &Pd, kind: mw_type::Type) -> Result<Self> {
        // SAFETY: the PD is open.
        let mw = unsafe { sys::ibv_alloc_mw(pd.raw(), kind) };
        mw.and_then(NonNull::new)
            .map(Self)
            .ok_or_else(|| map::failed("ibv_alloc_mw", sys::errno(), Subtype::ResourceMemoryRegion))
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        // SAFETY: allocated by us and dropped once; this unbinds.
        unsafe { sys::ibv_dealloc_mw(self.0.as_ptr()) };
    }
}

/// What a queue pair knows of a window of type 2 that was bound on it.
#[derive(Debug, Default)]
pub(crate) struct Window(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    mw: Option<Mw>,
    /// Of type 2: the number of the queue pair that a bind was posted on.
    bound_on: Option<u32>,
}

impl Window {
    /// Unbinds, if it is bound on the queue pair of this number. A queue pair must not go before its windows: rdma_rxe
    /// counts them as its users.
    pub(crate) fn close_on(&self, qpn: u32) {
        let mut held = self.0.lock();
        if held.bound_on == Some(qpn) {
            *held = Held::default();
        }
    }
}

/// What a bind opens.
pub(crate) struct Opening<'a> {
    pub(crate) wr_id: u64,
    pub(crate) send_flags: u32,
    /// `None` closes the window.
    pub(crate) region: Option<(&'a Mr, u64, u64)>,
    pub(crate) access: u32,
}

impl Rmr {
    /// Of type 2 for an endpoint, if the device has such; else of type 1.
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

    /// Posts a bind on `qp`; the new key.
    pub(crate) fn bind(&self, qp: &Qp, opening: &Opening<'_>) -> Result<u32> {
        match self.scope {
            Scope::Zone => self.bind_type_1(qp, opening),
            Scope::Endpoint => self.bind_type_2(qp, opening),
        }
    }

    fn bind_type_1(&self, qp: &Qp, opening: &Opening<'_>) -> Result<u32> {
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
        let held = self.window.0.lock();
        let mw = held.mw.as_ref().ok_or(Error::of(Kind::InternalError))?;
        // SAFETY: the window, the region and the queue pair are alive; core serialises the queue pair.
        let result = unsafe { sys::ibv_bind_mw(qp.raw(), mw.0.as_ptr(), &raw mut bind) };
        if result != 0 {
            return Err(map::posted(result));
        }
        // SAFETY: the window is alive; the provider has stored its next key.
        Ok(unsafe { mw.0.as_ref() }.rkey)
    }

    /// Each bind takes a new window, and frees the one that is bound: whether a peer has invalidated that is not known
    /// here, and to invalidate a free window is an error (rdma_rxe of Linux 6.1 follows a NULL pointer then).
    fn bind_type_2(&self, qp: &Qp, opening: &Opening<'_>) -> Result<u32> {
        let mut held = self.window.0.lock();
        if held.bound_on.is_some() {
            *held = Held::default();
        }
        // SAFETY: all-zero is a valid value of this plain C struct.
        let mut wr: sys::ibv_send_wr = unsafe { std::mem::zeroed() };
        wr.wr_id = opening.wr_id;
        wr.send_flags = opening.send_flags;
        let Some((mr, addr, length)) = opening.region else {
            // It is unbound already; an empty write, which needs no key, completes in the order of the posts.
            wr.opcode = opcode::IBV_WR_RDMA_WRITE;
            return qp.post(&mut wr).map(|()| 0);
        };
        let mw = match held.mw.take() {
            Some(mw) => mw,
            None => Mw::alloc(&self.pd.0, mw_type::IBV_MW_TYPE_2)?,
        };
        let at = mw.0.as_ptr();
        // SAFETY: the window is alive, and nobody else has it.
        let old = unsafe { (*at).rkey };
        // The upper part names the window, the lowest byte is the consumer's to choose.
        let rkey = old & !0xff | old.wrapping_add(1) & 0xff;
        wr.opcode = opcode::IBV_WR_BIND_MW;
        wr.bind_mw_tso_union.bind_mw = sys::bind_mw_t {
            mw: at,
            rkey,
            bind_info: sys::ibv_mw_bind_info {
                mr: mr.raw(),
                addr,
                length,
                mw_access_flags: opening.access,
            },
        };
        let posted = qp.post(&mut wr);
        if posted.is_ok() {
            // SAFETY: as above. Providers look for the present key here.
            unsafe { (*at).rkey = rkey };
            held.bound_on = Some(qp.number());
            qp.keep(&self.window);
        }
        held.mw = Some(mw);
        posted.map(|()| rkey)
    }
}
