//! Converts between core's types and the structures of uDAPL 1.2.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use dat_core::attributes::{AdapterAttr, EpAttr};
use dat_core::ep::fast_path::Several;
use dat_core::error::{Error, Result};
use dat_core::evd::EventSink;
use dat_core::event::{Dto, DtoOp, Event, RawHandle};
use dat_core::iov::{LmrTriplet, Local, Remote, RmrTriplet};
use dat_core::transport::Transport;

use super::types::{
    DatCrArrivalEventData, DatDtoCompletionEventData, DatEpAttr, DatEpParam, DatEvent,
    DatEventData, DatIaAttr, DatLmrTriplet, DatProviderAttr, DatRmrTriplet,
};
use crate::attributes as ours;
use crate::boundary::{V1_2, to_count};
use crate::intern;
use crate::thunk::{EpAttrArg, EpParamArg, Layout, registered_thread_safe};
use crate::types::{
    DatAsynchErrorEventData, DatConnectionEventData, DatRmrBindCompletionEventData,
    DatSoftwareEventData, c_name, event_number,
};

impl Local for DatLmrTriplet {
    #[inline(always)]
    fn length(&self) -> u64 {
        self.segment_length
    }
    #[inline(always)]
    fn triplet(&self) -> impl Borrow<LmrTriplet> {
        local(self)
    }
}

impl Remote for DatRmrTriplet {
    #[inline(always)]
    fn length(&self) -> u64 {
        self.segment_length
    }
    #[inline(always)]
    fn triplet(&self) -> RmrTriplet {
        RmrTriplet {
            virtual_address: self.target_address,
            segment_length: u32::try_from(self.segment_length).unwrap_or(u32::MAX),
            rmr_context: self.rmr_context,
        }
    }
}

/// Converts a segment of less than 4 GiB to core's layout.
#[inline(always)]
fn local(c: &DatLmrTriplet) -> LmrTriplet {
    LmrTriplet {
        virtual_address: c.virtual_address,
        segment_length: c.segment_length as u32,
        lmr_context: c.lmr_context,
    }
}

/// Number of segments that are converted on the stack; more take the slow path.
const FEW_SEGMENTS: usize = 16;

type Room = [MaybeUninit<LmrTriplet>; FEW_SEGMENTS];

#[inline(always)]
const fn room() -> Room {
    [const { MaybeUninit::uninit() }; FEW_SEGMENTS]
}

/// Converts segments to core's layout in `room`. Returns `None` if there are too many, or one is of 4 GiB or more.
#[inline(always)]
fn narrowed<'a>(segments: &[DatLmrTriplet], room: &'a mut Room) -> Option<Several<'a>> {
    if segments.len() > FEW_SEGMENTS {
        return None;
    }
    let (mut length, mut bits) = (0u64, 0);
    // Unrolled by hand: a loop needs more registers, which would have to be saved.
    macro_rules! unrolled {
        ($($number:literal)*) => {
            'all: {
                $(
                    let Some(from) = segments.get($number) else {
                        break 'all;
                    };
                    length = length.wrapping_add(from.segment_length);
                    bits |= from.segment_length;
                    room[$number].write(local(from));
                )*
            }
        };
    }
    const { assert!(FEW_SEGMENTS == 16) };
    unrolled!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    // SAFETY: as many elements were written above as there are segments.
    let iov = unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), segments.len()) };
    (bits <= u32::MAX.into()).then_some(Several { iov, length })
}

/// Returns the `DAT_IA_ATTR` of an adapter.
pub(crate) fn ia_attr(attr: &AdapterAttr) -> DatIaAttr {
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
        max_lmr_block_size: attr.max_lmr_block_size,
        max_lmr_virtual_address: attr.max_lmr_virtual_address,
        max_pzs: to_count(attr.max_pzs),
        max_message_size: attr.max_message_size,
        max_rdma_size: attr.max_rdma_size,
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
        dapl_version_major: 1,
        dapl_version_minor: 2,
        lmr_mem_types_supported: ours::LMR_MEM_TYPES,
        iov_ownership_on_return: 0,
        dat_qos_supported: 0,
        completion_flags_supported: ours::COMPLETION_FLAGS,
        is_thread_safe: u32::from(registered_thread_safe(name, 1)),
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
        num_provider_specific_attr: attr.named.len() as i32,
        provider_specific_attr: intern::named(&attr.named),
    }
}

/// Returns the values of attributes that the consumer passes. A size of more than 32 bits becomes the largest of 32 bits.
fn ep_attr_in(c: &DatEpAttr) -> EpAttrArg {
    let narrow = |size: u64| size.min(u32::MAX.into());
    EpAttrArg {
        // 1.2 has reliable connections only; every other number is unknown to core.
        service_type: if c.service_type == 0 { 0 } else { u32::MAX },
        max_message_size: narrow(c.max_message_size),
        max_rdma_size: narrow(c.max_rdma_size),
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
        max_message_size: attr.max_message_size,
        max_rdma_size: attr.max_rdma_size,
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

/// Converts a `DAT_EP_PARAM_MASK` to 2.0's bits. 2.0 has a bit for `COMM` behind that of the state; the attributes' bits are equal.
///
/// # Errors
/// `DAT_INVALID_PARAMETER` (argument 2) for a bit that names no field.
pub(crate) fn ep_mask_in(mask: u64) -> Result<u64> {
    const ALL: u64 = 0x7fff_f7ff;
    const FIRST: u64 = 0x3;
    const BEHIND_STATE: u64 = 0x7fc;
    const ATTR: u64 = 0x7fff_f000;
    if mask & !ALL != 0 {
        return Err(Error::arg(2));
    }
    Ok(mask & (FIRST | ATTR) | (mask & BEHIND_STATE) << 1)
}

/// Writes an event into the consumer's structure.
pub(crate) struct Sink<'a, T: Transport> {
    /// Destination: valid for writes at any alignment, perhaps uninitialised.
    event: *mut DatEvent,
    evd: RawHandle,
    lives: PhantomData<&'a mut DatEvent>,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Sink<'_, T> {
    #[inline(always)]
    fn put(&mut self, event_number: u32, event_data: DatEventData) {
        let event = DatEvent {
            event_number,
            evd_handle: self.evd,
            event_data,
        };
        // SAFETY: valid for writes, see `Layout::sink`.
        unsafe { self.event.write_unaligned(event) };
    }
}

impl Layout for V1_2 {
    type Local = DatLmrTriplet;
    type Remote = DatRmrTriplet;
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
    fn with_few<R>(segments: &[DatLmrTriplet], f: impl FnOnce(Several<'_>) -> R) -> Option<R> {
        narrowed(segments, &mut room()).map(f)
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
        // 1.2 has no extensions: their completions are reported as others.
        let dto_completion_event_data = DatDtoCompletionEventData {
            ep_handle: dto.ep,
            user_cookie: dto.cookie,
            status: dto.status as u32,
            transfered_length: dto.length,
        };
        self.put(
            event_number::DTO_COMPLETION,
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
                ..
            } => {
                let request = T::arenas().cr.from_addr(cr);
                let scope = request.map_or(0, |cr| intern::scope_of(cr.ia()));
                let cr_arrival_event_data = DatCrArrivalEventData {
                    sp_handle: sp,
                    local_ia_address_ptr: intern::address(Some(local_address), scope),
                    conn_qual,
                    cr_handle: cr,
                };
                self.put(
                    event_number::CONNECTION_REQUEST,
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
            // 1.2 creates no datagram endpoints, so this does not occur.
            Event::Datagram { number, ep, .. } => {
                let connect_event_data = DatConnectionEventData {
                    ep_handle: ep,
                    private_data_size: 0,
                    private_data: std::ptr::null_mut(),
                };
                self.put(number as u32, DatEventData { connect_event_data });
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

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(count: usize, length: u64) -> Vec<DatLmrTriplet> {
        (0..count as u64)
            .map(|i| DatLmrTriplet {
                lmr_context: 7,
                pad: !0,
                virtual_address: 4096 * i,
                segment_length: length,
            })
            .collect()
    }

    #[test]
    fn segments_keep_their_order_and_are_refused_when_too_long_or_too_many() {
        for count in [0, 1, FEW_SEGMENTS] {
            let mut room = room();
            let all = segments(count, 9);
            let Several { iov, length } = narrowed(&all, &mut room).unwrap();
            assert_eq!((iov.len(), length), (count, 9 * count as u64));
            for (i, t) in iov.iter().enumerate() {
                let (at, length, key) = (t.virtual_address, t.segment_length, t.lmr_context);
                assert_eq!((at, length, key), (4096 * i as u64, 9, 7));
            }
        }
        let long = segments(2, 1 << 32);
        assert!(narrowed(&long, &mut room()).is_none());
        let many = segments(FEW_SEGMENTS + 1, 9);
        assert!(narrowed(&many, &mut room()).is_none());
    }

    #[test]
    fn each_mask_bit_selects_its_field() {
        // PZ, receive, request, connect EVD, SRQ: one bit further in 2.0.
        for (old, new) in [
            (0x1, 0x1),
            (0x2, 0x2),
            (0x4, 0x8),
            (0x40, 0x80),
            (0x400, 0x800),
            (0x1000, 0x1000),
            (0x4000_0000, 0x4000_0000),
            (0x7fff_f7ff, 0x7fff_fffb),
        ] {
            assert_eq!(ep_mask_in(old), Ok(new), "{old:#x}");
        }
        for unknown in [0x800, 0x8000_0000] {
            assert_eq!(ep_mask_in(unknown), Err(Error::arg(2)));
        }
    }
}
