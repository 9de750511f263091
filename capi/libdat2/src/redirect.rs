//! Functions on handles. Each jumps through a function table, in as few instructions as possible.
//!
//! An exported function jumps through the *current* table, which is one of three:
//! * the checking table, at first: its functions refuse a number that is no handle of a provider of ours, else they jump through
//!   the handle's own table;
//! * the table of the only engine, once an IA is open and all providers are ours: its thunks check everything themselves, and they are
//!   the same for all IAs of the engine. A second engine makes the checking table the current one again;
//! * the classic table, from the first foreign provider on: every number that is not NULL must be a handle, as with other libdats.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use dat_abi::types::*;
use dat_abi::v2_0::table::DatProvider;
use dat_abi::v2_0::types::*;
use dat_c_library::table;
use dat_core::error::{Error, Kind, Subtype};

use crate::registry::registry;

/// The current table.
static CURRENT: AtomicPtr<DatProvider> = AtomicPtr::new((&raw const CHECKING).cast_mut());
/// The engines of ours that were opened. Locked while the current table is selected, so that two threads that open IAs, or one that
/// registers a provider meanwhile, store it in the order of their selections.
static OPENED: Mutex<Opened> = Mutex::new(Opened::None);
/// 1 from the first foreign provider on, else 0.
static FOREIGN: AtomicUsize = AtomicUsize::new(0);

/// Engines of ours.
enum Opened {
    None,
    /// One, and its first table.
    Only(&'static DatProvider),
    Several,
}

/// Selects the current table after an IA was opened; `handle` is the provider's.
pub(crate) fn ia_opened(handle: DatHandle) {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if FOREIGN.load(Ordering::Acquire) != 0 {
        return;
    }
    // SAFETY: a live handle; its first word is its table, which is never freed.
    let table = unsafe { &**(handle as *const *const DatProvider) };
    let next: &'static DatProvider = match *opened {
        Opened::None => {
            *opened = Opened::Only(table);
            table
        }
        Opened::Only(only) if table.has_functions_of(only) => return,
        Opened::Only(_) | Opened::Several => {
            *opened = Opened::Several;
            &CHECKING
        }
    };
    CURRENT.store(ptr::from_ref(next).cast_mut(), Ordering::Release);
}

/// Makes the classic table the current one, because a provider that is not ours was registered.
pub(crate) fn foreign_registered() {
    let _opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    FOREIGN.store(1, Ordering::Release);
    CURRENT.store((&raw const CLASSIC).cast_mut(), Ordering::Release);
}

/// Returns true if `handle` is an address in the arenas of a provider of ours, which may be dereferenced.
fn is_ours(handle: DatHandle) -> bool {
    registry().owns(handle)
}

/// Exports a function a line: `FUNCTION = SLOT / SUBTYPE FOR A WRONG HANDLE (HANDLE, PARAMETERS)`. Each line also defines the
/// function's checking and classic form and fills both tables.
macro_rules! redirects {
    ($($(#[$meta:meta])* $export:ident = $($abi:literal)? $slot:ident / $wrong:ident ($first:ident $(, $arg:ident: $ty:ty)*);)*) => {
        export! {$(
            $(#[$meta])*
            $(extern $abi)? fn $export($first: DatHandle $(, $arg: $ty)*) -> u32 {
                // SAFETY: the current table is one of the two below or that of an engine of ours: every slot is filled and
                // accepts any number as a handle.
                unsafe {
                    let table = &*CURRENT.load(Ordering::Relaxed);
                    (table.$slot.unwrap_unchecked())($first $(, $arg)*)
                }
            }
        )*}

        mod checking {
            use super::*;
            $(#[allow(missing_abi, reason = "a line without a calling convention has \"C\"")]
            pub(super) unsafe extern $($abi)? fn $slot($first: DatHandle $(, $arg: $ty)*) -> u32 {
                let handle = super::resolve($first);
                if !is_ours(handle) {
                    return Error::handle(Subtype::$wrong).code();
                }
                // SAFETY: a handle of ours; its own table checks the rest.
                unsafe { super::classic::$slot(handle $(, $arg)*) }
            })*
        }

        mod classic {
            use super::*;
            $(#[allow(missing_abi, reason = "a line without a calling convention has \"C\"")]
            pub(super) unsafe extern $($abi)? fn $slot($first: DatHandle $(, $arg: $ty)*) -> u32 {
                if $first < super::LOWEST {
                    return Error::handle(Subtype::$wrong).code();
                }
                // SAFETY: a handle by the function's contract, or an address in our arenas.
                unsafe {
                    let Some(table) = table::<DatProvider>($first) else {
                        return Error::handle(Subtype::$wrong).code();
                    };
                    match table.$slot {
                        Some(slot) => slot($first $(, $arg)*),
                        None => Error::of(Kind::NotImplemented).code(),
                    }
                }
            })*
        }

        static CHECKING: DatProvider = DatProvider { $($slot: Some(checking::$slot),)* ..DatProvider::EMPTY };
        static CLASSIC: DatProvider = DatProvider { $($slot: Some(classic::$slot),)* ..DatProvider::EMPTY };
    };
}

/// Lowest address of a handle: none lies in the first page. Smaller numbers may be IAs.
const LOWEST: usize = 4096;

/// Returns the provider's handle for an IA's number; any other number unchanged.
fn resolve(handle: DatHandle) -> DatHandle {
    if handle < LOWEST {
        registry()
            .handles
            .find(handle)
            .map_or(handle, |ia| ia.provider)
    } else {
        handle
    }
}

/// Returns the provider's handle and its table for a handle of any kind, or an IA's number, that a consumer passes; `None` if it is
/// neither.
pub(crate) fn find_table(handle: DatHandle) -> Option<(DatHandle, &'static DatProvider)> {
    let handle = resolve(handle);
    let foreign = FOREIGN.load(Ordering::Acquire) != 0;
    if handle < LOWEST || !(foreign || is_ours(handle)) {
        return None;
    }
    // SAFETY: an address in our arenas, or a handle by the caller's promise.
    unsafe { table(handle) }.map(|table| (handle, table))
}

/// Exports functions that take a handle of any kind, an IA as its number. The form of a line is that of `redirects!`.
macro_rules! any_handle {
    ($($(#[$meta:meta])* $export:ident = $slot:ident / $wrong:ident ($first:ident $(, $arg:ident: $ty:ty)*);)*) => {
        export! {$(
            $(#[$meta])*
            fn $export($first: DatHandle $(, $arg: $ty)*) -> u32 {
                let Some((handle, table)) = find_table($first) else {
                    return Error::handle(Subtype::$wrong).code();
                };
                match table.$slot {
                    // SAFETY: the slot's contract is the function's.
                    Some(slot) => unsafe { slot(handle $(, $arg)*) },
                    None => Error::of(Kind::NotImplemented).code(),
                }
            }
        )*}
    };
}

any_handle! {
    // BEGIN slots.txt: exports 2.0 any
    /// Sets the context of an object (dat_set_consumer_context).
    dat_set_consumer_context = set_consumer_context / InvalidHandle1 (handle, context: DatContext);
    /// Returns the context of an object (dat_get_consumer_context).
    dat_get_consumer_context = get_consumer_context / InvalidHandle1 (handle, context: *mut DatContext);
    /// Returns the kind of an object (dat_get_handle_type).
    dat_get_handle_type = get_handle_type / InvalidHandle1 (handle, handle_type: *mut u32);
    // END slots.txt
}

redirects! {
    // BEGIN slots.txt: exports 2.0 others
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
    dat_cr_reject = cr_reject / InvalidHandleCr (cr, private_data_size: DatCount, private_data: *const c_void);
    /// Hands a connection request to another service point of the IA (dat_cr_handoff).
    dat_cr_handoff = cr_handoff / InvalidHandleCr (cr, handoff: u64);
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
    /// Queries the parameters of an LMR (dat_lmr_query).
    dat_lmr_query = lmr_query / InvalidHandleLmr (lmr, mask: u32, param: *mut DatLmrParam);
    /// Destroys an LMR (dat_lmr_free).
    dat_lmr_free = lmr_free / InvalidHandleLmr (lmr);
    /// Creates an RMR (a memory window) (dat_rmr_create).
    dat_rmr_create = rmr_create / InvalidHandlePz (pz, rmr: *mut DatHandle);
    /// Queries the parameters of an RMR (dat_rmr_query).
    dat_rmr_query = rmr_query / InvalidHandleRmr (rmr, mask: u32, param: *mut DatRmrParam);
    /// Binds an RMR to a range of an LMR, or unbinds it (dat_rmr_bind).
    dat_rmr_bind = rmr_bind / InvalidHandleRmr (rmr, lmr: DatHandle, triplet: *const DatLmrTriplet, privileges: u32, va_type: u32, ep: DatHandle, cookie: DatContext, flags: u32, rmr_context: *mut u32);
    /// Destroys an RMR (dat_rmr_free).
    dat_rmr_free = rmr_free / InvalidHandleRmr (rmr);
    /// Queries the parameters of a public service point (dat_psp_query).
    dat_psp_query = psp_query / InvalidHandlePsp (psp, mask: u32, param: *mut DatPspParam);
    /// Destroys a public service point (dat_psp_free).
    dat_psp_free = psp_free / InvalidHandlePsp (psp);
    /// Queries the parameters of a reserved service point (dat_rsp_query).
    dat_rsp_query = rsp_query / InvalidHandleRsp (rsp, mask: u32, param: *mut DatRspParam);
    /// Destroys a reserved service point (dat_rsp_free).
    dat_rsp_free = rsp_free / InvalidHandleRsp (rsp);
    /// Queries the parameters of a protection zone (dat_pz_query).
    dat_pz_query = pz_query / InvalidHandlePz (pz, mask: u32, param: *mut DatPzParam);
    /// Destroys a protection zone (dat_pz_free).
    dat_pz_free = pz_free / InvalidHandlePz (pz);
    /// Makes a disconnected endpoint usable again (dat_ep_reset).
    dat_ep_reset = ep_reset / InvalidHandleEp (ep);
    /// Refuses waits on an EVD from now on (dat_evd_set_unwaitable).
    dat_evd_set_unwaitable = evd_set_unwaitable / InvalidHandle1 (evd);
    /// Allows waits on an EVD again (dat_evd_clear_unwaitable).
    dat_evd_clear_unwaitable = evd_clear_unwaitable / InvalidHandle1 (evd);
    /// Returns how many receives an endpoint has posted and has in use (dat_ep_recv_query).
    dat_ep_recv_query = ep_recv_query / InvalidHandleEp (ep, buffers_allocated: *mut DatCount, buffers_spanned: *mut DatCount);
    /// Sets the watermarks of receives that an endpoint takes from its SRQ (dat_ep_set_watermark).
    dat_ep_set_watermark = ep_set_watermark / InvalidHandleEp (ep, soft_high: DatCount, hard_high: DatCount);
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
    /// Queries the parameters of a common service point (dat_csp_query).
    dat_csp_query = csp_query / InvalidHandleCsp (csp, mask: u32, param: *mut DatCspParam);
    /// Destroys a common service point (dat_csp_free).
    dat_csp_free = csp_free / InvalidHandleCsp (csp);
    /// Connects an endpoint to a socket address (dat_ep_common_connect).
    dat_ep_common_connect = ep_common_connect / InvalidHandleEp (ep, remote: DatIaAddressPtr, timeout: DatTimeout, private_data_size: DatCount, private_data: *const c_void);
    /// Creates an RMR for one endpoint, whose peer may invalidate it (dat_rmr_create_for_ep).
    dat_rmr_create_for_ep = rmr_create_for_ep / InvalidHandlePz (pz, rmr: *mut DatHandle);
    /// Posts a send that invalidates an RMR of the peer (dat_ep_post_send_with_invalidate).
    dat_ep_post_send_with_invalidate = ep_post_send_with_invalidate / InvalidHandleEp (ep, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, flags: u32, invalidate: DatBoolean, rmr_context: u32);
    /// Posts an RDMA Read into a bound RMR (dat_ep_post_rdma_read_to_rmr).
    dat_ep_post_rdma_read_to_rmr = ep_post_rdma_read_to_rmr / InvalidHandleEp (ep, local: *const DatRmrTriplet, cookie: DatContext, remote: *const DatRmrTriplet, flags: u32);
    /// Returns the EVD that triggered a CNO, without waiting (dat_cno_trigger).
    dat_cno_trigger = cno_trigger / InvalidHandleCno (cno, evd: *mut DatHandle);
    // END slots.txt
}
