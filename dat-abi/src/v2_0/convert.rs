//! Converts between core's types and the structures of uDAPL 2.0.

use std::marker::PhantomData;

use dat_core::attributes::{AdapterAttr, EpAttr};
use dat_core::ep::fast_path::Several;
use dat_core::evd::EventSink;
use dat_core::event::{Dto, DtoOp, Event, RawHandle};
use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_core::transport::Transport;

use super::extension_event;
use super::types::{
    DAT_EXTENSION_IB, DAT_EXTENSION_NONE, DAT_IB_DTO_EVENT, DAT_IB_EXTENSION_VERSION,
    DAT_IB_UD_CONNECTION_REQUEST_EVENT, DatCrArrivalEventData, DatDtoCompletionEventData,
    DatEpAttr, DatEpParam, DatEvent, DatEventData, DatIaAttr, DatIbExtensionEventData,
    DatProviderAttr,
};
use crate::attributes as ours;
use crate::boundary::{V2_0, to_count};
use crate::intern;
use crate::thunk::{EpAttrArg, EpParamArg, Layout, registered_thread_safe};
use crate::types::{
    DatAsynchErrorEventData, DatConnectionEventData, DatRmrBindCompletionEventData,
    DatSoftwareEventData, c_name, event_number,
};

/// Converts a length to 2.0's 32 bits; one that does not fit becomes the largest.
fn length32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Returns the `DAT_IA_ATTR` of an adapter.
pub(crate) fn ia_attr(attr: &AdapterAttr) -> DatIaAttr {
    // Programs (dtest -w) take the extension for write with immediate data.
    let extended = attr.immediate_data || attr.atomics || attr.max_datagram > 0;
    DatIaAttr {
        adapter_name: c_name(&attr.adapter_name),
        vendor_name: c_name(&attr.vendor_name),
        hardware_version_major: attr.hardware_version.0,
        hardware_version_minor: attr.hardware_version.1,
        firmware_version_major: attr.firmware_version.0,
        firmware_version_minor: attr.firmware_version.1,
        ia_address_ptr: intern::address(Some(attr.address), attr.scope_id),
        max_eps: to_count(attr.max_eps),
        max_dto_per_ep: to_count(attr.max_dto_per_ep),
        max_rdma_read_per_ep_in: to_count(attr.max_rdma_read_per_ep_in),
        max_rdma_read_per_ep_out: to_count(attr.max_rdma_read_per_ep_out),
        max_evds: to_count(attr.max_evds),
        max_evd_qlen: to_count(attr.max_evd_qlen),
        max_iov_segments_per_dto: to_count(attr.max_iov),
        max_lmrs: to_count(attr.max_lmrs),
        max_lmr_block_size: length32(attr.max_lmr_block_size),
        max_lmr_virtual_address: attr.max_lmr_virtual_address,
        max_pzs: to_count(attr.max_pzs),
        max_message_size: length32(attr.max_message_size),
        max_rdma_size: length32(attr.max_rdma_size),
        max_rmrs: to_count(attr.max_rmrs),
        max_rmr_target_address: attr.max_lmr_virtual_address,
        max_srqs: to_count(attr.max_srqs),
        max_ep_per_srq: to_count(attr.max_ep_per_srq),
        max_recv_per_srq: to_count(attr.max_recv_per_srq),
        max_iov_segments_per_rdma_read: to_count(attr.max_iov_rdma_read),
        max_iov_segments_per_rdma_write: to_count(attr.max_iov_rdma_write),
        max_rdma_read_in: to_count(attr.max_rdma_read_in),
        max_rdma_read_out: to_count(attr.max_rdma_read_out),
        max_rdma_read_per_ep_in_guaranteed: 1,
        max_rdma_read_per_ep_out_guaranteed: 1,
        zb_supported: u32::from(attr.zero_based),
        extension_supported: if extended {
            DAT_EXTENSION_IB
        } else {
            DAT_EXTENSION_NONE
        },
        extension_version: if extended {
            DAT_IB_EXTENSION_VERSION
        } else {
            0
        },
        num_transport_attr: 0,
        transport_attr: std::ptr::null_mut(),
        num_vendor_attr: 0,
        vendor_attr: std::ptr::null_mut(),
    }
}

/// Returns the `DAT_PROVIDER_ATTR` of the IA `name`.
pub(crate) fn provider_attr(name: &str, attr: &AdapterAttr) -> DatProviderAttr {
    DatProviderAttr {
        provider_name: c_name(name),
        provider_version_major: 2,
        provider_version_minor: 0,
        dapl_version_major: 2,
        dapl_version_minor: 0,
        lmr_mem_types_supported: ours::LMR_MEM_TYPES,
        iov_ownership_on_return: 0,
        dat_qos_supported: 0,
        completion_flags_supported: ours::COMPLETION_FLAGS,
        is_thread_safe: u32::from(registered_thread_safe(name, 2)),
        max_private_data_size: to_count(attr.max_private_data_size),
        supports_multipath: 0,
        ep_creator: ours::EP_CREATOR,
        pz_support: 0,
        optimal_buffer_alignment: ours::BUFFER_ALIGNMENT,
        evd_stream_merging_supported: ours::MERGING,
        srq_supported: u32::from(attr.max_srqs > 0),
        srq_watermarks_supported: i32::from(attr.max_srqs > 0),
        srq_ep_pz_difference_supported: 0,
        srq_info_supported: i32::from(attr.max_srqs > 0),
        ep_recv_info_supported: 1,
        lmr_sync_req: 0,
        dto_async_return_guaranteed: 0,
        rdma_write_for_rdma_read_req: 1,
        rdma_read_lmr_rmr_context_exposure: 0,
        rmr_scope_supported: ours::RMR_SCOPE_ANY,
        is_signal_safe: 0,
        ha_supported: 0,
        ha_loadbalancing: 0,
        num_provider_specific_attr: attr.named.len() as i32,
        provider_specific_attr: intern::named(&attr.named),
    }
}

/// Returns the values of attributes that the consumer passes.
fn ep_attr_in(c: &DatEpAttr) -> EpAttrArg {
    EpAttrArg {
        service_type: c.service_type,
        max_message_size: c.max_message_size.into(),
        max_rdma_size: c.max_rdma_size.into(),
        qos: c.qos,
        recv_completion_flags: c.recv_completion_flags,
        request_completion_flags: c.request_completion_flags,
        max_recv_dtos: c.max_recv_dtos,
        max_request_dtos: c.max_request_dtos,
        max_recv_iov: c.max_recv_iov,
        max_request_iov: c.max_request_iov,
        max_rdma_read_in: c.max_rdma_read_in,
        max_rdma_read_out: c.max_rdma_read_out,
        srq_soft_hw: c.srq_soft_hw,
        max_rdma_read_iov: c.max_rdma_read_iov,
        max_rdma_write_iov: c.max_rdma_write_iov,
    }
}

/// Returns the fields of an endpoint's parameters that dat_ep_modify may change.
pub(crate) fn ep_param_in(c: &DatEpParam) -> EpParamArg {
    EpParamArg {
        pz: c.pz_handle,
        recv_evd: c.recv_evd_handle,
        request_evd: c.request_evd_handle,
        connect_evd: c.connect_evd_handle,
        srq: c.srq_handle,
        attr: ep_attr_in(&c.ep_attr),
    }
}

/// Returns the attributes of an endpoint for dat_ep_query.
pub(crate) fn ep_attr_out(attr: &EpAttr) -> DatEpAttr {
    DatEpAttr {
        service_type: attr.service_type,
        max_message_size: length32(attr.max_message_size),
        max_rdma_size: length32(attr.max_rdma_size),
        qos: attr.qos,
        recv_completion_flags: attr.recv_completion_flags.bits(),
        request_completion_flags: attr.request_completion_flags.bits(),
        max_recv_dtos: to_count(attr.max_recv_dtos),
        max_request_dtos: to_count(attr.max_request_dtos),
        max_recv_iov: to_count(attr.max_recv_iov),
        max_request_iov: to_count(attr.max_request_iov),
        max_rdma_read_in: to_count(attr.max_rdma_read_in),
        max_rdma_read_out: to_count(attr.max_rdma_read_out),
        srq_soft_hw: attr.srq_soft_hw,
        max_rdma_read_iov: to_count(attr.max_rdma_read_iov),
        max_rdma_write_iov: to_count(attr.max_rdma_write_iov),
        ep_transport_specific_count: 0,
        ep_transport_specific: std::ptr::null_mut(),
        ep_provider_specific_count: 0,
        ep_provider_specific: std::ptr::null_mut(),
    }
}

/// Writes an event into the consumer's structure, field by field.
pub(crate) struct Sink<'a, T: Transport> {
    /// Destination: valid for writes at any alignment, perhaps uninitialised.
    event: *mut DatEvent,
    evd: RawHandle,
    lives: PhantomData<&'a mut DatEvent>,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Sink<'_, T> {
    #[inline(always)]
    fn put(&mut self, number: u32, data: DatEventData) {
        // SAFETY: valid for writes, see `Layout::sink`.
        unsafe {
            (&raw mut (*self.event).event_number).write_unaligned(number);
            (&raw mut (*self.event).evd_handle).write_unaligned(self.evd);
            (&raw mut (*self.event).event_data).write_unaligned(data);
        }
    }

    /// Writes the data that the IB extension adds to the event.
    fn extend(&mut self, data: &DatIbExtensionEventData) {
        let words = extension_event::words(data);
        // SAFETY: valid for writes, see `Layout::sink`.
        unsafe { (&raw mut (*self.event).event_extension_data).write_unaligned(words) };
    }
}

impl Layout for V2_0 {
    type Local = LmrTriplet;
    type Remote = RmrTriplet;
    type EpAttr = DatEpAttr;
    type Event = DatEvent;
    type Sink<'a, T: Transport> = Sink<'a, T>;

    fn ep_attr(attr: &DatEpAttr) -> EpAttrArg {
        ep_attr_in(attr)
    }

    #[inline(always)]
    unsafe fn sink<'a, T: Transport>(event: *mut DatEvent, evd: RawHandle) -> Sink<'a, T> {
        Sink {
            event,
            evd,
            lives: PhantomData,
            transport: PhantomData,
        }
    }

    unsafe fn software_pointer(event: *const DatEvent) -> Option<usize> {
        // SAFETY: valid for reads by the caller's promise; a software event's data is its pointer, and any bits are one.
        unsafe {
            let number = (&raw const (*event).event_number).read_unaligned();
            let pointer = &raw const (*event).event_data.software_event_data.pointer;
            (number == event_number::SOFTWARE).then(|| pointer.read_unaligned())
        }
    }

    #[inline(always)]
    fn with_few<R>(segments: &[LmrTriplet], f: impl FnOnce(Several<'_>) -> R) -> Option<R> {
        Some(f(Several::new(segments)))
    }
}

impl<T: Transport> EventSink for Sink<'_, T> {
    #[inline(always)]
    fn dto(&mut self, dto: &Dto) {
        if dto.op == DtoOp::BindMw {
            let rmr_completion_event_data = DatRmrBindCompletionEventData {
                rmr_handle: dto.rmr,
                user_cookie: dto.cookie,
                status: dto.status as u32,
            };
            return self.put(
                event_number::RMR_BIND_COMPLETION,
                DatEventData {
                    rmr_completion_event_data,
                },
            );
        }
        let mut number = event_number::DTO_COMPLETION;
        if dto.op as u32 >= DtoOp::RdmaWriteImmediate as u32
            && let Some(extension) = extension_event::type_of(dto.op)
        {
            number = DAT_IB_DTO_EVENT;
            self.extend(&extension_event::completion(extension, dto));
        }
        let dto_completion_event_data = DatDtoCompletionEventData {
            ep_handle: dto.ep,
            user_cookie: dto.cookie,
            status: dto.status as u32,
            transfered_length: dto.length as u32,
            operation: dto.op as u32,
            rmr_context: dto.rmr_context,
        };
        self.put(
            number,
            DatEventData {
                dto_completion_event_data,
            },
        );
    }

    fn event(&mut self, event: &Event) {
        match *event {
            Event::Dto(ref dto) => self.dto(dto),
            Event::ConnectionRequest {
                sp,
                local_address,
                conn_qual,
                cr,
                datagram,
            } => {
                let request = T::arenas().cr.from_addr(cr);
                let scope = request.map_or(0, |cr| intern::scope_of(cr.ia()));
                let cr_arrival_event_data = DatCrArrivalEventData {
                    sp_handle: sp,
                    local_ia_address_ptr: intern::address(Some(local_address), scope),
                    conn_qual,
                    cr_handle: cr,
                    truncate_flag: 0,
                };
                let number = if datagram {
                    self.extend(&extension_event::request());
                    DAT_IB_UD_CONNECTION_REQUEST_EVENT
                } else {
                    event_number::CONNECTION_REQUEST
                };
                self.put(
                    number,
                    DatEventData {
                        cr_arrival_event_data,
                    },
                );
            }
            Event::Connection { number, ep } => {
                let found = T::arenas().ep.from_addr(ep);
                let data = found.and_then(|ep| ep.private_data_of(number));
                let connect_event_data = DatConnectionEventData {
                    ep_handle: ep,
                    private_data_size: data.map_or(0, |d| d.len() as i32),
                    private_data: data.map_or(std::ptr::null_mut(), |d| d.address().cast()),
                };
                self.put(number as u32, DatEventData { connect_event_data });
            }
            Event::Datagram { number, ep, ah } => {
                let (extension, data) = extension_event::datagram::<T>(number, ep, ah);
                self.extend(&extension);
                self.put(number as u32, data);
            }
            Event::Async {
                number,
                handle,
                reason,
            } => {
                let asynch_error_event_data = DatAsynchErrorEventData {
                    dat_handle: handle,
                    reason: reason as i32,
                };
                self.put(
                    number as u32,
                    DatEventData {
                        asynch_error_event_data,
                    },
                );
            }
            Event::Software(pointer) => {
                let software_event_data = DatSoftwareEventData { pointer };
                self.put(
                    event_number::SOFTWARE,
                    DatEventData {
                        software_event_data,
                    },
                );
            }
        }
    }
}
