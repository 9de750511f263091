//! C types of uDAPL 1.2 (`dat/dat.h`, `dat/udat.h`) that differ from 2.0's: lengths have 64 bits here.

use std::ffi::c_char;

use crate::types::{
    DAT_NAME_MAX_LENGTH, DatAsynchErrorEventData, DatBoolean, DatConnectionEventData, DatContext,
    DatCount, DatHandle, DatIaAddressPtr, DatNamedAttr, DatOsWaitProxyAgent, DatRegionDescription,
    DatRmrBindCompletionEventData, DatSoftwareEventData, c_struct,
};

c_struct! {
    /// `DAT_LMR_TRIPLET`: a segment of local memory.
    DatLmrTriplet, 24 {
        lmr_context: u32 = 0,
        pad: u32 = 4,
        virtual_address: u64 = 8,
        segment_length: u64 = 16,
    }
}

c_struct! {
    /// `DAT_RMR_TRIPLET`: a segment of remote memory.
    DatRmrTriplet, 24 {
        rmr_context: u32 = 0,
        pad: u32 = 4,
        target_address: u64 = 8,
        segment_length: u64 = 16,
    }
}

c_struct! {
    /// `DAT_DTO_COMPLETION_EVENT_DATA`.
    DatDtoCompletionEventData, 32 {
        ep_handle: DatHandle = 0,
        user_cookie: DatContext = 8,
        status: u32 = 16,
        transfered_length: u64 = 24,
    }
}

c_struct! {
    /// `DAT_CR_ARRIVAL_EVENT_DATA`.
    DatCrArrivalEventData, 32 {
        sp_handle: DatHandle = 0,
        local_ia_address_ptr: DatIaAddressPtr = 8,
        conn_qual: u64 = 16,
        cr_handle: DatHandle = 24,
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

impl std::fmt::Debug for DatEventData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DatEventData { .. }")
    }
}

c_struct! {
    /// `DAT_EVENT`.
    DatEvent, 48 {
        event_number: u32 = 0,
        evd_handle: DatHandle = 8,
        event_data: DatEventData = 16,
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
        max_lmr_block_size: u64 = 568,
        max_lmr_virtual_address: u64 = 576,
        max_pzs: DatCount = 584,
        max_message_size: u64 = 592,
        max_rdma_size: u64 = 600,
        max_rmrs: DatCount = 608,
        max_rmr_target_address: u64 = 616,
        max_srqs: DatCount = 624,
        max_ep_per_srq: DatCount = 628,
        max_recv_per_srq: DatCount = 632,
        max_iov_segments_per_rdma_read: DatCount = 636,
        max_iov_segments_per_rdma_write: DatCount = 640,
        max_rdma_read_in: DatCount = 644,
        max_rdma_read_out: DatCount = 648,
        max_rdma_read_per_ep_in_guaranteed: DatBoolean = 652,
        max_rdma_read_per_ep_out_guaranteed: DatBoolean = 656,
        num_transport_attr: DatCount = 660,
        transport_attr: *mut DatNamedAttr = 664,
        num_vendor_attr: DatCount = 672,
        vendor_attr: *mut DatNamedAttr = 680,
    }
}

c_struct! {
    /// `DAT_PROVIDER_ATTR` (dat_ia_query).
    DatProviderAttr, 504 {
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
        num_provider_specific_attr: DatCount = 488,
        provider_specific_attr: *mut DatNamedAttr = 496,
    }
}

c_struct! {
    /// `DAT_EP_ATTR`.
    DatEpAttr, 104 {
        service_type: u32 = 0,
        max_message_size: u64 = 8,
        max_rdma_size: u64 = 16,
        qos: u32 = 24,
        recv_completion_flags: u32 = 28,
        request_completion_flags: u32 = 32,
        max_recv_dtos: DatCount = 36,
        max_request_dtos: DatCount = 40,
        max_recv_iov: DatCount = 44,
        max_request_iov: DatCount = 48,
        max_rdma_read_in: DatCount = 52,
        max_rdma_read_out: DatCount = 56,
        srq_soft_hw: DatCount = 60,
        max_rdma_read_iov: DatCount = 64,
        max_rdma_write_iov: DatCount = 68,
        ep_transport_specific_count: DatCount = 72,
        ep_transport_specific: *mut DatNamedAttr = 80,
        ep_provider_specific_count: DatCount = 88,
        ep_provider_specific: *mut DatNamedAttr = 96,
    }
}

c_struct! {
    /// `DAT_EP_PARAM` (dat_ep_query, dat_ep_modify).
    DatEpParam, 192 {
        ia_handle: DatHandle = 0,
        ep_state: u32 = 8,
        local_ia_address_ptr: DatIaAddressPtr = 16,
        local_port_qual: u64 = 24,
        remote_ia_address_ptr: DatIaAddressPtr = 32,
        remote_port_qual: u64 = 40,
        pz_handle: DatHandle = 48,
        recv_evd_handle: DatHandle = 56,
        request_evd_handle: DatHandle = 64,
        connect_evd_handle: DatHandle = 72,
        srq_handle: DatHandle = 80,
        ep_attr: DatEpAttr = 88,
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
        lmr_context: u32 = 52,
        rmr_context: u32 = 56,
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
        mem_priv: u32 = 40,
        rmr_context: u32 = 44,
    }
}

c_struct! {
    /// `DAT_CNO_PARAM` (dat_cno_query).
    DatCnoParam, 24 {
        ia_handle: DatHandle = 0,
        agent: DatOsWaitProxyAgent = 8,
    }
}
