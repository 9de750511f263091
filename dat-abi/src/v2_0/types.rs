//! C types of uDAPL 2.0 (`dat2/dat.h`, `dat2/udat.h`, `dat2/dat_ib_extensions.h`) that differ from 1.2's.

use std::ffi::{c_char, c_void};

use dat_core::iov::{LmrTriplet, RmrTriplet};

use crate::types::{
    CLayout, DAT_NAME_MAX_LENGTH, DatAsynchErrorEventData, DatBoolean, DatConnectionEventData,
    DatContext, DatCount, DatHandle, DatIaAddressPtr, DatNamedAttr, DatOsWaitProxyAgent,
    DatRegionDescription, DatRmrBindCompletionEventData, DatSoftwareEventData, c_struct,
};

/// `DAT_LMR_TRIPLET`. Core uses the same layout, so that a post converts nothing.
pub type DatLmrTriplet = LmrTriplet;

/// `DAT_RMR_TRIPLET`. Core uses the same layout.
pub type DatRmrTriplet = RmrTriplet;

const _: () = {
    assert!(size_of::<DatLmrTriplet>() == 16 && size_of::<DatRmrTriplet>() == 16);
    assert!(std::mem::offset_of!(DatLmrTriplet, segment_length) == 8);
    assert!(std::mem::offset_of!(DatLmrTriplet, lmr_context) == 12);
    assert!(std::mem::offset_of!(DatRmrTriplet, segment_length) == 8);
    assert!(std::mem::offset_of!(DatRmrTriplet, rmr_context) == 12);
};

impl CLayout for DatLmrTriplet {
    const SIZE: usize = 16;
    const FIELDS: &'static [(&'static str, usize)] = &[
        ("virtual_address", 0),
        ("segment_length", 8),
        ("lmr_context", 12),
    ];
}

impl CLayout for DatRmrTriplet {
    const SIZE: usize = 16;
    const FIELDS: &'static [(&'static str, usize)] = &[
        ("virtual_address", 0),
        ("segment_length", 8),
        ("rmr_context", 12),
    ];
}

c_struct! {
    /// `DAT_DTO_COMPLETION_EVENT_DATA`.
    DatDtoCompletionEventData, 32 {
        ep_handle: DatHandle = 0,
        user_cookie: DatContext = 8,
        status: u32 = 16,
        transfered_length: u32 = 20,
        operation: u32 = 24,
        rmr_context: u32 = 28,
    }
}

c_struct! {
    /// `DAT_CR_ARRIVAL_EVENT_DATA`.
    DatCrArrivalEventData, 40 {
        sp_handle: DatHandle = 0,
        local_ia_address_ptr: DatIaAddressPtr = 8,
        conn_qual: u64 = 16,
        cr_handle: DatHandle = 24,
        truncate_flag: DatBoolean = 32,
    }
}

/// `DAT_EVENT_DATA`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the specification's")]
pub union DatEventData {
    pub dto_completion_event_data: DatDtoCompletionEventData,
    pub rmr_completion_event_data: DatRmrBindCompletionEventData,
    pub cr_arrival_event_data: DatCrArrivalEventData,
    pub connect_event_data: DatConnectionEventData,
    pub asynch_error_event_data: DatAsynchErrorEventData,
    pub software_event_data: DatSoftwareEventData,
}
const _: () = assert!(size_of::<DatEventData>() == 40);

impl std::fmt::Debug for DatEventData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DatEventData { .. }")
    }
}

c_struct! {
    /// `DAT_EVENT`. The extension data is a [`DatIbExtensionEventData`] for the IB extension's events.
    DatEvent, 120 {
        event_number: u32 = 0,
        evd_handle: DatHandle = 8,
        event_data: DatEventData = 16,
        event_extension_data: [u64; 8] = 56,
    }
}

impl Default for DatEvent {
    fn default() -> Self {
        Self {
            event_number: 0,
            evd_handle: 0,
            event_data: DatEventData {
                cr_arrival_event_data: DatCrArrivalEventData {
                    sp_handle: 0,
                    local_ia_address_ptr: std::ptr::null_mut(),
                    conn_qual: 0,
                    cr_handle: 0,
                    truncate_flag: 0,
                },
            },
            event_extension_data: [0; 8],
        }
    }
}

c_struct! {
    /// `DAT_IA_ATTR` (dat_ia_query).
    DatIaAttr, 688 {
        adapter_name: [c_char; DAT_NAME_MAX_LENGTH] = 0,
        vendor_name: [c_char; DAT_NAME_MAX_LENGTH] = 256,
        hardware_version_major: u32 = 512,
        hardware_version_minor: u32 = 516,
        firmware_version_major: u32 = 520,
        firmware_version_minor: u32 = 524,
        ia_address_ptr: DatIaAddressPtr = 528,
        max_eps: DatCount = 536,
        max_dto_per_ep: DatCount = 540,
        max_rdma_read_per_ep_in: DatCount = 544,
        max_rdma_read_per_ep_out: DatCount = 548,
        max_evds: DatCount = 552,
        max_evd_qlen: DatCount = 556,
        max_iov_segments_per_dto: DatCount = 560,
        max_lmrs: DatCount = 564,
        max_lmr_block_size: u32 = 568,
        max_lmr_virtual_address: u64 = 576,
        max_pzs: DatCount = 584,
        max_message_size: u32 = 588,
        max_rdma_size: u32 = 592,
        max_rmrs: DatCount = 596,
        max_rmr_target_address: u64 = 600,
        max_srqs: DatCount = 608,
        max_ep_per_srq: DatCount = 612,
        max_recv_per_srq: DatCount = 616,
        max_iov_segments_per_rdma_read: DatCount = 620,
        max_iov_segments_per_rdma_write: DatCount = 624,
        max_rdma_read_in: DatCount = 628,
        max_rdma_read_out: DatCount = 632,
        max_rdma_read_per_ep_in_guaranteed: DatBoolean = 636,
        max_rdma_read_per_ep_out_guaranteed: DatBoolean = 640,
        zb_supported: DatBoolean = 644,
        extension_supported: u32 = 648,
        extension_version: DatCount = 652,
        num_transport_attr: DatCount = 656,
        transport_attr: *mut DatNamedAttr = 664,
        num_vendor_attr: DatCount = 672,
        vendor_attr: *mut DatNamedAttr = 680,
    }
}

/// `DAT_EXTENSION_NONE`.
pub const DAT_EXTENSION_NONE: u32 = 0;
/// `DAT_EXTENSION_IB`.
pub const DAT_EXTENSION_IB: u32 = 1;

/// `DAT_IB_EXTENSION_VERSION`.
pub const DAT_IB_EXTENSION_VERSION: DatCount = 209;

c_struct! {
    /// `DAT_PROVIDER_ATTR` (dat_ia_query).
    DatProviderAttr, 520 {
        provider_name: [c_char; DAT_NAME_MAX_LENGTH] = 0,
        provider_version_major: u32 = 256,
        provider_version_minor: u32 = 260,
        dapl_version_major: u32 = 264,
        dapl_version_minor: u32 = 268,
        lmr_mem_types_supported: u32 = 272,
        iov_ownership_on_return: u32 = 276,
        dat_qos_supported: u32 = 280,
        completion_flags_supported: u32 = 284,
        is_thread_safe: DatBoolean = 288,
        max_private_data_size: DatCount = 292,
        supports_multipath: DatBoolean = 296,
        ep_creator: u32 = 300,
        pz_support: u32 = 304,
        optimal_buffer_alignment: u32 = 308,
        evd_stream_merging_supported: [[DatBoolean; 6]; 6] = 312,
        srq_supported: DatBoolean = 456,
        srq_watermarks_supported: DatCount = 460,
        srq_ep_pz_difference_supported: DatBoolean = 464,
        srq_info_supported: DatCount = 468,
        ep_recv_info_supported: DatCount = 472,
        lmr_sync_req: DatBoolean = 476,
        dto_async_return_guaranteed: DatBoolean = 480,
        rdma_write_for_rdma_read_req: DatBoolean = 484,
        rdma_read_lmr_rmr_context_exposure: DatBoolean = 488,
        rmr_scope_supported: u32 = 492,
        is_signal_safe: DatBoolean = 496,
        ha_supported: DatBoolean = 500,
        ha_loadbalancing: u32 = 504,
        num_provider_specific_attr: DatCount = 508,
        provider_specific_attr: *mut DatNamedAttr = 512,
    }
}

c_struct! {
    /// `DAT_EP_ATTR`.
    DatEpAttr, 88 {
        service_type: u32 = 0,
        max_message_size: u32 = 4,
        max_rdma_size: u32 = 8,
        qos: u32 = 12,
        recv_completion_flags: u32 = 16,
        request_completion_flags: u32 = 20,
        max_recv_dtos: DatCount = 24,
        max_request_dtos: DatCount = 28,
        max_recv_iov: DatCount = 32,
        max_request_iov: DatCount = 36,
        max_rdma_read_in: DatCount = 40,
        max_rdma_read_out: DatCount = 44,
        srq_soft_hw: DatCount = 48,
        max_rdma_read_iov: DatCount = 52,
        max_rdma_write_iov: DatCount = 56,
        ep_transport_specific_count: DatCount = 60,
        ep_transport_specific: *mut DatNamedAttr = 64,
        ep_provider_specific_count: DatCount = 72,
        ep_provider_specific: *mut DatNamedAttr = 80,
    }
}

c_struct! {
    /// `DAT_COMM`: domain, type and protocol of a common service point.
    DatComm, 12 {
        domain: i32 = 0,
        /// `type` in C.
        r#type: i32 = 4,
        protocol: i32 = 8,
    }
}

c_struct! {
    /// `DAT_EP_PARAM` (dat_ep_query, dat_ep_modify).
    DatEpParam, 184 {
        ia_handle: DatHandle = 0,
        ep_state: u32 = 8,
        comm: DatComm = 12,
        local_ia_address_ptr: DatIaAddressPtr = 24,
        local_port_qual: u64 = 32,
        remote_ia_address_ptr: DatIaAddressPtr = 40,
        remote_port_qual: u64 = 48,
        pz_handle: DatHandle = 56,
        recv_evd_handle: DatHandle = 64,
        request_evd_handle: DatHandle = 72,
        connect_evd_handle: DatHandle = 80,
        srq_handle: DatHandle = 88,
        ep_attr: DatEpAttr = 96,
    }
}

c_struct! {
    /// `DAT_LMR_PARAM` (dat_lmr_query).
    DatLmrParam, 80 {
        ia_handle: DatHandle = 0,
        mem_type: u32 = 8,
        region_desc: DatRegionDescription = 16,
        length: u64 = 32,
        pz_handle: DatHandle = 40,
        mem_priv: u32 = 48,
        va_type: u32 = 52,
        lmr_context: u32 = 56,
        rmr_context: u32 = 60,
        registered_size: u64 = 64,
        registered_address: u64 = 72,
    }
}

c_struct! {
    /// `DAT_RMR_PARAM` (dat_rmr_query).
    DatRmrParam, 48 {
        ia_handle: DatHandle = 0,
        pz_handle: DatHandle = 8,
        lmr_triplet: DatLmrTriplet = 16,
        mem_priv: u32 = 32,
        rmr_context: u32 = 36,
        rmr_scope: u32 = 40,
        va_type: u32 = 44,
    }
}

/// The proxy of a [`DatCnoParam`].
#[derive(Clone, Copy)]
#[repr(C)]
pub union DatCnoProxy {
    /// `DAT_PROXY_TYPE_AGENT`.
    pub agent: DatOsWaitProxyAgent,
    /// `DAT_PROXY_TYPE_FD`.
    pub fd: i32,
    /// `DAT_PROXY_TYPE_NONE`.
    pub none: *mut c_void,
}

impl std::fmt::Debug for DatCnoProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DatCnoProxy { .. }")
    }
}

c_struct! {
    /// `DAT_CNO_PARAM` (dat_cno_query).
    DatCnoParam, 32 {
        ia_handle: DatHandle = 0,
        /// `DAT_PROXY_TYPE`: 0 none, 1 agent, 2 file descriptor.
        proxy_type: u32 = 8,
        proxy: DatCnoProxy = 16,
    }
}

c_struct! {
    /// `DAT_CSP_PARAM` (dat_csp_query).
    DatCspParam, 32 {
        ia_handle: DatHandle = 0,
        comm: *mut DatComm = 8,
        address_ptr: DatIaAddressPtr = 16,
        evd_handle: DatHandle = 24,
    }
}

c_struct! {
    /// `DAT_IB_ADDR_HANDLE`: the peer of an unreliable datagram. `ah` is the provider's address handle.
    DatIbAddrHandle, 40 {
        ah: *mut c_void = 0,
        qpn: u32 = 8,
        /// A `struct sockaddr_in6`.
        ia_addr: [u8; 28] = 12,
    }
}

c_struct! {
    /// `DAT_IB_EXTENSION_EVENT_DATA`, at [`DatEvent::event_extension_data`].
    DatIbExtensionEventData, 64 {
        /// `DAT_IB_EXT_TYPE`; `type` in C.
        r#type: u32 = 0,
        /// `DAT_IB_STATUS`.
        status: u32 = 4,
        /// Immediate data; `val.immed.data` in C.
        val: u32 = 8,
        remote_ah: DatIbAddrHandle = 16,
        context: DatContext = 56,
    }
}

/// `DAT_IB_OP`: operations of dat_extension_op.
pub mod ib_op {
    /// `DAT_IB_FETCH_AND_ADD_OP`.
    pub const FETCH_AND_ADD: i32 = 0;
    /// `DAT_IB_CMP_AND_SWAP_OP`.
    pub const CMP_AND_SWAP: i32 = 1;
    /// `DAT_IB_RDMA_WRITE_IMMED_OP`.
    pub const RDMA_WRITE_IMMED: i32 = 2;
    /// `DAT_IB_UD_SEND_OP`.
    pub const UD_SEND: i32 = 3;
    /// `DAT_IB_QUERY_COUNTERS_OP`.
    pub const QUERY_COUNTERS: i32 = 4;
    /// `DAT_IB_PRINT_COUNTERS_OP`.
    pub const PRINT_COUNTERS: i32 = 5;
    /// `DAT_IB_START_COUNTERS_OP`.
    pub const START_COUNTERS: i32 = 0x1a;
    /// `DAT_IB_STOP_COUNTERS_OP`.
    pub const STOP_COUNTERS: i32 = 0x1b;
    /// `DAT_IB_UD_CM_FREE_OP`.
    pub const UD_CM_FREE: i32 = 0x1c;
    /// `DAT_IB_UD_AH_FREE_OP`.
    pub const UD_AH_FREE: i32 = 0x1d;
    /// `DAT_IB_OPEN_QUERY_OP`: the handle is NULL, or for a provider the IA's name.
    pub const OPEN_QUERY: i32 = 0x1000;
    /// `DAT_IB_CLOSE_QUERY_OP`.
    pub const CLOSE_QUERY: i32 = 0x2000;
}

/// `DAT_IB_EXT_TYPE`: types of a [`DatIbExtensionEventData`].
pub mod ib_ext_type {
    /// `DAT_IB_FETCH_AND_ADD`.
    pub const FETCH_AND_ADD: u32 = 0;
    /// `DAT_IB_CMP_AND_SWAP`.
    pub const CMP_AND_SWAP: u32 = 1;
    /// `DAT_IB_RDMA_WRITE_IMMED`: at the sender.
    pub const RDMA_WRITE_IMMED: u32 = 2;
    /// `DAT_IB_RDMA_WRITE_IMMED_DATA`: at the receiver.
    pub const RDMA_WRITE_IMMED_DATA: u32 = 3;
    /// `DAT_IB_RECV_IMMED_DATA`.
    pub const RECV_IMMED_DATA: u32 = 4;
    /// `DAT_IB_UD_CONNECT_REQUEST`.
    pub const UD_CONNECT_REQUEST: u32 = 5;
    /// `DAT_IB_UD_REMOTE_AH`: the peer accepted a connect.
    pub const UD_REMOTE_AH: u32 = 6;
    /// `DAT_IB_UD_PASSIVE_REMOTE_AH`: the peer whose request was accepted.
    pub const UD_PASSIVE_REMOTE_AH: u32 = 7;
    /// `DAT_IB_UD_SEND`.
    pub const UD_SEND: u32 = 8;
    /// `DAT_IB_UD_RECV`.
    pub const UD_RECV: u32 = 9;
    /// `DAT_IB_UD_CONNECT_REJECT`.
    pub const UD_CONNECT_REJECT: u32 = 10;
    /// `DAT_IB_UD_CONNECT_ERROR`.
    pub const UD_CONNECT_ERROR: u32 = 11;
}

/// `DAT_IB_DTO_EVENT`: completion of an extension's operation.
pub const DAT_IB_DTO_EVENT: u32 = 0x4_0000;

/// `DAT_IB_UD_CONNECTION_REQUEST_EVENT`: a connection request of a datagram endpoint.
pub const DAT_IB_UD_CONNECTION_REQUEST_EVENT: u32 = 0x4_0001;
