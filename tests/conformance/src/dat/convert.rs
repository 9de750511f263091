//! Conversions between structures of 1.2 and the layouts of 2.0, which the statements use.

use std::mem::zeroed;

use dat_abi::v1_2::types as v1;
use dat_abi::v2_0::types as v2;

use dat_abi::types::event_number;

/// Copies fields that have the same name and type in both.
macro_rules! alike {
    ($from:expr => $to:ident: $($field:ident)*) => { $($to.$field = $from.$field;)* };
}

/// Converts a length to a type with fewer bits, saturating.
fn short(length: u64) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Converts a consumer's local segments.
pub(super) fn local(iov: &[v2::DatLmrTriplet]) -> Vec<v1::DatLmrTriplet> {
    let one = |t: &v2::DatLmrTriplet| v1::DatLmrTriplet {
        lmr_context: t.lmr_context,
        pad: 0,
        virtual_address: t.virtual_address,
        segment_length: t.segment_length.into(),
    };
    iov.iter().map(one).collect()
}

/// Converts a consumer's remote segment.
pub(super) fn remote(t: &v2::DatRmrTriplet) -> v1::DatRmrTriplet {
    v1::DatRmrTriplet {
        rmr_context: t.rmr_context,
        pad: 0,
        target_address: t.virtual_address,
        segment_length: t.segment_length.into(),
    }
}

/// Returns an empty event for the provider to fill.
pub(super) fn event() -> v1::DatEvent {
    // SAFETY: all zero is a value: words and NULL pointers.
    unsafe { zeroed() }
}

/// Converts an event that the provider wrote.
pub(super) fn event_out(from: &v1::DatEvent) -> v2::DatEvent {
    let mut to = v2::DatEvent::default();
    alike!(from => to: event_number evd_handle);
    // SAFETY: the number says which field is set, and all are plain words.
    unsafe {
        match from.event_number {
            event_number::DTO_COMPLETION => {
                let (old, new) = (
                    from.event_data.dto_completion_event_data,
                    &mut to.event_data.dto_completion_event_data,
                );
                alike!(old => new: ep_handle user_cookie status);
                new.transfered_length = short(old.transfered_length);
            }
            event_number::RMR_BIND_COMPLETION => {
                to.event_data.rmr_completion_event_data = from.event_data.rmr_completion_event_data;
            }
            event_number::CONNECTION_REQUEST => {
                let (old, new) = (
                    from.event_data.cr_arrival_event_data,
                    &mut to.event_data.cr_arrival_event_data,
                );
                alike!(old => new: sp_handle local_ia_address_ptr conn_qual cr_handle);
            }
            0x4001..=0x4fff => {
                to.event_data.connect_event_data = from.event_data.connect_event_data;
            }
            event_number::SOFTWARE => {
                to.event_data.software_event_data = from.event_data.software_event_data;
            }
            _ => to.event_data.asynch_error_event_data = from.event_data.asynch_error_event_data,
        }
    }
    to
}

pub(super) fn ia_attr(from: &v1::DatIaAttr) -> v2::DatIaAttr {
    // SAFETY: all zero is a value: words and NULL pointers.
    let mut to: v2::DatIaAttr = unsafe { zeroed() };
    alike!(from => to:
        adapter_name vendor_name hardware_version_major hardware_version_minor firmware_version_major
        firmware_version_minor ia_address_ptr max_eps max_dto_per_ep max_rdma_read_per_ep_in max_rdma_read_per_ep_out
        max_evds max_evd_qlen max_iov_segments_per_dto max_lmrs max_lmr_virtual_address max_pzs max_rmrs
        max_rmr_target_address max_srqs max_ep_per_srq max_recv_per_srq max_iov_segments_per_rdma_read
        max_iov_segments_per_rdma_write max_rdma_read_in max_rdma_read_out max_rdma_read_per_ep_in_guaranteed
        max_rdma_read_per_ep_out_guaranteed num_transport_attr transport_attr num_vendor_attr vendor_attr);
    to.max_lmr_block_size = short(from.max_lmr_block_size);
    to.max_message_size = short(from.max_message_size);
    to.max_rdma_size = short(from.max_rdma_size);
    to
}

pub(super) fn provider_attr(from: &v1::DatProviderAttr) -> v2::DatProviderAttr {
    // SAFETY: all zero is a value: words and NULL pointers.
    let mut to: v2::DatProviderAttr = unsafe { zeroed() };
    alike!(from => to:
        provider_name provider_version_major provider_version_minor dapl_version_major dapl_version_minor
        lmr_mem_types_supported iov_ownership_on_return dat_qos_supported completion_flags_supported is_thread_safe
        max_private_data_size supports_multipath ep_creator pz_support optimal_buffer_alignment
        evd_stream_merging_supported srq_supported srq_watermarks_supported srq_ep_pz_difference_supported
        srq_info_supported ep_recv_info_supported lmr_sync_req dto_async_return_guaranteed
        rdma_write_for_rdma_read_req num_provider_specific_attr provider_specific_attr);
    to
}

pub(super) fn ep_param(from: &v1::DatEpParam) -> v2::DatEpParam {
    // SAFETY: all zero is a value: words and NULL pointers.
    let mut to: v2::DatEpParam = unsafe { zeroed() };
    alike!(from => to:
        ia_handle ep_state local_ia_address_ptr local_port_qual remote_ia_address_ptr remote_port_qual pz_handle
        recv_evd_handle request_evd_handle connect_evd_handle srq_handle);
    let (old, new) = (&from.ep_attr, &mut to.ep_attr);
    alike!(old => new:
        service_type qos recv_completion_flags request_completion_flags max_recv_dtos max_request_dtos max_recv_iov
        max_request_iov max_rdma_read_in max_rdma_read_out srq_soft_hw max_rdma_read_iov max_rdma_write_iov);
    new.max_message_size = short(old.max_message_size);
    new.max_rdma_size = short(old.max_rdma_size);
    to
}

/// Converts the parameters of dat_ep_modify.
pub(super) fn ep_param_in(from: &v2::DatEpParam) -> v1::DatEpParam {
    // SAFETY: all zero is a value: words and NULL pointers.
    let mut to: v1::DatEpParam = unsafe { zeroed() };
    alike!(from => to: pz_handle recv_evd_handle request_evd_handle connect_evd_handle srq_handle);
    to.ep_attr = ep_attr_in(&from.ep_attr);
    to
}

/// Converts the attributes of dat_ep_create.
pub(super) fn ep_attr_in(old: &v2::DatEpAttr) -> v1::DatEpAttr {
    // SAFETY: all zero is a value: words and NULL pointers.
    let mut new: v1::DatEpAttr = unsafe { zeroed() };
    alike!(old => new:
        service_type qos recv_completion_flags request_completion_flags max_recv_dtos max_request_dtos max_recv_iov
        max_request_iov max_rdma_read_in max_rdma_read_out srq_soft_hw max_rdma_read_iov max_rdma_write_iov);
    new.max_message_size = old.max_message_size.into();
    new.max_rdma_size = old.max_rdma_size.into();
    new
}

/// Converts a mask of 2.0's fields: 1.2 has no `COMM`, so bits of later fields are one lower. The attribute bits are
/// the same.
pub(super) fn ep_mask(mask: u64) -> u64 {
    const BEHIND_COMM: u64 = 0xff8;
    mask & !0x4 & !BEHIND_COMM | (mask & BEHIND_COMM) >> 1
}

pub(super) fn lmr_param(from: &v1::DatLmrParam) -> v2::DatLmrParam {
    // SAFETY: all zero is a value: words and NULL pointers.
    let mut to: v2::DatLmrParam = unsafe { zeroed() };
    alike!(from => to:
        ia_handle mem_type region_desc length pz_handle mem_priv lmr_context rmr_context registered_size
        registered_address);
    to
}

pub(super) fn rmr_param(from: &v1::DatRmrParam) -> v2::DatRmrParam {
    // SAFETY: all zero is a value: words and NULL pointers.
    let mut to: v2::DatRmrParam = unsafe { zeroed() };
    alike!(from => to: ia_handle pz_handle mem_priv rmr_context);
    let triplet = from.lmr_triplet;
    to.lmr_triplet = v2::DatLmrTriplet {
        virtual_address: triplet.virtual_address,
        segment_length: short(triplet.segment_length),
        lmr_context: triplet.lmr_context,
    };
    to
}

/// Converts a CNO parameter: 1.2 has agents only; 2.0 names the kind of proxy.
pub(super) fn cno_param(from: &v1::DatCnoParam) -> v2::DatCnoParam {
    v2::DatCnoParam {
        ia_handle: from.ia_handle,
        proxy_type: u32::from(from.agent.proxy_agent_func.is_some()),
        proxy: v2::DatCnoProxy { agent: from.agent },
    }
}
