//! Queue pairs, the data path of a DAT endpoint: creation, posts, destruction. A queue pair is created in state INIT, so that
//! receives can be posted before a connection exists; `cm` moves it to RTR and RTS by [`modify`].

mod modify;

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use dat_arena::Mutex;
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::iov::LmrTriplet;
use dat_core::transport::{Op, QpCaps, Request, Token};

use crate::Verbs;
use crate::convert;
use crate::sys::{self, send};
use crate::verbs::cq::Cq;
use crate::verbs::mw::Window;
use crate::verbs::pd::Pd;
use crate::verbs::srq::Srq;
use crate::verbs::work_request::write_operation;

pub(crate) use modify::{Path, PathLimits};

/// `ibv_qp` of type RC with its connection or attempt at one, or of type UD with its service id resolutions.
pub struct Qp {
    qp: NonNull<sys::ibv_qp>,
    calls: sys::Calls,
    max_inline: u64,
    /// Number of segments that an RDMA Read may have. A device that supports fewer than the endpoint has need not refuse
    /// the others: siw reads into the first segment, and reports success.
    max_read_iov: usize,
    atomics: bool,
    /// False once it is connected to a peer that serves no RDMA Read, or for an endpoint that issues none. A device need not complete a
    /// Read then: rdma_rxe leaves it in the queue for ever, with all requests behind it.
    reads: AtomicBool,
    immediate_data: bool,
    pub(crate) caps: QpCaps,
    pub(crate) token: Token,
    pub(crate) conn: Mutex<Option<Arc<dyn Connection>>>,
    /// Resolutions in progress, by key. Dropping one cancels it.
    pub(crate) resolutions: Mutex<Vec<(u64, Arc<dyn Send + Sync>)>>,
    pub(crate) pd: Arc<Pd>,
    recv_cq: Arc<Cq>,
    _request_cq: Arc<Cq>,
    srq: Option<Arc<Srq>>,
    /// Windows of type 2 that were bound on this queue pair.
    windows: Mutex<Vec<Weak<Window>>>,
}

// SAFETY: core serialises posts per direction, providers lock inside; state changes go through the kernel.
unsafe impl Send for Qp {}
// SAFETY: as above.
unsafe impl Sync for Qp {}

/// The connection of a queue pair, or an attempt at one. Dropping it ends it.
pub(crate) trait Connection: Send + Sync {
    /// Starts the disconnect that the consumer requested. After the end it flushes what was posted before core knew of that.
    fn disconnect(&self, qp: &Qp);

    /// Treats the accepted connection as established, because a message was received.
    fn message_received(&self, qp: &Qp);

    /// Returns the port of our end; 0 after the connection has ended.
    fn local_port(&self) -> u16;
}

impl Qp {
    pub(crate) fn new(
        pd: &Arc<Pd>,
        caps: &QpCaps,
        recv_cq: &Arc<Cq>,
        request_cq: &Arc<Cq>,
        srq: Option<&Arc<Srq>>,
        token: Token,
    ) -> Result<Self> {
        let shared = &pd.adapter.shared;
        let calls = shared
            .device
            .calls()
            .ok_or(Error::of(Kind::NotImplemented))?;
        let mut init = init_attr(caps, recv_cq, request_cq, srq, token);
        init.cap.max_inline_data = shared.settings.inline;
        let wanted = init.cap;
        // SAFETY: the caller's completion queues and SRQ live as long as the queue pair, which keeps them.
        let qp = unsafe { create(pd, &mut init) }?;
        let qp = Self {
            qp,
            calls,
            max_inline: init.cap.max_inline_data.min(wanted.max_inline_data).into(),
            max_read_iov: shared.attr.max_iov_rdma_read as usize,
            atomics: shared.attr.atomics,
            reads: AtomicBool::new(true),
            immediate_data: shared.attr.immediate_data,
            caps: *caps,
            token,
            conn: Mutex::new(None),
            resolutions: Mutex::default(),
            pd: Arc::clone(pd),
            recv_cq: Arc::clone(recv_cq),
            _request_cq: Arc::clone(request_cq),
            srq: srq.map(Arc::clone),
            windows: Mutex::default(),
        };
        if qp.srq.is_some() {
            qp.recv_cq.attach(qp.number(), token);
        }
        qp.initialize()?;
        Ok(qp)
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_qp {
        self.qp.as_ptr()
    }

    /// Returns the queue pair number.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair is alive; its number never changes.
        unsafe { self.qp.as_ref() }.qp_num
    }

    /// Returns true if receives come from a shared receive queue.
    pub(crate) fn has_srq(&self) -> bool {
        self.srq.is_some()
    }

    /// Posts a work request that is filled in.
    pub(crate) fn post(&self, wr: &mut sys::ibv_send_wr) -> Result<()> {
        // SAFETY: each field of a reference has a value.
        unsafe { self.post_written(wr) }
    }

    /// Posts a work request.
    ///
    /// # Safety
    /// Every field that verbs reads for the opcode of `wr` was written, and what it points to outlives the call.
    #[inline(always)]
    unsafe fn post_written(&self, wr: *mut sys::ibv_send_wr) -> Result<()> {
        let mut bad = MaybeUninit::uninit();
        // SAFETY: the queue pair is alive, and core serialises posts; the caller's promise holds for `wr`.
        let post = || unsafe { (self.calls.post_send)(self.qp.as_ptr(), wr, bad.as_mut_ptr()) };
        match self.calls.without_cancellation(post) {
            0 => Ok(()),
            e => Err(convert::posted(e)),
        }
    }

    /// Records that the window is bound on this queue pair, which unbinds it before its own destruction.
    pub(crate) fn add_window(&self, window: &Arc<Window>) {
        let mut windows = self.windows.lock();
        windows.retain(|w| w.strong_count() > 0 && !std::ptr::eq(w.as_ptr(), &raw const **window));
        windows.push(Arc::downgrade(window));
    }

    /// Posts a request. The work request is built on the stack, with only the fields that its opcode uses.
    #[inline(always)]
    pub(crate) fn post_send(&self, request: &Request<'_, Verbs>) -> Result<()> {
        self.check_support(request)?;
        let mut flags = 0;
        if request.signaled {
            flags |= send::SIGNALED;
        }
        if request.solicited {
            flags |= send::SOLICITED;
        }
        if request.fence {
            flags |= send::FENCE;
        }
        let mut wr = MaybeUninit::<sys::ibv_send_wr>::uninit();
        let p = wr.as_mut_ptr();
        // SAFETY: `p` is valid for writes of an ibv_send_wr.
        let Some(operation) = (unsafe { write_operation(p, request.op) }) else {
            return Err(Error::of(Kind::NotImplemented));
        };
        if request.length <= self.max_inline && self.pd.has_addresses_only() {
            flags |= operation.inline;
        }
        // SAFETY: as above. With these every field that verbs reads for the opcode has been written, and `request` outlives the call.
        unsafe {
            (&raw mut (*p).wr_id).write(request.id.0);
            (&raw mut (*p).next).write(std::ptr::null_mut());
            (&raw mut (*p).sg_list).write(sys::sges(request.iov));
            (&raw mut (*p).num_sge).write(request.iov.len() as i32);
            (&raw mut (*p).opcode).write(operation.opcode);
            (&raw mut (*p).send_flags).write(flags);
            self.post_written(p)
        }
    }

    /// Refuses an operation that the device or the connection does not have.
    #[inline(always)]
    fn check_support(&self, request: &Request<'_, Verbs>) -> Result<()> {
        match request.op {
            Op::SendWithImmediate(_) | Op::RdmaWriteWithImmediate(..) if !self.immediate_data => {
                Err(Error::of(Kind::ModelNotSupported))
            }
            Op::CompareSwap { .. } | Op::FetchAdd { .. } if !self.atomics => {
                Err(Error::of(Kind::ModelNotSupported))
            }
            Op::RdmaRead(_) | Op::CompareSwap { .. } | Op::FetchAdd { .. }
                if !self.reads.load(Ordering::Relaxed) =>
            {
                Err(Error::of(Kind::NotImplemented))
            }
            // The number of segments.
            Op::RdmaRead(_) if request.iov.len() > self.max_read_iov => Err(Error::arg(2)),
            _ => Ok(()),
        }
    }

    /// Posts a receive.
    #[inline(always)]
    pub(crate) fn post_recv(&self, wr_id: u64, iov: &[LmrTriplet]) -> Result<()> {
        let mut wr = sys::ibv_recv_wr {
            wr_id,
            next: std::ptr::null_mut(),
            sg_list: sys::sges(iov),
            num_sge: iov.len() as i32,
        };
        let mut bad = MaybeUninit::uninit();
        // SAFETY: the queue pair is alive; `wr` and its segments outlive the call.
        match unsafe { (self.calls.post_recv)(self.qp.as_ptr(), &raw mut wr, bad.as_mut_ptr()) } {
            0 => Ok(()),
            e => self.post_recv_refused(wr_id, iov, e),
        }
    }

    /// Posts a receive without segments once more, with an empty one: siw's driver library requires a segment.
    #[cold]
    fn post_recv_refused(&self, wr_id: u64, iov: &[LmrTriplet], errno: i32) -> Result<()> {
        if iov.is_empty() && errno.saturating_abs() == libc::EINVAL {
            return self.post_recv(wr_id, &[LmrTriplet::default()]);
        }
        Err(convert::posted(errno))
    }
}

/// Returns the attributes of a new queue pair, without inline data.
fn init_attr(
    caps: &QpCaps,
    recv_cq: &Cq,
    request_cq: &Cq,
    srq: Option<&Arc<Srq>>,
    token: Token,
) -> sys::ibv_qp_init_attr {
    // SAFETY: all-zero is a valid value of this plain C struct.
    let mut init: sys::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
    init.qp_context = std::ptr::without_provenance_mut(token.0 as usize);
    init.send_cq = request_cq.raw();
    init.recv_cq = recv_cq.raw();
    init.qp_type = if caps.datagram {
        sys::ibv_qp_type::IBV_QPT_UD
    } else {
        sys::ibv_qp_type::IBV_QPT_RC
    };
    init.cap.max_send_wr = caps.max_request.max(1);
    init.cap.max_send_sge = caps.max_request_iov.max(1);
    match srq {
        Some(srq) => init.srq = srq.raw(),
        None => {
            init.cap.max_recv_wr = caps.max_recv.max(1);
            init.cap.max_recv_sge = caps.max_recv_iov.max(1);
        }
    }
    init
}

/// Creates the verbs object. `init` then has what the device granted.
///
/// # Safety
/// The queues and the SRQ in `init` are alive.
unsafe fn create(pd: &Pd, init: &mut sys::ibv_qp_init_attr) -> Result<NonNull<sys::ibv_qp>> {
    let wanted = init.cap;
    // SAFETY: the PD is alive, and the caller promises the rest.
    let mut qp = unsafe { sys::ibv_create_qp(pd.raw(), init) };
    if qp.is_null() && wanted.max_inline_data != 0 {
        // Some devices refuse inline data together with this many segments. Inline data is optional.
        init.cap = wanted;
        init.cap.max_inline_data = 0;
        // SAFETY: as above.
        qp = unsafe { sys::ibv_create_qp(pd.raw(), init) };
    }
    NonNull::new(qp)
        .ok_or_else(|| convert::failed("ibv_create_qp", sys::errno(), Subtype::ResourceTep))
}

impl Drop for Qp {
    fn drop(&mut self) {
        // The connection is dropped first, which notifies its peer.
        drop(self.conn.get_mut().take());
        if self.srq.is_some() {
            self.recv_cq.detach(self.number(), self.token);
        }
        let qpn = self.number();
        for window in self.windows.get_mut().drain(..) {
            if let Some(window) = window.upgrade() {
                window.unbind_on(qpn);
            }
        }
        // SAFETY: made by us and destroyed once.
        let result = unsafe { sys::ibv_destroy_qp(self.raw()) };
        if result != 0 {
            tracing::warn!(
                "ibv_destroy_qp failed, the QP is leaked: {}",
                convert::text(result)
            );
        }
    }
}

#[cfg(test)]
mod tests;
