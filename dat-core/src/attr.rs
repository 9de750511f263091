//! Attributes of adapters, endpoints and shared receive queues, free of the layout of either version.

use std::net::IpAddr;

use crate::flags::CompletionFlags;

/// What `dat_ia_query` reports of a device (`DAT_IA_ATTR`, `DAT_PROVIDER_ATTR`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterAttr {
    /// Device name.
    pub adapter_name: String,
    /// Maker, or what the transport calls itself.
    pub vendor_name: String,
    /// Hardware version.
    pub hardware_version: (u32, u32),
    /// Firmware version.
    pub firmware_version: (u32, u32),
    /// The address peers connect to.
    pub address: IpAddr,
    /// Scope id of an IPv6 link-local address.
    pub scope_id: u32,
    /// Endpoints.
    pub max_eps: u32,
    /// DTOs outstanding per endpoint and direction.
    pub max_dto_per_ep: u32,
    /// RDMA Reads served at a time per endpoint.
    pub max_rdma_read_per_ep_in: u32,
    /// RDMA Reads issued at a time per endpoint.
    pub max_rdma_read_per_ep_out: u32,
    /// RDMA Reads served at a time in all.
    pub max_rdma_read_in: u32,
    /// RDMA Reads issued at a time in all.
    pub max_rdma_read_out: u32,
    /// Event dispatchers.
    pub max_evds: u32,
    /// Events of one.
    pub max_evd_qlen: u32,
    /// Segments of a send or receive.
    pub max_iov: u32,
    /// Segments of an RDMA Read.
    pub max_iov_rdma_read: u32,
    /// Segments of an RDMA Write.
    pub max_iov_rdma_write: u32,
    /// Memory regions.
    pub max_lmrs: u32,
    /// Bytes of one.
    pub max_lmr_block_size: u64,
    /// Highest address of one.
    pub max_lmr_virtual_address: u64,
    /// Protection zones.
    pub max_pzs: u32,
    /// Bytes of a message.
    pub max_message_size: u64,
    /// Bytes of an RDMA operation.
    pub max_rdma_size: u64,
    /// Memory windows.
    pub max_rmrs: u32,
    /// Shared receive queues.
    pub max_srqs: u32,
    /// Endpoints per shared receive queue.
    pub max_ep_per_srq: u32,
    /// Receives per shared receive queue.
    pub max_recv_per_srq: u32,
    /// Bytes of private data in a connection request.
    pub max_private_data_size: u32,
    /// Zero-based addresses.
    pub zero_based: bool,
    /// Named attributes: transport facts such as `DAT_IB_TRANSPORT_MTU`, in the order clients expect.
    pub named: Vec<(String, String)>,
    /// RDMA atomics.
    pub atomics: bool,
    /// Immediate data.
    pub immediate_data: bool,
    /// Bytes of an unreliable datagram (IB extension); 0 where there are none.
    pub max_datagram: u32,
    /// RMRs (memory windows).
    pub windows: bool,
}

/// `DAT_EP_ATTR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpAttr {
    /// `DAT_SERVICE_TYPE`: 0 is the reliable connection, the only one of the core API; the IB extension's UD is 1.
    pub service_type: u32,
    /// Bytes of a message.
    pub max_message_size: u64,
    /// Bytes of an RDMA operation.
    pub max_rdma_size: u64,
    /// `DAT_QOS`.
    pub qos: u32,
    /// Completion flags of receives.
    pub recv_completion_flags: CompletionFlags,
    /// Completion flags of requests.
    pub request_completion_flags: CompletionFlags,
    /// Receives outstanding.
    pub max_recv_dtos: u32,
    /// Requests outstanding.
    pub max_request_dtos: u32,
    /// Segments of a receive.
    pub max_recv_iov: u32,
    /// Segments of a send.
    pub max_request_iov: u32,
    /// RDMA Reads served at a time.
    pub max_rdma_read_in: u32,
    /// RDMA Reads issued at a time.
    pub max_rdma_read_out: u32,
    /// Soft high watermark of receives from an SRQ; -1 is none.
    pub srq_soft_hw: i32,
    /// Segments of an RDMA Read.
    pub max_rdma_read_iov: u32,
    /// Segments of an RDMA Write.
    pub max_rdma_write_iov: u32,
}

/// `DAT_SRQ_ATTR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqAttr {
    /// Receives outstanding.
    pub max_recv_dtos: u32,
    /// Segments of one.
    pub max_recv_iov: u32,
    /// Event when fewer are left; `None` is `DAT_SRQ_LW_DEFAULT`.
    pub low_watermark: Option<u32>,
}
