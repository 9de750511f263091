//! Functions on handles. Each checks that its first argument is a handle, then jumps through the handle's function table.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_abi::types::*;
use dat_abi::v1_2::table::DatProvider;
use dat_abi::v1_2::types::*;
use dat_core::error::{Error, Kind, Subtype};

use crate::export::code;
use crate::registry::registry;

/// Whether a provider that is not ours was ever registered. From then on every number from [`LOWEST`] on is dereferenced as a
/// handle, as other libdats do.
static FOREIGN: AtomicBool = AtomicBool::new(false);

/// Records that a provider that is not ours was registered.
pub(crate) fn foreign_registered() {
    FOREIGN.store(true, Ordering::Release);
}

/// Lowest address of a handle: none lies in the first page.
const LOWEST: usize = 4096;

/// Returns the function table of a handle; `None` if the number is no handle.
#[inline]
fn table(handle: DatHandle) -> Option<&'static DatProvider> {
    let is_handle =
        handle >= LOWEST && (FOREIGN.load(Ordering::Acquire) || registry().owns(handle));
    if !is_handle {
        return None;
    }
    // SAFETY: an address in our arenas, or a handle by the caller's promise.
    unsafe { dat_c_library::table(handle) }
}

/// Exports a function a line: `FUNCTION = SLOT / SUBTYPE FOR A WRONG HANDLE (HANDLE, PARAMETERS)`.
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
    // BEGIN slots.txt: exports 1.2
    /// Queries the attributes of an IA and of its provider (dat_ia_query).
    dat_ia_query = ia_query / InvalidHandleIa (ia, async_evd: *mut DatHandle, ia_mask: u64, ia_attr: *mut DatIaAttr, provider_mask: u64, provider_attr: *mut DatProviderAttr);
    /// Sets the context of an object (dat_set_consumer_context).
    dat_set_consumer_context = set_consumer_context / InvalidHandle1 (handle, context: DatContext);
    /// Returns the context of an object (dat_get_consumer_context).
    dat_get_consumer_context = get_consumer_context / InvalidHandle1 (handle, context: *mut DatContext);
    /// Returns the kind of an object (dat_get_handle_type).
    dat_get_handle_type = get_handle_type / InvalidHandle1 (handle, handle_type: *mut u32);
    /// Creates a CNO, with an agent or without (dat_cno_create).
    dat_cno_create = cno_create / InvalidHandleIa (ia, agent: DatOsWaitProxyAgent, cno: *mut DatHandle);
    /// Replaces the agent of a CNO (dat_cno_modify_agent).
    dat_cno_modify_agent = cno_modify_agent / InvalidHandleCno (cno, agent: DatOsWaitProxyAgent);
    /// Queries the parameters of a CNO (dat_cno_query).
    dat_cno_query = cno_query / InvalidHandleCno (cno, mask: u32, param: *mut DatCnoParam);
    /// Destroys a CNO (dat_cno_free).
    dat_cno_free = cno_free / InvalidHandleCno (cno);
    /// Waits for an EVD of a CNO that has an event (dat_cno_wait).
    dat_cno_wait = "C-unwind" cno_wait / InvalidHandleCno (cno, timeout: DatTimeout, evd: *mut DatHandle);
    /// Queries the parameters of a connection request (dat_cr_query).
    dat_cr_query = cr_query / InvalidHandleCr (cr, mask: u32, param: *mut DatCrParam);
    /// Accepts a connection request (dat_cr_accept).
    dat_cr_accept = cr_accept / InvalidHandleCr (cr, ep: DatHandle, private_data_size: DatCount, private_data: *const c_void);
    /// Rejects a connection request (dat_cr_reject).
    dat_cr_reject = cr_reject / InvalidHandleCr (cr);
    /// Hands a connection request to another service point of the IA (dat_cr_handoff).
    dat_cr_handoff = cr_handoff / InvalidHandleCr (cr, handoff: u64);
    /// Creates an EVD (dat_evd_create).
    dat_evd_create = evd_create / InvalidHandleIa (ia, min_qlen: DatCount, cno: DatHandle, flags: u32, evd: *mut DatHandle);
    /// Queries the parameters of an EVD (dat_evd_query).
    dat_evd_query = evd_query / InvalidHandle1 (evd, mask: u32, param: *mut DatEvdParam);
    /// Replaces the CNO of an EVD (dat_evd_modify_cno).
    dat_evd_modify_cno = evd_modify_cno / InvalidHandle1 (evd, cno: DatHandle);
    /// Lets an EVD notify its CNO (dat_evd_enable).
    dat_evd_enable = evd_enable / InvalidHandle1 (evd);
    /// Stops an EVD from notifying its CNO (dat_evd_disable).
    dat_evd_disable = evd_disable / InvalidHandle1 (evd);
    /// Waits until an EVD has as many events as the threshold says, and takes one (dat_evd_wait).
    dat_evd_wait = "C-unwind" evd_wait / InvalidHandle1 (evd, timeout: DatTimeout, threshold: DatCount, event: *mut DatEvent, nmore: *mut DatCount);
    /// Changes the number of events that an EVD holds (dat_evd_resize).
    dat_evd_resize = evd_resize / InvalidHandle1 (evd, min_qlen: DatCount);
    /// Posts a software event to an EVD (dat_evd_post_se).
    dat_evd_post_se = evd_post_se / InvalidHandle1 (evd, event: *const DatEvent);
    /// Takes an event from an EVD without waiting (dat_evd_dequeue).
    dat_evd_dequeue = evd_dequeue / InvalidHandle1 (evd, event: *mut DatEvent);
    /// Destroys an EVD (dat_evd_free).
    dat_evd_free = evd_free / InvalidHandle1 (evd);
    /// Creates an endpoint (dat_ep_create).
    dat_ep_create = ep_create / InvalidHandleIa (ia, pz: DatHandle, recv_evd: DatHandle, request_evd: DatHandle, connect_evd: DatHandle, attr: *const DatEpAttr, ep: *mut DatHandle);
    /// Queries the parameters of an endpoint (dat_ep_query).
    dat_ep_query = ep_query / InvalidHandleEp (ep, mask: u64, param: *mut DatEpParam);
    /// Changes parameters of an endpoint (dat_ep_modify).
    dat_ep_modify = ep_modify / InvalidHandleEp (ep, mask: u64, param: *const DatEpParam);
    /// Connects an endpoint to an address and a connection qualifier (dat_ep_connect).
    dat_ep_connect = ep_connect / InvalidHandleEp (ep, remote: DatIaAddressPtr, conn_qual: u64, timeout: DatTimeout, private_data_size: DatCount, private_data: *const c_void, qos: u32, flags: u32);
    /// Connects an endpoint to the peer of another endpoint (dat_ep_dup_connect).
    dat_ep_dup_connect = ep_dup_connect / InvalidHandleEp (ep, model: DatHandle, timeout: DatTimeout, private_data_size: DatCount, private_data: *const c_void, qos: u32);
    /// Disconnects an endpoint (dat_ep_disconnect).
    dat_ep_disconnect = ep_disconnect / InvalidHandleEp (ep, flags: u32);
    /// Posts a send (dat_ep_post_send).
    dat_ep_post_send = ep_post_send / InvalidHandleEp (ep, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, flags: u32);
    /// Posts a receive (dat_ep_post_recv).
    dat_ep_post_recv = ep_post_recv / InvalidHandleEp (ep, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, flags: u32);
    /// Posts an RDMA Read (dat_ep_post_rdma_read).
    dat_ep_post_rdma_read = ep_post_rdma_read / InvalidHandleEp (ep, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, remote: *const DatRmrTriplet, flags: u32);
    /// Posts an RDMA Write (dat_ep_post_rdma_write).
    dat_ep_post_rdma_write = ep_post_rdma_write / InvalidHandleEp (ep, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, remote: *const DatRmrTriplet, flags: u32);
    /// Returns the state of an endpoint and whether its queues are idle (dat_ep_get_status).
    dat_ep_get_status = ep_get_status / InvalidHandleEp (ep, state: *mut u32, recv_idle: *mut DatBoolean, request_idle: *mut DatBoolean);
    /// Destroys an endpoint (dat_ep_free).
    dat_ep_free = ep_free / InvalidHandleEp (ep);
    /// Registers memory (dat_lmr_create).
    dat_lmr_create = lmr_create / InvalidHandleIa (ia, mem_type: u32, region: DatRegionDescription, length: u64, pz: DatHandle, privileges: u32, lmr: *mut DatHandle, lmr_context: *mut u32, rmr_context: *mut u32, registered_length: *mut u64, registered_address: *mut u64);
    /// Queries the parameters of an LMR (dat_lmr_query).
    dat_lmr_query = lmr_query / InvalidHandleLmr (lmr, mask: u32, param: *mut DatLmrParam);
    /// Destroys an LMR (dat_lmr_free).
    dat_lmr_free = lmr_free / InvalidHandleLmr (lmr);
    /// Creates an RMR (a memory window) (dat_rmr_create).
    dat_rmr_create = rmr_create / InvalidHandlePz (pz, rmr: *mut DatHandle);
    /// Queries the parameters of an RMR (dat_rmr_query).
    dat_rmr_query = rmr_query / InvalidHandleRmr (rmr, mask: u32, param: *mut DatRmrParam);
    /// Binds an RMR to a range of an LMR, or unbinds it (dat_rmr_bind).
    dat_rmr_bind = rmr_bind / InvalidHandleRmr (rmr, triplet: *const DatLmrTriplet, privileges: u32, ep: DatHandle, cookie: DatContext, flags: u32, rmr_context: *mut u32);
    /// Destroys an RMR (dat_rmr_free).
    dat_rmr_free = rmr_free / InvalidHandleRmr (rmr);
    /// Creates a public service point on a connection qualifier (dat_psp_create).
    dat_psp_create = psp_create / InvalidHandleIa (ia, conn_qual: u64, evd: DatHandle, flags: u32, psp: *mut DatHandle);
    /// Queries the parameters of a public service point (dat_psp_query).
    dat_psp_query = psp_query / InvalidHandlePsp (psp, mask: u32, param: *mut DatPspParam);
    /// Destroys a public service point (dat_psp_free).
    dat_psp_free = psp_free / InvalidHandlePsp (psp);
    /// Creates a reserved service point: one endpoint, one request (dat_rsp_create).
    dat_rsp_create = rsp_create / InvalidHandleIa (ia, conn_qual: u64, ep: DatHandle, evd: DatHandle, rsp: *mut DatHandle);
    /// Queries the parameters of a reserved service point (dat_rsp_query).
    dat_rsp_query = rsp_query / InvalidHandleRsp (rsp, mask: u32, param: *mut DatRspParam);
    /// Destroys a reserved service point (dat_rsp_free).
    dat_rsp_free = rsp_free / InvalidHandleRsp (rsp);
    /// Creates a protection zone (dat_pz_create).
    dat_pz_create = pz_create / InvalidHandleIa (ia, pz: *mut DatHandle);
    /// Queries the parameters of a protection zone (dat_pz_query).
    dat_pz_query = pz_query / InvalidHandlePz (pz, mask: u32, param: *mut DatPzParam);
    /// Destroys a protection zone (dat_pz_free).
    dat_pz_free = pz_free / InvalidHandlePz (pz);
    /// Creates a public service point on a free connection qualifier (dat_psp_create_any).
    dat_psp_create_any = psp_create_any / InvalidHandleIa (ia, conn_qual: *mut u64, evd: DatHandle, flags: u32, psp: *mut DatHandle);
    /// Makes a disconnected endpoint usable again (dat_ep_reset).
    dat_ep_reset = ep_reset / InvalidHandleEp (ep);
    /// Refuses waits on an EVD from now on (dat_evd_set_unwaitable).
    dat_evd_set_unwaitable = evd_set_unwaitable / InvalidHandle1 (evd);
    /// Allows waits on an EVD again (dat_evd_clear_unwaitable).
    dat_evd_clear_unwaitable = evd_clear_unwaitable / InvalidHandle1 (evd);
    /// Makes local writes visible to incoming RDMA Reads (dat_lmr_sync_rdma_read).
    dat_lmr_sync_rdma_read = lmr_sync_rdma_read / InvalidHandleIa (ia, segments: *const DatLmrTriplet, count: u64);
    /// Makes incoming RDMA Writes visible locally (dat_lmr_sync_rdma_write).
    dat_lmr_sync_rdma_write = lmr_sync_rdma_write / InvalidHandleIa (ia, segments: *const DatLmrTriplet, count: u64);
    /// Creates an endpoint that takes its receives from an SRQ (dat_ep_create_with_srq).
    dat_ep_create_with_srq = ep_create_with_srq / InvalidHandleIa (ia, pz: DatHandle, recv_evd: DatHandle, request_evd: DatHandle, connect_evd: DatHandle, srq: DatHandle, attr: *const DatEpAttr, ep: *mut DatHandle);
    /// Returns how many receives an endpoint has posted and has in use (dat_ep_recv_query).
    dat_ep_recv_query = ep_recv_query / InvalidHandleEp (ep, buffers_allocated: *mut DatCount, buffers_spanned: *mut DatCount);
    /// Sets the watermarks of receives that an endpoint takes from its SRQ (dat_ep_set_watermark).
    dat_ep_set_watermark = ep_set_watermark / InvalidHandleEp (ep, soft_high: DatCount, hard_high: DatCount);
    /// Creates a shared receive queue (dat_srq_create).
    dat_srq_create = srq_create / InvalidHandleIa (ia, pz: DatHandle, attr: *mut DatSrqAttr, srq: *mut DatHandle);
    /// Destroys a shared receive queue (dat_srq_free).
    dat_srq_free = srq_free / InvalidHandleSrq (srq);
    /// Posts a receive to a shared receive queue (dat_srq_post_recv).
    dat_srq_post_recv = srq_post_recv / InvalidHandleSrq (srq, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext);
    /// Queries the parameters of a shared receive queue (dat_srq_query).
    dat_srq_query = srq_query / InvalidHandleSrq (srq, mask: u32, param: *mut DatSrqParam);
    /// Changes the number of receives that a shared receive queue holds (dat_srq_resize).
    dat_srq_resize = srq_resize / InvalidHandleSrq (srq, max_recv_dtos: DatCount);
    /// Sets the low watermark of a shared receive queue (dat_srq_set_lw).
    dat_srq_set_lw = srq_set_lw / InvalidHandleSrq (srq, low_watermark: DatCount);
    // END slots.txt
}
