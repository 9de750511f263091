//! The static inline functions of both headers: those of `verbs.h` call the device through its context.

use std::ptr::NonNull;

use libc::{c_int, sockaddr};

use super::cma::rdma_cm_id;
use super::verbs::{
    ibv_cq, ibv_mw, ibv_mw_bind, ibv_pd, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq,
};
use super::wc::Wc;
use super::{ibv_context, ibv_mw_type};

/// # Safety
/// `pd` is open.
pub(crate) unsafe fn ibv_alloc_mw(pd: *mut ibv_pd, kind: u32) -> Result<NonNull<ibv_mw>, i32> {
    // SAFETY: the caller guarantees the PD, and the context is open as long.
    unsafe {
        let alloc = (*(*pd).context).ops.alloc_mw.ok_or(libc::EOPNOTSUPP)?;
        NonNull::new(alloc(pd, kind)).ok_or_else(super::errno)
    }
}

/// # Safety
/// `mw` is allocated, and not used afterwards.
pub(crate) unsafe fn ibv_dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the caller guarantees the window.
    unsafe {
        match (*(*mw).context).ops.dealloc_mw {
            Some(dealloc) => dealloc(mw),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Binds a window of type 1.
///
/// # Safety
/// All are alive; `bind` names a region that is registered.
pub(crate) unsafe fn ibv_bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    // SAFETY: the caller guarantees all three.
    unsafe {
        if (*mw).type_ != ibv_mw_type::IBV_MW_TYPE_1 {
            return libc::EINVAL;
        }
        match (*(*mw).context).ops.bind_mw {
            Some(call) => call(qp, mw, bind),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// # Safety
/// `cq` is alive.
pub(crate) unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller guarantees the queue.
    unsafe {
        match (*(*cq).context).ops.req_notify_cq {
            Some(call) => call(cq, solicited_only),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// # Safety
/// `srq` is alive; `wr` and its segments are valid, `bad` for the write.
pub(crate) unsafe fn ibv_post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller guarantees all three.
    unsafe {
        match (*(*srq).context).ops.post_srq_recv {
            Some(call) => call(srq, wr, bad),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// Returns the address of the id's local address, as large as any family.
///
/// # Safety
/// `id` is alive.
pub(crate) unsafe fn rdma_get_local_addr(id: *const rdma_cm_id) -> *const sockaddr {
    // SAFETY: the caller guarantees the id.
    unsafe { (&raw const (*id).route.addr.src).cast() }
}

/// Returns the address of the id's remote address, as large as any family.
///
/// # Safety
/// `id` is alive.
pub(crate) unsafe fn rdma_get_peer_addr(id: *const rdma_cm_id) -> *const sockaddr {
    // SAFETY: the caller guarantees the id.
    unsafe { (&raw const (*id).route.addr.dst).cast() }
}

/// The device's data path functions. The inline `ibv_post_send` and its siblings of verbs.h look them up in each call;
/// a device sets them when it is opened.
#[derive(Clone, Copy)]
pub(crate) struct Calls {
    pub(crate) post_send:
        unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
    pub(crate) post_recv:
        unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    pub(crate) poll_cq: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut Wc) -> c_int,
    /// True if `post_send` makes a system call: libc's `write`, a cancellation point.
    pub(crate) posts_by_kernel: bool,
}

impl Calls {
    /// Returns the functions of an open device; `None` if it lacks one.
    pub(crate) fn of(context: &ibv_context, posts_by_kernel: bool) -> Option<Self> {
        Some(Self {
            posts_by_kernel,
            post_send: context.ops.post_send?,
            post_recv: context.ops.post_recv?,
            poll_cq: context.ops.poll_cq?,
        })
    }

    /// Runs `post`, which calls `post_send` with locks held, without a cancellation point.
    #[inline(always)]
    pub(crate) fn without_cancellation<R>(&self, post: impl FnOnce() -> R) -> R {
        if self.posts_by_kernel {
            dat_os::cancel::defer(post)
        } else {
            post()
        }
    }
}
