//! `DAT_PROVIDER` of uDAPL 2.0 (`dat2/udat_redirection.h`), with the extension slot that Debian's build has.

use std::ffi::{c_char, c_void};

use super::types::*;
use crate::table::provider_table;
use crate::types::*;

provider_table! {
    /// The function table of 2.0: 648 bytes. The first word of every handle points to one.
    DatProvider {
        // BEGIN slots.txt: table 2.0
        /// Opens an IA by name and makes its asynchronous EVD.
        ia_open(name: *const c_char, async_evd_qlen: DatCount, async_evd: *mut DatHandle, ia: *mut DatHandle);
        /// Queries the attributes of an IA and of its provider.
        ia_query(ia: DatHandle, async_evd: *mut DatHandle, ia_mask: u64, ia_attr: *mut DatIaAttr, provider_mask: u64, provider_attr: *mut DatProviderAttr);
        /// Closes an IA.
        ia_close(ia: DatHandle, flags: u32);
        /// Sets the context of an object.
        set_consumer_context(handle: DatHandle, context: DatContext);
        /// Returns the context of an object.
        get_consumer_context(handle: DatHandle, context: *mut DatContext);
        /// Returns the kind of an object.
        get_handle_type(handle: DatHandle, handle_type: *mut u32);
        /// Creates a CNO, with an agent or without.
        cno_create(ia: DatHandle, agent: DatOsWaitProxyAgent, cno: *mut DatHandle);
        /// Replaces the agent of a CNO.
        cno_modify_agent(cno: DatHandle, agent: DatOsWaitProxyAgent);
        /// Queries the parameters of a CNO.
        cno_query(cno: DatHandle, mask: u32, param: *mut DatCnoParam);
        /// Destroys a CNO.
        cno_free(cno: DatHandle);
        /// Waits for an EVD of a CNO that has an event.
        cno_wait "C-unwind" (cno: DatHandle, timeout: DatTimeout, evd: *mut DatHandle);
        /// Queries the parameters of a connection request.
        cr_query(cr: DatHandle, mask: u32, param: *mut DatCrParam);
        /// Accepts a connection request.
        cr_accept(cr: DatHandle, ep: DatHandle, private_data_size: DatCount, private_data: *const c_void);
        /// Rejects a connection request.
        cr_reject(cr: DatHandle, private_data_size: DatCount, private_data: *const c_void);
        /// Hands a connection request to another service point of the IA.
        cr_handoff(cr: DatHandle, handoff: u64);
        /// Creates an EVD.
        evd_create(ia: DatHandle, min_qlen: DatCount, cno: DatHandle, flags: u32, evd: *mut DatHandle);
        /// Queries the parameters of an EVD.
        evd_query(evd: DatHandle, mask: u32, param: *mut DatEvdParam);
        /// Replaces the CNO of an EVD.
        evd_modify_cno(evd: DatHandle, cno: DatHandle);
        /// Lets an EVD notify its CNO.
        evd_enable(evd: DatHandle);
        /// Stops an EVD from notifying its CNO.
        evd_disable(evd: DatHandle);
        /// Waits until an EVD has as many events as the threshold says, and takes one.
        evd_wait "C-unwind" (evd: DatHandle, timeout: DatTimeout, threshold: DatCount, event: *mut DatEvent, nmore: *mut DatCount);
        /// Changes the number of events that an EVD holds.
        evd_resize(evd: DatHandle, min_qlen: DatCount);
        /// Posts a software event to an EVD.
        evd_post_se(evd: DatHandle, event: *const DatEvent);
        /// Takes an event from an EVD without waiting.
        evd_dequeue(evd: DatHandle, event: *mut DatEvent);
        /// Destroys an EVD.
        evd_free(evd: DatHandle);
        /// Creates an endpoint.
        ep_create(ia: DatHandle, pz: DatHandle, recv_evd: DatHandle, request_evd: DatHandle, connect_evd: DatHandle, attr: *const DatEpAttr, ep: *mut DatHandle);
        /// Queries the parameters of an endpoint.
        ep_query(ep: DatHandle, mask: u64, param: *mut DatEpParam);
        /// Changes parameters of an endpoint.
        ep_modify(ep: DatHandle, mask: u64, param: *const DatEpParam);
        /// Connects an endpoint to an address and a connection qualifier.
        ep_connect(ep: DatHandle, remote: DatIaAddressPtr, conn_qual: u64, timeout: DatTimeout, private_data_size: DatCount, private_data: *const c_void, qos: u32, flags: u32);
        /// Connects an endpoint to the peer of another endpoint.
        ep_dup_connect(ep: DatHandle, model: DatHandle, timeout: DatTimeout, private_data_size: DatCount, private_data: *const c_void, qos: u32);
        /// Disconnects an endpoint.
        ep_disconnect(ep: DatHandle, flags: u32);
        /// Posts a send.
        ep_post_send(ep: DatHandle, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, flags: u32);
        /// Posts a receive.
        ep_post_recv(ep: DatHandle, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, flags: u32);
        /// Posts an RDMA Read.
        ep_post_rdma_read(ep: DatHandle, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, remote: *const DatRmrTriplet, flags: u32);
        /// Posts an RDMA Write.
        ep_post_rdma_write(ep: DatHandle, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, remote: *const DatRmrTriplet, flags: u32);
        /// Returns the state of an endpoint and whether its queues are idle.
        ep_get_status(ep: DatHandle, state: *mut u32, recv_idle: *mut DatBoolean, request_idle: *mut DatBoolean);
        /// Destroys an endpoint.
        ep_free(ep: DatHandle);
        /// Registers memory.
        lmr_create(ia: DatHandle, mem_type: u32, region: DatRegionDescription, length: u64, pz: DatHandle, privileges: u32, va_type: u32, lmr: *mut DatHandle, lmr_context: *mut u32, rmr_context: *mut u32, registered_length: *mut u64, registered_address: *mut u64);
        /// Queries the parameters of an LMR.
        lmr_query(lmr: DatHandle, mask: u32, param: *mut DatLmrParam);
        /// Destroys an LMR.
        lmr_free(lmr: DatHandle);
        /// Creates an RMR (a memory window).
        rmr_create(pz: DatHandle, rmr: *mut DatHandle);
        /// Queries the parameters of an RMR.
        rmr_query(rmr: DatHandle, mask: u32, param: *mut DatRmrParam);
        /// Binds an RMR to a range of an LMR, or unbinds it.
        rmr_bind(rmr: DatHandle, lmr: DatHandle, triplet: *const DatLmrTriplet, privileges: u32, va_type: u32, ep: DatHandle, cookie: DatContext, flags: u32, rmr_context: *mut u32);
        /// Destroys an RMR.
        rmr_free(rmr: DatHandle);
        /// Creates a public service point on a connection qualifier.
        psp_create(ia: DatHandle, conn_qual: u64, evd: DatHandle, flags: u32, psp: *mut DatHandle);
        /// Queries the parameters of a public service point.
        psp_query(psp: DatHandle, mask: u32, param: *mut DatPspParam);
        /// Destroys a public service point.
        psp_free(psp: DatHandle);
        /// Creates a reserved service point: one endpoint, one request.
        rsp_create(ia: DatHandle, conn_qual: u64, ep: DatHandle, evd: DatHandle, rsp: *mut DatHandle);
        /// Queries the parameters of a reserved service point.
        rsp_query(rsp: DatHandle, mask: u32, param: *mut DatRspParam);
        /// Destroys a reserved service point.
        rsp_free(rsp: DatHandle);
        /// Creates a protection zone.
        pz_create(ia: DatHandle, pz: *mut DatHandle);
        /// Queries the parameters of a protection zone.
        pz_query(pz: DatHandle, mask: u32, param: *mut DatPzParam);
        /// Destroys a protection zone.
        pz_free(pz: DatHandle);
        /// Creates a public service point on a free connection qualifier.
        psp_create_any(ia: DatHandle, conn_qual: *mut u64, evd: DatHandle, flags: u32, psp: *mut DatHandle);
        /// Makes a disconnected endpoint usable again.
        ep_reset(ep: DatHandle);
        /// Refuses waits on an EVD from now on.
        evd_set_unwaitable(evd: DatHandle);
        /// Allows waits on an EVD again.
        evd_clear_unwaitable(evd: DatHandle);
        /// Makes local writes visible to incoming RDMA Reads.
        lmr_sync_rdma_read(ia: DatHandle, segments: *const DatLmrTriplet, count: u64);
        /// Makes incoming RDMA Writes visible locally.
        lmr_sync_rdma_write(ia: DatHandle, segments: *const DatLmrTriplet, count: u64);
        /// Creates an endpoint that takes its receives from an SRQ.
        ep_create_with_srq(ia: DatHandle, pz: DatHandle, recv_evd: DatHandle, request_evd: DatHandle, connect_evd: DatHandle, srq: DatHandle, attr: *const DatEpAttr, ep: *mut DatHandle);
        /// Returns how many receives an endpoint has posted and has in use.
        ep_recv_query(ep: DatHandle, buffers_allocated: *mut DatCount, buffers_spanned: *mut DatCount);
        /// Sets the watermarks of receives that an endpoint takes from its SRQ.
        ep_set_watermark(ep: DatHandle, soft_high: DatCount, hard_high: DatCount);
        /// Creates a shared receive queue.
        srq_create(ia: DatHandle, pz: DatHandle, attr: *mut DatSrqAttr, srq: *mut DatHandle);
        /// Destroys a shared receive queue.
        srq_free(srq: DatHandle);
        /// Posts a receive to a shared receive queue.
        srq_post_recv(srq: DatHandle, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext);
        /// Queries the parameters of a shared receive queue.
        srq_query(srq: DatHandle, mask: u32, param: *mut DatSrqParam);
        /// Changes the number of receives that a shared receive queue holds.
        srq_resize(srq: DatHandle, max_recv_dtos: DatCount);
        /// Sets the low watermark of a shared receive queue.
        srq_set_lw(srq: DatHandle, low_watermark: DatCount);
        /// Creates a common service point on a socket address.
        csp_create(ia: DatHandle, comm: *mut DatComm, address: DatIaAddressPtr, evd: DatHandle, csp: *mut DatHandle);
        /// Queries the parameters of a common service point.
        csp_query(csp: DatHandle, mask: u32, param: *mut DatCspParam);
        /// Destroys a common service point.
        csp_free(csp: DatHandle);
        /// Connects an endpoint to a socket address.
        ep_common_connect(ep: DatHandle, remote: DatIaAddressPtr, timeout: DatTimeout, private_data_size: DatCount, private_data: *const c_void);
        /// Creates an RMR for one endpoint, whose peer may invalidate it.
        rmr_create_for_ep(pz: DatHandle, rmr: *mut DatHandle);
        /// Posts a send that invalidates an RMR of the peer.
        ep_post_send_with_invalidate(ep: DatHandle, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, flags: u32, invalidate: DatBoolean, rmr_context: u32);
        /// Posts an RDMA Read into a bound RMR.
        ep_post_rdma_read_to_rmr(ep: DatHandle, local: *const DatRmrTriplet, cookie: DatContext, remote: *const DatRmrTriplet, flags: u32);
        /// Creates a CNO with a file descriptor that is readable after an event.
        cno_fd_create(ia: DatHandle, fd: *mut i32, cno: *mut DatHandle);
        /// Returns the EVD that triggered a CNO, without waiting.
        cno_trigger(cno: DatHandle, evd: *mut DatHandle);
        /// Reports whether two IAs are related for high availability.
        ia_ha_related(ia: DatHandle, name: *const c_char, answer: *mut DatBoolean);
        /// Runs an operation of an extension on any object.
        handle_extendedop(handle: DatHandle, op: i32, args: *mut c_void);
        // END slots.txt
    }
}
