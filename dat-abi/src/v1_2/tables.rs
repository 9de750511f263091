//! The 1.2 tables: one a transport, and one a provider, which differs in how an IA is opened.

use std::ffi::c_char;

use dat_core::transport::Transport;

use super::table::DatProvider;
use super::thunk as own;
use crate::boundary::V1_2;
use crate::export::{Provider, ia_open};
use crate::table::reserve_for;
use crate::thunk as common;

struct Tables<T>(std::marker::PhantomData<T>);

impl<T: Transport> Tables<T> {
    const TABLE: DatProvider = DatProvider {
        device_name: c"DAT in Rust".as_ptr(),
        extension: std::ptr::null_mut(),
        ia_open: Some(ia_open::<T, V1_2>),
        ia_query: Some(own::ia_query::<T>),
        ia_close: Some(common::ia_close::<T, V1_2>),
        set_consumer_context: Some(common::set_consumer_context::<T, V1_2>),
        get_consumer_context: Some(common::get_consumer_context::<T, V1_2>),
        get_handle_type: Some(common::get_handle_type::<T, V1_2>),
        cno_create: Some(own::cno_create::<T>),
        cno_modify_agent: Some(own::cno_modify_agent::<T>),
        cno_query: Some(own::cno_query::<T>),
        cno_free: Some(common::cno_free::<T, V1_2>),
        cno_wait: Some(common::cno_wait::<T, V1_2>),
        cr_query: Some(common::cr_query::<T, V1_2>),
        cr_accept: Some(common::cr_accept::<T, V1_2>),
        cr_reject: Some(own::cr_reject::<T>),
        cr_handoff: Some(common::cr_handoff::<T, V1_2>),
        evd_create: Some(common::evd_create::<T, V1_2>),
        evd_query: Some(common::evd_query::<T, V1_2>),
        evd_modify_cno: Some(common::evd_modify_cno::<T, V1_2>),
        evd_enable: Some(common::evd_enable::<T, V1_2>),
        evd_disable: Some(common::evd_disable::<T, V1_2>),
        evd_wait: Some(common::evd_wait::<T, V1_2>),
        evd_resize: Some(common::evd_resize::<T, V1_2>),
        evd_post_se: Some(common::evd_post_se::<T, V1_2>),
        evd_dequeue: Some(common::evd_dequeue::<T, V1_2>),
        evd_free: Some(common::evd_free::<T, V1_2>),
        ep_create: Some(own::ep_create::<T>),
        ep_query: Some(own::ep_query::<T>),
        ep_modify: Some(own::ep_modify::<T>),
        ep_connect: Some(common::ep_connect::<T, V1_2>),
        ep_dup_connect: Some(common::ep_dup_connect::<T, V1_2>),
        ep_disconnect: Some(common::ep_disconnect::<T, V1_2>),
        ep_post_send: Some(common::ep_post_send::<T, V1_2>),
        ep_post_recv: Some(common::ep_post_recv::<T, V1_2>),
        ep_post_rdma_read: Some(common::ep_post_rdma_read::<T, V1_2>),
        ep_post_rdma_write: Some(common::ep_post_rdma_write::<T, V1_2>),
        ep_get_status: Some(common::ep_get_status::<T, V1_2>),
        ep_free: Some(common::ep_free::<T, V1_2>),
        lmr_create: Some(own::lmr_create::<T>),
        lmr_query: Some(own::lmr_query::<T>),
        lmr_free: Some(common::lmr_free::<T, V1_2>),
        rmr_create: Some(common::rmr_create::<T, V1_2>),
        rmr_query: Some(own::rmr_query::<T>),
        rmr_bind: Some(own::rmr_bind::<T>),
        rmr_free: Some(common::rmr_free::<T, V1_2>),
        psp_create: Some(common::psp_create::<T, V1_2>),
        psp_query: Some(common::psp_query::<T, V1_2>),
        psp_free: Some(common::psp_free::<T, V1_2>),
        rsp_create: Some(common::rsp_create::<T, V1_2>),
        rsp_query: Some(common::rsp_query::<T, V1_2>),
        rsp_free: Some(common::rsp_free::<T, V1_2>),
        pz_create: Some(common::pz_create::<T, V1_2>),
        pz_query: Some(common::pz_query::<T, V1_2>),
        pz_free: Some(common::pz_free::<T, V1_2>),
        psp_create_any: Some(common::psp_create_any::<T, V1_2>),
        ep_reset: Some(common::ep_reset::<T, V1_2>),
        evd_set_unwaitable: Some(common::evd_set_unwaitable::<T, V1_2>),
        evd_clear_unwaitable: Some(common::evd_clear_unwaitable::<T, V1_2>),
        lmr_sync_rdma_read: Some(own::lmr_sync_rdma_read::<T>),
        lmr_sync_rdma_write: Some(own::lmr_sync_rdma_write::<T>),
        ep_create_with_srq: Some(own::ep_create_with_srq::<T>),
        ep_recv_query: Some(common::ep_recv_query::<T, V1_2>),
        ep_set_watermark: Some(common::ep_set_watermark::<T, V1_2>),
        srq_create: Some(common::srq_create::<T, V1_2>),
        srq_free: Some(common::srq_free::<T, V1_2>),
        srq_post_recv: Some(common::srq_post_recv::<T, V1_2>),
        srq_query: Some(common::srq_query::<T, V1_2>),
        srq_resize: Some(common::srq_resize::<T, V1_2>),
        srq_set_lw: Some(common::srq_set_lw::<T, V1_2>),
    };
}

struct ProviderTables<P>(std::marker::PhantomData<P>);

impl<P: Provider> ProviderTables<P> {
    const TABLE: DatProvider = DatProvider {
        ia_open: Some(ia_open::<P, V1_2>),
        ..Tables::<P::Transport>::TABLE
    };
}

/// The table that the objects of an IA on transport `T` carry. `device_name` lives for ever.
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

/// The table that provider `P` registers.
///
/// # Panics
/// If there is no address space for the handles.
#[inline(never)]
#[must_use]
pub fn provider_table<P: Provider>() -> &'static DatProvider {
    reserve_for::<P::Transport>();
    &ProviderTables::<P>::TABLE
}
