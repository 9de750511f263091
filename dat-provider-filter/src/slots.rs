//! The function table of wrapped objects. Each slot calls the inner provider's slot with the same arguments, and tells the filter.
//!
//! `generic` has what is the same for all slots; `TABLE` replaces those that need more.

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use dat_abi::ret::{DAT_SUCCESS, DatReturn};
use dat_abi::types::*;
use dat_abi::v2_0::table::DatProvider;
use dat_abi::v2_0::types::*;
use dat_core::error::{Error, Kind, Subtype};

use crate::filter::Filter;
use crate::instance::{self, Instance, Target};
use crate::{events, ia, posts};

/// Returns the code for a slot that the inner provider left empty.
pub(crate) const fn not_implemented() -> DatReturn {
    Error::of(Kind::NotImplemented).code()
}

/// A call under way. It has no destructor: a cancelled wait leaves the frames of this library by forced unwinding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    slot: Slot,
    handle: DatHandle,
    target: Target,
    begun: Instant,
}

impl Call {
    /// Begins a call of a table's slot with any number as handle; `None` if no provider can be asked about it.
    pub(crate) fn begin(level: usize, slot: Slot, handle: DatHandle) -> Option<Self> {
        let target = catch_unwind(|| instance::find(level, handle))
            .ok()
            .flatten()?;
        Some(Self {
            slot,
            handle,
            target,
            begun: Instant::now(),
        })
    }

    /// Returns the table to call.
    pub(crate) fn inner(&self) -> &'static DatProvider {
        self.target.inner
    }

    /// Returns the instance of the handle, unless it is not wrapped.
    pub(crate) fn instance(&self) -> Option<&'static Instance> {
        self.target.instance
    }

    /// Returns when the call began.
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// Returns the slot.
    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    /// Returns the handle.
    pub(crate) fn handle(&self) -> DatHandle {
        self.handle
    }

    /// Lets the filter see the call before it is made. Returns the code if it is not to be made.
    pub(crate) fn refused(&self) -> Option<DatReturn> {
        // What a filter does is no cancellation point.
        dat_os::cancel::defer(|| self.tell(|filter| filter.before(self)).flatten())
    }

    /// Lets the filter do something. Its panics are logged.
    pub(crate) fn tell<R>(&self, what: impl FnOnce(&dyn Filter) -> R) -> Option<R> {
        let filter = &*self.instance()?.entry.filter;
        catch_unwind(AssertUnwindSafe(|| what(filter)))
            .inspect_err(|_| tracing::error!(call = self.slot.name(), "the filter panicked"))
            .ok()
    }

    /// Ends the call and returns its code.
    pub(crate) fn end(&self, code: DatReturn) -> DatReturn {
        let time = self.begun.elapsed();
        self.tell(|filter| filter.called(self.slot, self.handle, code, time));
        code
    }
}

/// An argument of a slot.
trait Argument {
    /// Sees what a successful call wrote to the argument.
    ///
    /// # Safety
    /// The argument is valid for the slot that succeeded with it.
    unsafe fn written(&self, call: &Call) {
        let _ = call;
    }
}

impl Argument for *mut DatHandle {
    unsafe fn written(&self, call: &Call) {
        if let (Some(instance), false) = (call.instance(), self.is_null()) {
            // SAFETY: not NULL, so a handle that the provider wrote.
            unsafe { instance.adopt(self.read_unaligned()) };
        }
    }
}

macro_rules! nothing_written {
    ($($ty:ty),* $(,)?) => { $(impl Argument for $ty {})* };
}

// A pointer to a `usize` is one to a handle: slots write lengths and addresses as `u64`.
nothing_written! {
    usize, u32, u64, i32, *const c_char, *const c_void, *mut c_void, *mut u32, *mut u64, *mut i32, DatOsWaitProxyAgent,
    DatRegionDescription, *mut DatIaAttr, *mut DatProviderAttr, *mut DatCnoParam, *mut DatCrParam, *mut DatEvdParam,
    *mut DatEvent, *const DatEvent, *const DatEpAttr, *mut DatEpParam, *const DatEpParam, *mut DatLmrTriplet,
    *const DatLmrTriplet, *const DatRmrTriplet, *mut DatLmrParam, *mut DatRmrParam, *mut DatPspParam, *mut DatRspParam,
    *mut DatPzParam, *mut DatSrqAttr, *mut DatSrqParam, *mut DatComm, *mut DatCspParam,
}

/// Defines [`Slot`], and a function for each line: `FUNCTION = SLOT / SUBTYPE FOR A WRONG HANDLE (HANDLE, PARAMETERS)`.
macro_rules! slots {
    ($($(#[$meta:meta])* $export:ident = $($abi:literal)? $slot:ident / $wrong:ident ($first:ident $(, $arg:ident: $ty:ty)*);)*) => {
        /// The slots of the function table, under their names there.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types, reason = "names of C")]
        pub(crate) enum Slot {
            $($(#[$meta])* $slot,)*
        }

        impl Slot {
            /// All slots in the order of their numbers, with the names of their functions.
            pub(crate) const ALL: &[(Self, &'static str)] = &[$((Self::$slot, stringify!($export)),)*];

            /// Returns the name of the function.
            pub(crate) const fn name(self) -> &'static str {
                Self::ALL[self as usize].1
            }
        }

        /// Slots that only pass their arguments on.
        pub(crate) mod generic {
            use super::*;
            $($(#[$meta])* #[allow(missing_abi, reason = "a line without a calling convention has \"C\"")]
            pub(crate) unsafe extern $($abi)? fn $slot<const LEVEL: usize>($first: DatHandle $(, $arg: $ty)*) -> DatReturn {
                let Some(call) = Call::begin(LEVEL, Slot::$slot, $first) else {
                    return Error::handle(Subtype::$wrong).code();
                };
                if let Some(code) = call.refused() {
                    return call.end(code);
                }
                let code = match call.inner().$slot {
                    // SAFETY: the slot's contract is that of this one.
                    Some(slot) => unsafe { slot($first $(, $arg)*) },
                    None => not_implemented(),
                };
                if code == DAT_SUCCESS {
                    // SAFETY: the slot succeeded with these arguments.
                    $(unsafe { Argument::written(&$arg, &call) };)*
                }
                call.end(code)
            })*
        }

        impl<const LEVEL: usize> Level<LEVEL> {
            const GENERIC: DatProvider = DatProvider {
                $($slot: Some(generic::$slot::<LEVEL>),)*
                ..DatProvider::EMPTY
            };
        }
    };
}

slots! {
    /// Closes an IA (dat_ia_close).
    dat_ia_close = ia_close / InvalidHandleIa (ia, flags: u32);
    /// Runs an operation of an extension (dat_extension_op).
    dat_extension_op = handle_extendedop / InvalidHandle1 (handle, op: i32, args: *mut c_void);
    // BEGIN slots.txt: exports 2.0
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
    dat_cr_reject = cr_reject / InvalidHandleCr (cr, private_data_size: DatCount, private_data: *const c_void);
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
    dat_lmr_create = lmr_create / InvalidHandleIa (ia, mem_type: u32, region: DatRegionDescription, length: u64, pz: DatHandle, privileges: u32, va_type: u32, lmr: *mut DatHandle, lmr_context: *mut u32, rmr_context: *mut u32, registered_length: *mut u64, registered_address: *mut u64);
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
    /// Creates a common service point on a socket address (dat_csp_create).
    dat_csp_create = csp_create / InvalidHandleIa (ia, comm: *mut DatComm, address: DatIaAddressPtr, evd: DatHandle, csp: *mut DatHandle);
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
    /// Creates a CNO with a file descriptor that is readable after an event (dat_cno_fd_create).
    dat_cno_fd_create = cno_fd_create / InvalidHandleIa (ia, fd: *mut i32, cno: *mut DatHandle);
    /// Returns the EVD that triggered a CNO, without waiting (dat_cno_trigger).
    dat_cno_trigger = cno_trigger / InvalidHandleCno (cno, evd: *mut DatHandle);
    /// Reports whether two IAs are related for high availability (dat_ia_ha_related).
    dat_ia_ha_related = ia_ha_related / InvalidHandleIa (ia, name: *const c_char, answer: *mut DatBoolean);
    // END slots.txt
}

/// The functions of one level; what is `GENERIC` is replaced in `TABLE` where a slot needs more.
struct Level<const LEVEL: usize>;

impl<const LEVEL: usize> Level<LEVEL> {
    const TABLE: DatProvider = DatProvider {
        ia_open: Some(ia::ia_open),
        ia_query: Some(ia::ia_query::<LEVEL>),
        ia_close: Some(ia::ia_close::<LEVEL>),
        evd_wait: Some(events::evd_wait::<LEVEL>),
        evd_dequeue: Some(events::evd_dequeue::<LEVEL>),
        ep_create: Some(posts::ep_create::<LEVEL>),
        ep_create_with_srq: Some(posts::ep_create_with_srq::<LEVEL>),
        ep_reset: Some(posts::ep_reset::<LEVEL>),
        ep_free: Some(posts::ep_free::<LEVEL>),
        ep_post_send: Some(posts::ep_post_send::<LEVEL>),
        ep_post_recv: Some(posts::ep_post_recv::<LEVEL>),
        ep_post_rdma_read: Some(posts::ep_post_rdma_read::<LEVEL>),
        ep_post_rdma_write: Some(posts::ep_post_rdma_write::<LEVEL>),
        ep_post_send_with_invalidate: Some(posts::ep_post_send_with_invalidate::<LEVEL>),
        ep_post_rdma_read_to_rmr: Some(posts::ep_post_rdma_read_to_rmr::<LEVEL>),
        srq_post_recv: Some(posts::srq_post_recv::<LEVEL>),
        rmr_bind: Some(posts::rmr_bind::<LEVEL>),
        ..Self::GENERIC
    };
}

/// Filters that may wrap each other.
pub(crate) const LEVELS: usize = 4;

/// The slots of wrapped objects by level: 0 wraps a provider, the others wrap a filter. [`Instance`] adds the name.
///
/// All filters of an object are this library's, and the object tells the outermost only. So a function knows by its level which of
/// them it was called for.
pub(crate) const TABLES: [DatProvider; LEVELS] = [
    Level::<0>::TABLE,
    Level::<1>::TABLE,
    Level::<2>::TABLE,
    Level::<3>::TABLE,
];

/// The table that each entry registers. Its level finds the outermost filter of any object.
pub(crate) static REGISTERED: DatProvider = DatProvider {
    handle_extendedop: Some(ia::registered_extendedop),
    ..TABLES[LEVELS - 1]
};
