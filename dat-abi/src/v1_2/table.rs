//! `DAT_PROVIDER` of uDAPL 1.2 (`dat/udat_redirection.h`): the first 70 words of 2.0's in the same order. OFED's
//! `ia_open` has four arguments; Solaris's has a fifth.

use std::ffi::{c_char, c_void};

use super::types::{
    DatCnoParam, DatEpAttr, DatEpParam, DatEvent, DatIaAttr, DatLmrParam, DatLmrTriplet,
    DatProviderAttr, DatRmrParam, DatRmrTriplet,
};
use crate::table::provider_table;
use crate::types::{
    DatBoolean, DatContext, DatCount, DatCrParam, DatEvdParam, DatHandle, DatIaAddressPtr,
    DatOsWaitProxyAgent, DatPspParam, DatPzParam, DatRegionDescription, DatRspParam, DatSrqAttr,
    DatSrqParam, DatTimeout,
};

provider_table! {
    /// The function table of 1.2: 560 bytes. The first word of every handle points to one.
    DatProvider, 560 {
        ia_open(name: *const c_char, async_qlen: DatCount, async_evd: *mut DatHandle, ia: *mut DatHandle);
        ia_query(ia: DatHandle, async_evd: *mut DatHandle, ia_mask: u64, ia_attr: *mut DatIaAttr, provider_mask: u64, provider_attr: *mut DatProviderAttr);
        ia_close(ia: DatHandle, flags: u32);

        set_consumer_context(any: DatHandle, context: DatContext);
        get_consumer_context(any: DatHandle, context: *mut DatContext);
        get_handle_type(any: DatHandle, handle_type: *mut u32);

        cno_create(ia: DatHandle, agent: DatOsWaitProxyAgent, cno: *mut DatHandle);
        cno_modify_agent(cno: DatHandle, agent: DatOsWaitProxyAgent);
        cno_query(cno: DatHandle, mask: u32, param: *mut DatCnoParam);
        cno_free(cno: DatHandle);
        cno_wait "C-unwind" (cno: DatHandle, timeout: DatTimeout, evd: *mut DatHandle);

        cr_query(cr: DatHandle, mask: u32, param: *mut DatCrParam);
        cr_accept(cr: DatHandle, ep: DatHandle, private_data_size: DatCount, private_data: *const c_void);
        cr_reject(cr: DatHandle);
        cr_handoff(cr: DatHandle, conn_qual: u64);

        evd_create(ia: DatHandle, min_qlen: DatCount, cno: DatHandle, flags: u32, evd: *mut DatHandle);
        evd_query(evd: DatHandle, mask: u32, param: *mut DatEvdParam);
        evd_modify_cno(evd: DatHandle, cno: DatHandle);
        evd_enable(evd: DatHandle);
        evd_disable(evd: DatHandle);
        evd_wait "C-unwind" (evd: DatHandle, timeout: DatTimeout, threshold: DatCount, event: *mut DatEvent, nmore: *mut DatCount);
        evd_resize(evd: DatHandle, min_qlen: DatCount);
        evd_post_se(evd: DatHandle, event: *const DatEvent);
        evd_dequeue(evd: DatHandle, event: *mut DatEvent);
        evd_free(evd: DatHandle);

        ep_create(ia: DatHandle, pz: DatHandle, recv_evd: DatHandle, request_evd: DatHandle, connect_evd: DatHandle, attr: *const DatEpAttr, ep: *mut DatHandle);
        ep_query(ep: DatHandle, mask: u64, param: *mut DatEpParam);
        ep_modify(ep: DatHandle, mask: u64, param: *const DatEpParam);
        ep_connect(ep: DatHandle, remote: DatIaAddressPtr, conn_qual: u64, timeout: DatTimeout, private_data_size: DatCount, private_data: *const c_void, qos: u32, flags: u32);
        ep_dup_connect(ep: DatHandle, model: DatHandle, timeout: DatTimeout, private_data_size: DatCount, private_data: *const c_void, qos: u32);
        ep_disconnect(ep: DatHandle, flags: u32);
        ep_post_send(ep: DatHandle, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, flags: u32);
        ep_post_recv(ep: DatHandle, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, flags: u32);
        ep_post_rdma_read(ep: DatHandle, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, remote: *const DatRmrTriplet, flags: u32);
        ep_post_rdma_write(ep: DatHandle, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext, remote: *const DatRmrTriplet, flags: u32);
        ep_get_status(ep: DatHandle, state: *mut u32, recv_idle: *mut DatBoolean, request_idle: *mut DatBoolean);
        ep_free(ep: DatHandle);

        lmr_create(ia: DatHandle, mem_type: u32, region: DatRegionDescription, length: u64, pz: DatHandle, privileges: u32, lmr: *mut DatHandle, lmr_context: *mut u32, rmr_context: *mut u32, registered_length: *mut u64, registered_address: *mut u64);
        lmr_query(lmr: DatHandle, mask: u32, param: *mut DatLmrParam);
        lmr_free(lmr: DatHandle);

        rmr_create(pz: DatHandle, rmr: *mut DatHandle);
        rmr_query(rmr: DatHandle, mask: u32, param: *mut DatRmrParam);
        rmr_bind(rmr: DatHandle, triplet: *const DatLmrTriplet, privileges: u32, ep: DatHandle, cookie: DatContext, flags: u32, rmr_context: *mut u32);
        rmr_free(rmr: DatHandle);

        psp_create(ia: DatHandle, conn_qual: u64, evd: DatHandle, flags: u32, psp: *mut DatHandle);
        psp_query(psp: DatHandle, mask: u32, param: *mut DatPspParam);
        psp_free(psp: DatHandle);

        rsp_create(ia: DatHandle, conn_qual: u64, ep: DatHandle, evd: DatHandle, rsp: *mut DatHandle);
        rsp_query(rsp: DatHandle, mask: u32, param: *mut DatRspParam);
        rsp_free(rsp: DatHandle);

        pz_create(ia: DatHandle, pz: *mut DatHandle);
        pz_query(pz: DatHandle, mask: u32, param: *mut DatPzParam);
        pz_free(pz: DatHandle);

        psp_create_any(ia: DatHandle, conn_qual: *mut u64, evd: DatHandle, flags: u32, psp: *mut DatHandle);
        ep_reset(ep: DatHandle);

        evd_set_unwaitable(evd: DatHandle);
        evd_clear_unwaitable(evd: DatHandle);

        lmr_sync_rdma_read(ia: DatHandle, segments: *const DatLmrTriplet, count: u64);
        lmr_sync_rdma_write(ia: DatHandle, segments: *const DatLmrTriplet, count: u64);

        ep_create_with_srq(ia: DatHandle, pz: DatHandle, recv_evd: DatHandle, request_evd: DatHandle, connect_evd: DatHandle, srq: DatHandle, attr: *const DatEpAttr, ep: *mut DatHandle);
        ep_recv_query(ep: DatHandle, buffers_allocated: *mut DatCount, buffers_spanned: *mut DatCount);
        ep_set_watermark(ep: DatHandle, soft_high: DatCount, hard_high: DatCount);

        srq_create(ia: DatHandle, pz: DatHandle, attr: *mut DatSrqAttr, srq: *mut DatHandle);
        srq_free(srq: DatHandle);
        srq_post_recv(srq: DatHandle, segments: DatCount, iov: *mut DatLmrTriplet, cookie: DatContext);
        srq_query(srq: DatHandle, mask: u32, param: *mut DatSrqParam);
        srq_resize(srq: DatHandle, max_recv_dtos: DatCount);
        srq_set_lw(srq: DatHandle, low_watermark: DatCount);
    }
}
