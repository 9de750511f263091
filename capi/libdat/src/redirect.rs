//! Functions on handles: a jump through the table at the handle's head, once it is known to be a handle.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_abi::types::{
    DatBoolean, DatContext, DatCount, DatCrParam, DatEvdParam, DatHandle, DatIaAddressPtr,
    DatOsWaitProxyAgent, DatPspParam, DatPzParam, DatRegionDescription, DatRspParam, DatSrqAttr,
    DatSrqParam, DatTimeout,
};
use dat_abi::v1_2::table::DatProvider;
use dat_abi::v1_2::types::{
    DatCnoParam, DatEpAttr, DatEpParam, DatEvent, DatIaAttr, DatLmrParam, DatLmrTriplet,
    DatProviderAttr, DatRmrParam, DatRmrTriplet,
};
use dat_core::error::{Error, Kind, Subtype};

use crate::export::code;
use crate::registry::registry;

/// Set for good by the first provider that is not ours: then what is not NULL must be a handle, as with every libdat
/// before us.
static FOREIGN: AtomicBool = AtomicBool::new(false);

/// A provider that is not ours was registered.
pub(crate) fn foreign() {
    FOREIGN.store(true, Ordering::Release);
}

/// No handle lies in the first page.
const LOWEST: usize = 4096;

/// The table of a handle; `None` for what is none.
#[inline]
fn table(handle: DatHandle) -> Option<&'static DatProvider> {
    let is_one = handle >= LOWEST && (FOREIGN.load(Ordering::Acquire) || registry().owns(handle));
    if !is_one {
        return None;
    }
    // SAFETY: a place for objects of ours, or a handle by the caller's word.
    unsafe { dat_c_library::table(handle) }
}

/// Each line makes an exported function: its slot, the subtype for a wrong handle, its parameters.
macro_rules! redirects {
    ($($(#[$meta:meta])* $export:ident = $($abi:literal)? $slot:ident / $wrong:ident ($first:ident $(, $arg:ident: $ty:ty)*);)*) => {
        export! {$(
            $(#[$meta])*
            $(extern $abi)? fn $export($first: DatHandle $(, $arg: $ty)*) -> u32 {
                let Some(table) = table($first) else {
                    return code(Error::handle(Subtype::$wrong));
                };
                match table.$slot {
                    // SAFETY: the slot's contract is the function's.
                    Some(slot) => unsafe { slot($first $(, $arg)*) },
                    None => code(Error::of(Kind::NotImplemented)),
                }
            }
        )*}
    };
}

redirects! {
    /// dat_ia_query.
    dat_ia_query = ia_query / InvalidHandleIa (ia, async_evd: *mut DatHandle, ia_mask: u64, ia_attr: *mut DatIaAttr, provider_mask: u64, provider_attr: *mut DatProviderAttr);
    /// dat_set_consumer_context.
    dat_set_consumer_context = set_consumer_context / InvalidHandle1 (any, context: DatContext);
    /// dat_get_consumer_context.
    dat_get_consumer_context = get_consumer_context / InvalidHandle1 (any, context: *mut DatContext);
    /// dat_get_handle_type.
    dat_get_handle_type = get_handle_type / InvalidHandle1 (any, handle_type: *mut u32);
    /// dat_cno_create.
    dat_cno_create = cno_create / InvalidHandleIa (ia, agent: DatOsWaitProxyAgent, cno: *mut DatHandle);
    /// dat_cno_modify_agent.
    dat_cno_modify_agent = cno_modify_agent / InvalidHandleCno (cno, agent: DatOsWaitProxyAgent);
    /// dat_cno_query.
    dat_cno_query = cno_query / InvalidHandleCno (cno, mask: u32, param: *mut DatCnoParam);
    /// dat_cno_free.
    dat_cno_free = cno_free / InvalidHandleCno (cno);
    /// dat_cno_wait.
    dat_cno_wait = "C-unwind" cno_wait / InvalidHandleCno (cno, timeout: DatTimeout, evd: *mut DatHandle);
    /// dat_cr_query.
    dat_cr_query = cr_query / InvalidHandleCr (cr, mask: u32, param: *mut DatCrParam);
    /// dat_cr_accept.
    dat_cr_accept = cr_accept / InvalidHandleCr (cr, ep: DatHandle, private_data_size: DatCount, private_data: *const c_void);
    /// dat_cr_reject.
    dat_cr_reject = cr_reject / InvalidHandleCr (cr);
    /// dat_cr_handoff.
    dat_cr_handoff = cr_handoff / InvalidHandleCr (cr, conn_qual: u64);
    /// dat_evd_create.
    dat_evd_create = evd_create / InvalidHandleIa (ia, min_qlen: DatCount, cno: DatHandle, flags: u32, evd: *mut DatHandle);
    /// dat_evd_query.
    dat_evd_query = evd_query / InvalidHandle1 (evd, mask: u32, param: *mut DatEvdParam);
    /// dat_evd_modify_cno.
    dat_evd_modify_cno = evd_modify_cno / InvalidHandle1 (evd, cno: DatHandle);
    /// dat_evd_enable.
    dat_evd_enable = evd_enable / InvalidHandle1 (evd);
    /// dat_evd_disable.
    dat_evd_disable = evd_disable / InvalidHandle1 (evd);
    /// dat_evd_wait.
    dat_evd_wait = "C-unwind" evd_wait / InvalidHandle1 (evd, timeout: DatTimeout, threshold: DatCount, event: *mut DatEvent, nmore: *mut DatCount);
    /// dat_evd_resize.
    dat_evd_resize = evd_resize / InvalidHandle1 (evd, min_qlen: DatCount);
    /// dat_evd_post_se.
    dat_evd_post_se = evd_post_se / InvalidHandle1 (evd, event: *const DatEvent);
    /// dat_evd_dequeue.
    dat_evd_dequeue = evd_dequeue / InvalidHandle1 (evd, event: *mut DatEvent);
    /// dat_evd_free.
    dat_evd_free = evd_free / InvalidHandle1 (evd);
    /// dat_ep_create.
    dat_ep_create = ep_create / InvalidHandleIa (ia, pz: DatHandle, recv_evd: DatHandle, request_evd: DatHandle, connect_evd: DatHandle, attr: *const DatEpAttr, ep: *mut DatHandle);
    /// dat_ep_query.
    dat_ep_query = ep_query / InvalidHandleEp (ep, mask: u64, param: *mut DatEpParam);
    /// dat_ep_modify.
    dat_ep_modify = ep_modify / InvalidHandleEp (ep, mask: u64, param: *const DatEpParam);
    /// dat_ep_connect.
    dat_ep_connect = ep_connect / InvalidHandleEp (ep, remote: DatIaAddressPtr, conn_qual: u64, timeout: DatTimeout, private_data_size: DatCount, private_data: *const c_void, qos: u32, flags: u32);
    /// dat_ep_dup_connect.
    dat_ep_dup_connect = ep_dup_connect / InvalidHandleEp (ep, model: DatHandle, timeout: DatTimeout, private_data_size: DatCount, private_data: *const c_void, qos: u32);
    /// dat_ep_disconnect.
    dat_ep_disconnect = ep_disconnect / InvalidHandleEp (ep, flags: u32);
    /// dat_ep_post_send.
    dat_ep_post_send = ep_post_send / InvalidHandleEp (ep, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, flags: u32);
    /// dat_ep_post_recv.
    dat_ep_post_recv = ep_post_recv / InvalidHandleEp (ep, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, flags: u32);
    /// dat_ep_post_rdma_read.
    dat_ep_post_rdma_read = ep_post_rdma_read / InvalidHandleEp (ep, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, remote: *const DatRmrTriplet, flags: u32);
    /// dat_ep_post_rdma_write.
    dat_ep_post_rdma_write = ep_post_rdma_write / InvalidHandleEp (ep, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, remote: *const DatRmrTriplet, flags: u32);
    /// dat_ep_get_status.
    dat_ep_get_status = ep_get_status / InvalidHandleEp (ep, state: *mut u32, recv_idle: *mut DatBoolean, request_idle: *mut DatBoolean);
    /// dat_ep_free.
    dat_ep_free = ep_free / InvalidHandleEp (ep);
    /// dat_lmr_create.
    dat_lmr_create = lmr_create / InvalidHandleIa (ia, mem_type: u32, region: DatRegionDescription, length: u64, pz: DatHandle, privileges: u32, lmr: *mut DatHandle, lmr_context: *mut u32, rmr_context: *mut u32, registered_length: *mut u64, registered_address: *mut u64);
    /// dat_lmr_query.
    dat_lmr_query = lmr_query / InvalidHandleLmr (lmr, mask: u32, param: *mut DatLmrParam);
    /// dat_lmr_free.
    dat_lmr_free = lmr_free / InvalidHandleLmr (lmr);
    /// dat_rmr_create.
    dat_rmr_create = rmr_create / InvalidHandlePz (pz, rmr: *mut DatHandle);
    /// dat_rmr_query.
    dat_rmr_query = rmr_query / InvalidHandleRmr (rmr, mask: u32, param: *mut DatRmrParam);
    /// dat_rmr_bind.
    dat_rmr_bind = rmr_bind / InvalidHandleRmr (rmr, triplet: *const DatLmrTriplet, privileges: u32, ep: DatHandle, cookie: DatContext, flags: u32, rmr_context: *mut u32);
    /// dat_rmr_free.
    dat_rmr_free = rmr_free / InvalidHandleRmr (rmr);
    /// dat_psp_create.
    dat_psp_create = psp_create / InvalidHandleIa (ia, conn_qual: u64, evd: DatHandle, flags: u32, psp: *mut DatHandle);
    /// dat_psp_query.
    dat_psp_query = psp_query / InvalidHandlePsp (psp, mask: u32, param: *mut DatPspParam);
    /// dat_psp_free.
    dat_psp_free = psp_free / InvalidHandlePsp (psp);
    /// dat_rsp_create.
    dat_rsp_create = rsp_create / InvalidHandleIa (ia, conn_qual: u64, ep: DatHandle, evd: DatHandle, rsp: *mut DatHandle);
    /// dat_rsp_query.
    dat_rsp_query = rsp_query / InvalidHandleRsp (rsp, mask: u32, param: *mut DatRspParam);
    /// dat_rsp_free.
    dat_rsp_free = rsp_free / InvalidHandleRsp (rsp);
    /// dat_pz_create.
    dat_pz_create = pz_create / InvalidHandleIa (ia, pz: *mut DatHandle);
    /// dat_pz_query.
    dat_pz_query = pz_query / InvalidHandlePz (pz, mask: u32, param: *mut DatPzParam);
    /// dat_pz_free.
    dat_pz_free = pz_free / InvalidHandlePz (pz);
    /// dat_psp_create_any.
    dat_psp_create_any = psp_create_any / InvalidHandleIa (ia, conn_qual: *mut u64, evd: DatHandle, flags: u32, psp: *mut DatHandle);
    /// dat_ep_reset.
    dat_ep_reset = ep_reset / InvalidHandleEp (ep);
    /// dat_evd_set_unwaitable.
    dat_evd_set_unwaitable = evd_set_unwaitable / InvalidHandle1 (evd);
    /// dat_evd_clear_unwaitable.
    dat_evd_clear_unwaitable = evd_clear_unwaitable / InvalidHandle1 (evd);
    /// dat_lmr_sync_rdma_read.
    dat_lmr_sync_rdma_read = lmr_sync_rdma_read / InvalidHandleIa (ia, segments: *const DatLmrTriplet, count: u64);
    /// dat_lmr_sync_rdma_write.
    dat_lmr_sync_rdma_write = lmr_sync_rdma_write / InvalidHandleIa (ia, segments: *const DatLmrTriplet, count: u64);
    /// dat_ep_create_with_srq.
    dat_ep_create_with_srq = ep_create_with_srq / InvalidHandleIa (ia, pz: DatHandle, recv_evd: DatHandle, request_evd: DatHandle, connect_evd: DatHandle, srq: DatHandle, attr: *const DatEpAttr, ep: *mut DatHandle);
    /// dat_ep_recv_query.
    dat_ep_recv_query = ep_recv_query / InvalidHandleEp (ep, buffers_allocated: *mut DatCount, buffers_spanned: *mut DatCount);
    /// dat_ep_set_watermark.
    dat_ep_set_watermark = ep_set_watermark / InvalidHandleEp (ep, soft_high: DatCount, hard_high: DatCount);
    /// dat_srq_create.
    dat_srq_create = srq_create / InvalidHandleIa (ia, pz: DatHandle, attr: *mut DatSrqAttr, srq: *mut DatHandle);
    /// dat_srq_free.
    dat_srq_free = srq_free / InvalidHandleSrq (srq);
    /// dat_srq_post_recv.
    dat_srq_post_recv = srq_post_recv / InvalidHandleSrq (srq, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext);
    /// dat_srq_query.
    dat_srq_query = srq_query / InvalidHandleSrq (srq, mask: u32, param: *mut DatSrqParam);
    /// dat_srq_resize.
    dat_srq_resize = srq_resize / InvalidHandleSrq (srq, max_recv_dtos: DatCount);
    /// dat_srq_set_lw.
    dat_srq_set_lw = srq_set_lw / InvalidHandleSrq (srq, low_watermark: DatCount);
}
