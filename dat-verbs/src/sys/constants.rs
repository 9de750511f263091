//! Numbers of both headers.

/// `ibv_atomic_cap`.
pub(crate) mod ibv_atomic_cap {
    pub(crate) const IBV_ATOMIC_NONE: u32 = 0;
    pub(crate) const IBV_ATOMIC_HCA: u32 = 1;
}

/// `ibv_port_state`.
pub(crate) mod ibv_port_state {
    pub(crate) const IBV_PORT_ACTIVE: u32 = 4;
}

/// `ibv_wc_status`.
pub(crate) mod ibv_wc_status {
    pub(crate) const IBV_WC_SUCCESS: u32 = 0;
    pub(crate) const IBV_WC_LOC_LEN_ERR: u32 = 1;
    pub(crate) const IBV_WC_LOC_PROT_ERR: u32 = 4;
    pub(crate) const IBV_WC_WR_FLUSH_ERR: u32 = 5;
    pub(crate) const IBV_WC_MW_BIND_ERR: u32 = 6;
    pub(crate) const IBV_WC_BAD_RESP_ERR: u32 = 7;
    pub(crate) const IBV_WC_LOC_ACCESS_ERR: u32 = 8;
    pub(crate) const IBV_WC_REM_INV_REQ_ERR: u32 = 9;
    pub(crate) const IBV_WC_REM_ACCESS_ERR: u32 = 10;
    pub(crate) const IBV_WC_REM_OP_ERR: u32 = 11;
    pub(crate) const IBV_WC_RETRY_EXC_ERR: u32 = 12;
    pub(crate) const IBV_WC_RNR_RETRY_EXC_ERR: u32 = 13;
    pub(crate) const IBV_WC_REM_INV_RD_REQ_ERR: u32 = 15;
    pub(crate) const IBV_WC_REM_ABORT_ERR: u32 = 16;
    pub(crate) const IBV_WC_RESP_TIMEOUT_ERR: u32 = 20;
}

/// `ibv_wc_opcode`.
pub(crate) mod ibv_wc_opcode {
    pub(crate) const IBV_WC_RDMA_WRITE: u32 = 1;
    pub(crate) const IBV_WC_RDMA_READ: u32 = 2;
    pub(crate) const IBV_WC_COMP_SWAP: u32 = 3;
    pub(crate) const IBV_WC_FETCH_ADD: u32 = 4;
    pub(crate) const IBV_WC_BIND_MW: u32 = 5;
    pub(crate) const IBV_WC_LOCAL_INV: u32 = 6;
    pub(crate) const IBV_WC_RECV: u32 = 128;
    pub(crate) const IBV_WC_RECV_RDMA_WITH_IMM: u32 = 129;
}

/// `ibv_wr_opcode`.
pub(crate) mod ibv_wr_opcode {
    pub(crate) const IBV_WR_RDMA_WRITE: u32 = 0;
    pub(crate) const IBV_WR_RDMA_WRITE_WITH_IMM: u32 = 1;
    pub(crate) const IBV_WR_SEND: u32 = 2;
    pub(crate) const IBV_WR_SEND_WITH_IMM: u32 = 3;
    pub(crate) const IBV_WR_RDMA_READ: u32 = 4;
    pub(crate) const IBV_WR_ATOMIC_CMP_AND_SWP: u32 = 5;
    pub(crate) const IBV_WR_ATOMIC_FETCH_AND_ADD: u32 = 6;
    pub(crate) const IBV_WR_BIND_MW: u32 = 8;
    pub(crate) const IBV_WR_SEND_WITH_INV: u32 = 9;
}

/// `ibv_qp_type`.
pub(crate) mod ibv_qp_type {
    pub(crate) const IBV_QPT_RC: u32 = 2;
    pub(crate) const IBV_QPT_UD: u32 = 4;
}

/// `ibv_qp_state`.
pub(crate) mod ibv_qp_state {
    pub(crate) const IBV_QPS_RESET: u32 = 0;
    pub(crate) const IBV_QPS_INIT: u32 = 1;
    pub(crate) const IBV_QPS_RTR: u32 = 2;
    pub(crate) const IBV_QPS_RTS: u32 = 3;
    pub(crate) const IBV_QPS_ERR: u32 = 6;
}

/// `ibv_mw_type`.
pub(crate) mod ibv_mw_type {
    pub(crate) const IBV_MW_TYPE_1: u32 = 1;
    pub(crate) const IBV_MW_TYPE_2: u32 = 2;
}

/// `rdma_cm_event_type`.
pub(crate) mod rdma_cm_event_type {
    pub(crate) const RDMA_CM_EVENT_ADDR_RESOLVED: u32 = 0;
    pub(crate) const RDMA_CM_EVENT_ADDR_ERROR: u32 = 1;
    pub(crate) const RDMA_CM_EVENT_ROUTE_RESOLVED: u32 = 2;
    pub(crate) const RDMA_CM_EVENT_ROUTE_ERROR: u32 = 3;
    pub(crate) const RDMA_CM_EVENT_CONNECT_REQUEST: u32 = 4;
    pub(crate) const RDMA_CM_EVENT_CONNECT_RESPONSE: u32 = 5;
    pub(crate) const RDMA_CM_EVENT_CONNECT_ERROR: u32 = 6;
    pub(crate) const RDMA_CM_EVENT_UNREACHABLE: u32 = 7;
    pub(crate) const RDMA_CM_EVENT_REJECTED: u32 = 8;
    pub(crate) const RDMA_CM_EVENT_ESTABLISHED: u32 = 9;
    pub(crate) const RDMA_CM_EVENT_DISCONNECTED: u32 = 10;
    pub(crate) const RDMA_CM_EVENT_DEVICE_REMOVAL: u32 = 11;
    pub(crate) const RDMA_CM_EVENT_TIMEWAIT_EXIT: u32 = 15;
}

/// `rdma_port_space`.
pub(crate) mod rdma_port_space {
    pub(crate) const RDMA_PS_TCP: u32 = 262;
    pub(crate) const RDMA_PS_UDP: u32 = 273;
}

/// `ibv_access_flags`.
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

/// `ibv_event_type`.
pub(crate) mod event {
    pub(crate) const CQ_ERR: i32 = 0;
    pub(crate) const QP_FATAL: i32 = 1;
    pub(crate) const QP_REQ_ERR: i32 = 2;
    pub(crate) const QP_ACCESS_ERR: i32 = 3;
    pub(crate) const COMM_EST: i32 = 4;
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
