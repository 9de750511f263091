//! Attributes of adapters, endpoints and shared receive queues, independent of the layouts of API 1.2 and 2.0.

use std::net::{IpAddr, Ipv4Addr};

use crate::flags::CompletionFlags;

/// Limits and identity of a device that `dat_ia_query` returns (`DAT_IA_ATTR`, `DAT_PROVIDER_ATTR`). A transport takes the
/// [default](AdapterAttr::default) and sets what is different: later versions may add fields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdapterAttr {
    /// Name of the device.
    pub adapter_name: String,
    /// Name of the vendor, or of the transport.
    pub vendor_name: String,
    /// Hardware version.
    pub hardware_version: (u32, u32),
    /// Firmware version.
    pub firmware_version: (u32, u32),
    /// Address that peers connect to.
    pub address: IpAddr,
    /// Scope id of an IPv6 link-local address.
    pub scope_id: u32,
    /// Maximum number of endpoints.
    pub max_eps: u32,
    /// Maximum number of outstanding DTOs of an endpoint in each direction.
    pub max_dto_per_ep: u32,
    /// Maximum number of RDMA Reads that an endpoint serves at a time.
    pub max_rdma_read_per_ep_in: u32,
    /// Maximum number of RDMA Reads that an endpoint issues at a time.
    pub max_rdma_read_per_ep_out: u32,
    /// Maximum number of RDMA Reads that all endpoints serve at a time.
    pub max_rdma_read_in: u32,
    /// Maximum number of RDMA Reads that all endpoints issue at a time.
    pub max_rdma_read_out: u32,
    /// Maximum number of event dispatchers.
    pub max_evds: u32,
    /// Maximum number of events queued on one event dispatcher.
    pub max_evd_qlen: u32,
    /// Maximum number of segments of a send or receive.
    pub max_iov: u32,
    /// Maximum number of segments of an RDMA Read.
    pub max_iov_rdma_read: u32,
    /// Maximum number of segments of an RDMA Write.
    pub max_iov_rdma_write: u32,
    /// Maximum number of memory regions.
    pub max_lmrs: u32,
    /// Maximum length of a memory region in bytes.
    pub max_lmr_block_size: u64,
    /// Highest address of a memory region.
    pub max_lmr_virtual_address: u64,
    /// Maximum number of protection zones.
    pub max_pzs: u32,
    /// Maximum length of a message in bytes.
    pub max_message_size: u64,
    /// Maximum length of an RDMA operation in bytes.
    pub max_rdma_size: u64,
    /// Maximum number of memory windows.
    pub max_rmrs: u32,
    /// Maximum number of shared receive queues.
    pub max_srqs: u32,
    /// Maximum number of endpoints of a shared receive queue.
    pub max_ep_per_srq: u32,
    /// Maximum number of outstanding receives of a shared receive queue.
    pub max_recv_per_srq: u32,
    /// Maximum number of bytes of private data in a connection request.
    pub max_private_data_size: u32,
    /// True if regions may have zero-based addresses.
    pub zero_based: bool,
    /// Named attributes of the transport, such as `DAT_IB_TRANSPORT_MTU`, in the order that clients expect.
    pub named: Vec<(String, String)>,
    /// True if the transport has RDMA atomics.
    pub atomics: bool,
    /// True if the transport has immediate data.
    pub immediate_data: bool,
    /// Maximum length of an unreliable datagram in bytes (IB extension); 0 if the transport has none.
    pub max_datagram: u32,
    /// True if the transport has RMRs (memory windows).
    pub windows: bool,
}

impl Default for AdapterAttr {
    /// Returns the attributes of a transport in software: its limits are those of memory, it has none of the optional operations, and
    /// its names and its address are to be set.
    fn default() -> Self {
        Self {
            adapter_name: String::new(),
            vendor_name: String::new(),
            hardware_version: (1, 0),
            firmware_version: (1, 0),
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            scope_id: 0,
            max_eps: 65_536,
            max_dto_per_ep: 16_384,
            max_rdma_read_per_ep_in: 16,
            max_rdma_read_per_ep_out: 16,
            max_rdma_read_in: 65_536,
            max_rdma_read_out: 65_536,
            max_evds: 65_536,
            max_evd_qlen: 65_536,
            max_iov: 16,
            max_iov_rdma_read: 16,
            max_iov_rdma_write: 16,
            max_lmrs: 65_536,
            max_lmr_block_size: 1 << 40,
            max_lmr_virtual_address: u64::MAX,
            max_pzs: 65_536,
            max_message_size: 1 << 31,
            max_rdma_size: 1 << 31,
            max_rmrs: 0,
            max_srqs: 0,
            max_ep_per_srq: 0,
            max_recv_per_srq: 0,
            max_private_data_size: 256,
            zero_based: false,
            named: Vec::new(),
            atomics: false,
            immediate_data: false,
            max_datagram: 0,
            windows: false,
        }
    }
}

/// Attributes of an endpoint (`DAT_EP_ATTR`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpAttr {
    /// Service type (`DAT_SERVICE_TYPE`): 0 is the reliable connection, 1 the unreliable datagram of the IB extension.
    pub service_type: u32,
    /// Maximum length of a message in bytes.
    pub max_message_size: u64,
    /// Maximum length of an RDMA operation in bytes.
    pub max_rdma_size: u64,
    /// Quality of service (`DAT_QOS`).
    pub qos: u32,
    /// Completion flags of receives.
    pub recv_completion_flags: CompletionFlags,
    /// Completion flags of requests.
    pub request_completion_flags: CompletionFlags,
    /// Maximum number of outstanding receives.
    pub max_recv_dtos: u32,
    /// Maximum number of outstanding requests.
    pub max_request_dtos: u32,
    /// Maximum number of segments of a receive.
    pub max_recv_iov: u32,
    /// Maximum number of segments of a send.
    pub max_request_iov: u32,
    /// Maximum number of RDMA Reads served at a time.
    pub max_rdma_read_in: u32,
    /// Maximum number of RDMA Reads issued at a time.
    pub max_rdma_read_out: u32,
    /// Soft high watermark of receives taken from an SRQ; -1 means none.
    pub srq_soft_hw: i32,
    /// Maximum number of segments of an RDMA Read.
    pub max_rdma_read_iov: u32,
    /// Maximum number of segments of an RDMA Write.
    pub max_rdma_write_iov: u32,
}

/// Attributes of a shared receive queue (`DAT_SRQ_ATTR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqAttr {
    /// Maximum number of outstanding receives.
    pub max_recv_dtos: u32,
    /// Maximum number of segments of a receive.
    pub max_recv_iov: u32,
    /// Number of receives below which an event is raised; `None` is `DAT_SRQ_LW_DEFAULT`.
    pub low_watermark: Option<u32>,
}
