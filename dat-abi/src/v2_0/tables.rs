//! The constant 2.0 tables: one for each transport, and one for each provider, which opens IAs by [`Provider::open`].

use std::ffi::c_char;

use dat_core::transport::Transport;

use super::table::DatProvider;
use super::thunk as own;
use crate::boundary::V2_0;
use crate::provider::Provider;
use crate::table::reserve_for;
use crate::thunk as shared;

struct Tables<T>(std::marker::PhantomData<T>);

impl<T: Transport> Tables<T> {
    const TABLE: DatProvider = DatProvider {
        device_name: c"DAT in Rust".as_ptr(),
        extension: std::ptr::null_mut(),
        // BEGIN slots.txt: thunks 2.0
        ia_open: Some(shared::ia_open::<T, V2_0>),
        ia_query: Some(own::ia_query::<T>),
        ia_close: Some(shared::ia_close::<T, V2_0>),
        set_consumer_context: Some(shared::set_consumer_context::<T, V2_0>),
        get_consumer_context: Some(shared::get_consumer_context::<T, V2_0>),
        get_handle_type: Some(shared::get_handle_type::<T, V2_0>),
        cno_create: Some(shared::cno_create::<T, V2_0>),
        cno_modify_agent: Some(shared::cno_modify_agent::<T, V2_0>),
        cno_query: Some(own::cno_query::<T>),
        cno_free: Some(shared::cno_free::<T, V2_0>),
        cno_wait: Some(shared::cno_wait::<T, V2_0>),
        cr_query: Some(shared::cr_query::<T, V2_0>),
        cr_accept: Some(shared::cr_accept::<T, V2_0>),
        cr_reject: Some(own::cr_reject::<T>),
        cr_handoff: Some(shared::cr_handoff::<T, V2_0>),
        evd_create: Some(shared::evd_create::<T, V2_0>),
        evd_query: Some(shared::evd_query::<T, V2_0>),
        evd_modify_cno: Some(shared::evd_modify_cno::<T, V2_0>),
        evd_enable: Some(shared::evd_enable::<T, V2_0>),
        evd_disable: Some(shared::evd_disable::<T, V2_0>),
        evd_wait: Some(shared::evd_wait::<T, V2_0>),
        evd_resize: Some(shared::evd_resize::<T, V2_0>),
        evd_post_se: Some(shared::evd_post_se::<T, V2_0>),
        evd_dequeue: Some(shared::evd_dequeue::<T, V2_0>),
        evd_free: Some(shared::evd_free::<T, V2_0>),
        ep_create: Some(shared::ep_create::<T, V2_0>),
        ep_query: Some(own::ep_query::<T>),
        ep_modify: Some(own::ep_modify::<T>),
        ep_connect: Some(shared::ep_connect::<T, V2_0>),
        ep_dup_connect: Some(shared::ep_dup_connect::<T, V2_0>),
        ep_disconnect: Some(shared::ep_disconnect::<T, V2_0>),
        ep_post_send: Some(shared::ep_post_send::<T, V2_0>),
        ep_post_recv: Some(shared::ep_post_recv::<T, V2_0>),
        ep_post_rdma_read: Some(shared::ep_post_rdma_read::<T, V2_0>),
        ep_post_rdma_write: Some(shared::ep_post_rdma_write::<T, V2_0>),
        ep_get_status: Some(shared::ep_get_status::<T, V2_0>),
        ep_free: Some(shared::ep_free::<T, V2_0>),
        lmr_create: Some(own::lmr_create::<T>),
        lmr_query: Some(own::lmr_query::<T>),
        lmr_free: Some(shared::lmr_free::<T, V2_0>),
        rmr_create: Some(shared::rmr_create::<T, V2_0>),
        rmr_query: Some(own::rmr_query::<T>),
        rmr_bind: Some(own::rmr_bind::<T>),
        rmr_free: Some(shared::rmr_free::<T, V2_0>),
        psp_create: Some(shared::psp_create::<T, V2_0>),
        psp_query: Some(shared::psp_query::<T, V2_0>),
        psp_free: Some(shared::psp_free::<T, V2_0>),
        rsp_create: Some(shared::rsp_create::<T, V2_0>),
        rsp_query: Some(shared::rsp_query::<T, V2_0>),
        rsp_free: Some(shared::rsp_free::<T, V2_0>),
        pz_create: Some(shared::pz_create::<T, V2_0>),
        pz_query: Some(shared::pz_query::<T, V2_0>),
        pz_free: Some(shared::pz_free::<T, V2_0>),
        psp_create_any: Some(shared::psp_create_any::<T, V2_0>),
        ep_reset: Some(shared::ep_reset::<T, V2_0>),
        evd_set_unwaitable: Some(shared::evd_set_unwaitable::<T, V2_0>),
        evd_clear_unwaitable: Some(shared::evd_clear_unwaitable::<T, V2_0>),
        lmr_sync_rdma_read: Some(shared::lmr_sync_rdma_read::<T, V2_0>),
        lmr_sync_rdma_write: Some(shared::lmr_sync_rdma_write::<T, V2_0>),
        ep_create_with_srq: Some(shared::ep_create_with_srq::<T, V2_0>),
        ep_recv_query: Some(shared::ep_recv_query::<T, V2_0>),
        ep_set_watermark: Some(shared::ep_set_watermark::<T, V2_0>),
        srq_create: Some(shared::srq_create::<T, V2_0>),
        srq_free: Some(shared::srq_free::<T, V2_0>),
        srq_post_recv: Some(shared::srq_post_recv::<T, V2_0>),
        srq_query: Some(shared::srq_query::<T, V2_0>),
        srq_resize: Some(shared::srq_resize::<T, V2_0>),
        srq_set_lw: Some(shared::srq_set_lw::<T, V2_0>),
        csp_create: Some(own::csp_create::<T>),
        csp_query: Some(own::csp_query::<T>),
        csp_free: Some(own::csp_free::<T>),
        ep_common_connect: Some(own::ep_common_connect::<T>),
        rmr_create_for_ep: Some(own::rmr_create_for_ep::<T>),
        ep_post_send_with_invalidate: Some(own::ep_post_send_with_invalidate::<T>),
        ep_post_rdma_read_to_rmr: Some(own::ep_post_rdma_read_to_rmr::<T>),
        cno_fd_create: Some(own::cno_fd_create::<T>),
        cno_trigger: Some(own::cno_trigger::<T>),
        ia_ha_related: Some(own::ia_ha_related::<T>),
        handle_extendedop: Some(own::handle_extendedop::<T>),
        // END slots.txt
    };
}

struct ProviderTables<P>(std::marker::PhantomData<P>);

impl<P: Provider> ProviderTables<P> {
    const TABLE: DatProvider = DatProvider {
        ia_open: Some(shared::ia_open::<P, V2_0>),
        handle_extendedop: Some(own::provider_extendedop::<P>),
        ..Tables::<P::Transport>::TABLE
    };
}

/// Returns the table that objects of an IA on transport `T` carry. `device_name` must never be freed.
///
/// # Panics
/// If there is no address space for the handles.
#[must_use]
pub fn table<T: Transport>(device_name: *const c_char) -> DatProvider {
    reserve_for::<T>();
    DatProvider {
        device_name,
        ..Tables::<T>::TABLE
    }
}

/// Returns the table that provider `P` registers.
///
/// # Panics
/// If there is no address space for the handles.
#[inline(never)]
#[must_use]
pub fn provider_table<P: Provider>() -> &'static DatProvider {
    reserve_for::<P::Transport>();
    &ProviderTables::<P>::TABLE
}
