//! The constant 1.2 tables: one for each transport, and one for each provider, which opens IAs by [`Provider::open`].

use std::ffi::c_char;

use dat_core::transport::Transport;

use super::table::DatProvider;
use super::thunk as own;
use crate::boundary::V1_2;
use crate::provider::Provider;
use crate::table::reserve_for;
use crate::thunk as shared;

struct Tables<T>(std::marker::PhantomData<T>);

impl<T: Transport> Tables<T> {
    const TABLE: DatProvider = DatProvider {
        device_name: c"DAT in Rust".as_ptr(),
        extension: std::ptr::null_mut(),
        // BEGIN slots.txt: thunks 1.2
        ia_open: Some(shared::ia_open::<T, V1_2>),
        ia_query: Some(own::ia_query::<T>),
        ia_close: Some(shared::ia_close::<T, V1_2>),
        set_consumer_context: Some(shared::set_consumer_context::<T, V1_2>),
        get_consumer_context: Some(shared::get_consumer_context::<T, V1_2>),
        get_handle_type: Some(shared::get_handle_type::<T, V1_2>),
        cno_create: Some(shared::cno_create::<T, V1_2>),
        cno_modify_agent: Some(shared::cno_modify_agent::<T, V1_2>),
        cno_query: Some(own::cno_query::<T>),
        cno_free: Some(shared::cno_free::<T, V1_2>),
        cno_wait: Some(shared::cno_wait::<T, V1_2>),
        cr_query: Some(shared::cr_query::<T, V1_2>),
        cr_accept: Some(shared::cr_accept::<T, V1_2>),
        cr_reject: Some(own::cr_reject::<T>),
        cr_handoff: Some(shared::cr_handoff::<T, V1_2>),
        evd_create: Some(shared::evd_create::<T, V1_2>),
        evd_query: Some(shared::evd_query::<T, V1_2>),
        evd_modify_cno: Some(shared::evd_modify_cno::<T, V1_2>),
        evd_enable: Some(shared::evd_enable::<T, V1_2>),
        evd_disable: Some(shared::evd_disable::<T, V1_2>),
        evd_wait: Some(shared::evd_wait::<T, V1_2>),
        evd_resize: Some(shared::evd_resize::<T, V1_2>),
        evd_post_se: Some(shared::evd_post_se::<T, V1_2>),
        evd_dequeue: Some(shared::evd_dequeue::<T, V1_2>),
        evd_free: Some(shared::evd_free::<T, V1_2>),
        ep_create: Some(shared::ep_create::<T, V1_2>),
        ep_query: Some(own::ep_query::<T>),
        ep_modify: Some(own::ep_modify::<T>),
        ep_connect: Some(shared::ep_connect::<T, V1_2>),
        ep_dup_connect: Some(shared::ep_dup_connect::<T, V1_2>),
        ep_disconnect: Some(shared::ep_disconnect::<T, V1_2>),
        ep_post_send: Some(shared::ep_post_send::<T, V1_2>),
        ep_post_recv: Some(shared::ep_post_recv::<T, V1_2>),
        ep_post_rdma_read: Some(shared::ep_post_rdma_read::<T, V1_2>),
        ep_post_rdma_write: Some(shared::ep_post_rdma_write::<T, V1_2>),
        ep_get_status: Some(shared::ep_get_status::<T, V1_2>),
        ep_free: Some(shared::ep_free::<T, V1_2>),
        lmr_create: Some(own::lmr_create::<T>),
        lmr_query: Some(own::lmr_query::<T>),
        lmr_free: Some(shared::lmr_free::<T, V1_2>),
        rmr_create: Some(shared::rmr_create::<T, V1_2>),
        rmr_query: Some(own::rmr_query::<T>),
        rmr_bind: Some(own::rmr_bind::<T>),
        rmr_free: Some(shared::rmr_free::<T, V1_2>),
        psp_create: Some(shared::psp_create::<T, V1_2>),
        psp_query: Some(shared::psp_query::<T, V1_2>),
        psp_free: Some(shared::psp_free::<T, V1_2>),
        rsp_create: Some(shared::rsp_create::<T, V1_2>),
        rsp_query: Some(shared::rsp_query::<T, V1_2>),
        rsp_free: Some(shared::rsp_free::<T, V1_2>),
        pz_create: Some(shared::pz_create::<T, V1_2>),
        pz_query: Some(shared::pz_query::<T, V1_2>),
        pz_free: Some(shared::pz_free::<T, V1_2>),
        psp_create_any: Some(shared::psp_create_any::<T, V1_2>),
        ep_reset: Some(shared::ep_reset::<T, V1_2>),
        evd_set_unwaitable: Some(shared::evd_set_unwaitable::<T, V1_2>),
        evd_clear_unwaitable: Some(shared::evd_clear_unwaitable::<T, V1_2>),
        lmr_sync_rdma_read: Some(shared::lmr_sync_rdma_read::<T, V1_2>),
        lmr_sync_rdma_write: Some(shared::lmr_sync_rdma_write::<T, V1_2>),
        ep_create_with_srq: Some(shared::ep_create_with_srq::<T, V1_2>),
        ep_recv_query: Some(shared::ep_recv_query::<T, V1_2>),
        ep_set_watermark: Some(shared::ep_set_watermark::<T, V1_2>),
        srq_create: Some(shared::srq_create::<T, V1_2>),
        srq_free: Some(shared::srq_free::<T, V1_2>),
        srq_post_recv: Some(shared::srq_post_recv::<T, V1_2>),
        srq_query: Some(shared::srq_query::<T, V1_2>),
        srq_resize: Some(shared::srq_resize::<T, V1_2>),
        srq_set_lw: Some(shared::srq_set_lw::<T, V1_2>),
        // END slots.txt
    };
}

struct ProviderTables<P>(std::marker::PhantomData<P>);

impl<P: Provider> ProviderTables<P> {
    const TABLE: DatProvider = DatProvider {
        ia_open: Some(shared::ia_open::<P, V1_2>),
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
