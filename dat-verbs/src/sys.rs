//! The only user of `rdma-sys`: the parts of libibverbs and librdmacm that this crate calls, and three replacements
//! for types of the binding that do not serve.
//!
//! * [`Wc`]: the binding's `ibv_wc` is neither `Copy` nor `Default`.
//! * [`AsyncEvent`]: the binding's event number is a Rust enum, so a number that a newer kernel adds would be
//!   undefined behaviour; here it is an integer.
//! * [`sges`]: a 2.0 `DAT_LMR_TRIPLET` has the layout of an `ibv_sge`.

use dat_core::iov::LmrTriplet;

pub(crate) use rdma_sys::{
    bind_mw_t, ibv_ack_async_event, ibv_ack_cq_events, ibv_ah, ibv_ah_attr, ibv_alloc_mw,
    ibv_alloc_pd, ibv_async_event, ibv_atomic_cap, ibv_bind_mw, ibv_close_device, ibv_comp_channel,
    ibv_context, ibv_cq, ibv_create_ah, ibv_create_comp_channel, ibv_create_cq, ibv_create_qp,
    ibv_create_srq, ibv_dealloc_mw, ibv_dealloc_pd, ibv_dereg_mr, ibv_destroy_ah,
    ibv_destroy_comp_channel, ibv_destroy_cq, ibv_destroy_qp, ibv_destroy_srq, ibv_device,
    ibv_device_attr, ibv_fork_init, ibv_free_device_list, ibv_get_async_event, ibv_get_cq_event,
    ibv_get_device_guid, ibv_get_device_list, ibv_get_device_name, ibv_gid, ibv_modify_qp,
    ibv_modify_srq, ibv_mr, ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_mw_type, ibv_open_device,
    ibv_pd, ibv_port_attr, ibv_port_state, ibv_post_srq_recv, ibv_qp, ibv_qp_attr,
    ibv_qp_init_attr, ibv_qp_state, ibv_qp_type, ibv_query_device, ibv_query_gid, ibv_query_port,
    ibv_recv_wr, ibv_reg_mr, ibv_reg_mr_iova, ibv_req_notify_cq, ibv_resize_cq, ibv_send_wr,
    ibv_sge, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_wc, ibv_wc_opcode, ibv_wc_status,
    ibv_wr_opcode, rdma_accept, rdma_ack_cm_event, rdma_bind_addr, rdma_cm_event,
    rdma_cm_event_type, rdma_cm_id, rdma_conn_param, rdma_connect, rdma_create_event_channel,
    rdma_create_id, rdma_destroy_event_channel, rdma_destroy_id, rdma_disconnect, rdma_establish,
    rdma_event_channel, rdma_get_cm_event, rdma_get_local_addr, rdma_get_peer_addr,
    rdma_get_src_port, rdma_init_qp_attr, rdma_listen, rdma_port_space, rdma_reject,
    rdma_reject_ece, rdma_resolve_addr, rdma_resolve_route, rdma_set_option,
};

/// `ibv_access_flags` as integers, which the calls take.
pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: u32 = 1;
    pub(crate) const REMOTE_WRITE: u32 = 1 << 1;
    pub(crate) const REMOTE_READ: u32 = 1 << 2;
    pub(crate) const REMOTE_ATOMIC: u32 = 1 << 3;
    pub(crate) const MW_BIND: u32 = 1 << 4;
}

/// `ibv_send_flags`.
pub(crate) mod send {
    pub(crate) const FENCE: u32 = 1;
    pub(crate) const SIGNALED: u32 = 1 << 1;
    pub(crate) const SOLICITED: u32 = 1 << 2;
    pub(crate) const INLINE: u32 = 1 << 3;
}

/// `ibv_qp_attr_mask`.
pub(crate) mod qp_mask {
    pub(crate) const STATE: i32 = 1;
    pub(crate) const ACCESS_FLAGS: i32 = 1 << 3;
    pub(crate) const PKEY_INDEX: i32 = 1 << 4;
    pub(crate) const PORT: i32 = 1 << 5;
    pub(crate) const QKEY: i32 = 1 << 6;
    pub(crate) const AV: i32 = 1 << 7;
    pub(crate) const PATH_MTU: i32 = 1 << 8;
    pub(crate) const TIMEOUT: i32 = 1 << 9;
    pub(crate) const RETRY_CNT: i32 = 1 << 10;
    pub(crate) const RNR_RETRY: i32 = 1 << 11;
    pub(crate) const RQ_PSN: i32 = 1 << 12;
    pub(crate) const MAX_RD_ATOMIC: i32 = 1 << 13;
    pub(crate) const MIN_RNR_TIMER: i32 = 1 << 15;
    pub(crate) const SQ_PSN: i32 = 1 << 16;
    pub(crate) const MAX_DEST_RD_ATOMIC: i32 = 1 << 17;
    pub(crate) const DEST_QPN: i32 = 1 << 20;
    /// SMAC, VLAN and alternate path attributes, which kernels set for RoCE only (librdmacm masks them off elsewhere).
    pub(crate) const ROCE_ONLY: i32 = 0x00e0_0000;
}

/// `ibv_wc_flags`.
pub(crate) mod wc_flag {
    pub(crate) const WITH_IMM: u32 = 1 << 1;
    pub(crate) const WITH_INV: u32 = 1 << 3;
    /// The kernel's number for the same flag (`IB_WC_WITH_INVALIDATE`), which rdma_rxe passes to user space too; with
    /// other devices the bit means that a checksum is correct.
    pub(crate) const KERNEL_WITH_INV: u32 = 1 << 2;
}

/// `ibv_device_cap_flags`.
pub(crate) mod device_cap {
    pub(crate) const MEM_WINDOW: u32 = 1 << 17;
}

/// `ibv_srq_attr_mask`.
pub(crate) mod srq_mask {
    pub(crate) const MAX_WR: i32 = 1;
    pub(crate) const LIMIT: i32 = 1 << 1;
}

/// `ibv_event_type` as integers.
pub(crate) mod event {
    pub(crate) const CQ_ERR: i32 = 0;
    pub(crate) const QP_FATAL: i32 = 1;
    pub(crate) const QP_REQ_ERR: i32 = 2;
    pub(crate) const QP_ACCESS_ERR: i32 = 3;
    pub(crate) const DEVICE_FATAL: i32 = 8;
    pub(crate) const SRQ_ERR: i32 = 14;
    pub(crate) const SRQ_LIMIT_REACHED: i32 = 15;
    pub(crate) const QP_LAST_WQE_REACHED: i32 = 16;
}

/// `rdma_set_option` level and names.
pub(crate) mod option {
    pub(crate) const LEVEL_ID: i32 = 0;
    pub(crate) const ID_TOS: i32 = 0;
    pub(crate) const ID_REUSEADDR: i32 = 1;
}

/// Q_Key of all datagram queue pairs that use rdma_cm (`RDMA_UDP_QKEY`).
pub(crate) const DATAGRAM_QKEY: u32 = 0x0123_4567;

/// `IBV_LINK_LAYER_INFINIBAND`.
pub(crate) const LINK_LAYER_INFINIBAND: u8 = 1;

/// A completion with the layout of `ibv_wc` (checked below).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Wc {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) imm_or_rkey: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: u32,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

impl Wc {
    /// Returns true if the work request succeeded.
    #[inline(always)]
    pub(crate) fn succeeded(&self) -> bool {
        self.status == ibv_wc_status::IBV_WC_SUCCESS
    }

    /// Returns true for a successful receive without immediate data or invalidation.
    #[inline(always)]
    pub(crate) fn is_data_only_receive(&self) -> bool {
        self.opcode == ibv_wc_opcode::IBV_WC_RECV
            && self.wc_flags & (wc_flag::WITH_IMM | wc_flag::WITH_INV | wc_flag::KERNEL_WITH_INV)
                == 0
    }

    /// Converts a completion of rdma_rxe to the flags of other devices.
    pub(crate) fn of_rxe(mut self) -> Self {
        if self.wc_flags & wc_flag::KERNEL_WITH_INV != 0 {
            self.wc_flags |= wc_flag::WITH_INV;
        }
        self
    }
}

/// `ibv_async_event` with the event number as an integer.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AsyncEvent {
    /// Pointer to the CQ, QP or SRQ, or a port number.
    pub(crate) element: *mut libc::c_void,
    pub(crate) number: i32,
}

const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<Wc>() == size_of::<ibv_wc>());
    assert!(offset_of!(Wc, status) == offset_of!(ibv_wc, status));
    assert!(offset_of!(Wc, opcode) == offset_of!(ibv_wc, opcode));
    assert!(offset_of!(Wc, byte_len) == offset_of!(ibv_wc, byte_len));
    assert!(offset_of!(Wc, imm_or_rkey) == offset_of!(ibv_wc, imm_data_invalidated_rkey_union));
    assert!(offset_of!(Wc, qp_num) == offset_of!(ibv_wc, qp_num));
    assert!(offset_of!(Wc, wc_flags) == offset_of!(ibv_wc, wc_flags));
    assert!(offset_of!(Wc, pkey_index) == offset_of!(ibv_wc, pkey_index));
    assert!(offset_of!(Wc, sl) == offset_of!(ibv_wc, sl));
    assert!(size_of::<AsyncEvent>() == size_of::<ibv_async_event>());
    assert!(offset_of!(AsyncEvent, number) == offset_of!(ibv_async_event, event_type));
    assert!(size_of::<LmrTriplet>() == size_of::<ibv_sge>());
    assert!(align_of::<LmrTriplet>() == align_of::<ibv_sge>());
    assert!(offset_of!(LmrTriplet, virtual_address) == offset_of!(ibv_sge, addr));
    assert!(offset_of!(LmrTriplet, segment_length) == offset_of!(ibv_sge, length));
    assert!(offset_of!(LmrTriplet, lmr_context) == offset_of!(ibv_sge, lkey));
};

/// Casts segments to the type that verbs takes. Verbs never writes through the pointer.
#[inline(always)]
pub(crate) fn sges(iov: &[LmrTriplet]) -> *mut ibv_sge {
    iov.as_ptr().cast::<ibv_sge>().cast_mut()
}

/// Returns the current `errno`, for the calls that report through it.
pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The device's data path functions. libibverbs' inline `ibv_post_send` and its siblings look them up in each call and
/// check that they exist; a device sets them when it is opened.
#[derive(Clone, Copy)]
pub(crate) struct Calls {
    pub(crate) post_send:
        unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32,
    pub(crate) post_recv:
        unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32,
    pub(crate) poll_cq: unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32,
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
