//! Creating, querying and modifying endpoints.

use dat_core::ep::{Ep, EpChange, EpParts};
use dat_core::error::{Error, Result, Subtype};
use dat_core::flags::CompletionFlags;
use dat_core::head::raw;
use dat_core::transport::Transport;

use super::making;
use crate::boundary::{count, need, put, structure};
use crate::handle;
use crate::intern;
use crate::thunk::find;
use crate::types::DatHandle;
use crate::v2_0::convert::{ep_attr_in, ep_attr_out};
use crate::v2_0::types::{DatComm, DatEpAttr, DatEpParam};

/// The objects that dat_ep_create joins.
///
/// # Errors
/// `DAT_INVALID_HANDLE` with the part's subtype.
pub(crate) fn parts<T: Transport>(
    pz: DatHandle,
    recv: DatHandle,
    request: DatHandle,
    connect: DatHandle,
    srq: DatHandle,
) -> Result<EpParts<T>> {
    Ok(EpParts {
        pz: handle::optional(pz, |h| handle::pz(h, Subtype::InvalidHandlePz))?,
        recv_evd: handle::optional(recv, |h| handle::evd(h, Subtype::InvalidHandleEvdRecv))?,
        request_evd: handle::optional(request, |h| {
            handle::evd(h, Subtype::InvalidHandleEvdRequest)
        })?,
        connect_evd: handle::optional(connect, |h| handle::evd(h, Subtype::InvalidHandleEvdConn))?,
        srq: handle::optional(srq, |h| handle::srq(h, Subtype::InvalidHandleSrq))?,
    })
}

/// dat_ep_create with the arguments found: attributes are argument `attr_number`, the output follows.
///
/// # Safety
/// `ep` is NULL or valid for a write.
///
/// # Errors
/// `DAT_INVALID_HANDLE`, `DAT_INVALID_PARAMETER`, and as [`Ep::create`].
pub(crate) unsafe fn ep_made<T: Transport>(
    ia: DatHandle,
    parts: Result<EpParts<T>>,
    attr: Option<&DatEpAttr>,
    attr_number: u16,
    ep: *mut DatHandle,
) -> Result<()> {
    let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
    let parts = parts?;
    let attr = attr.map(|a| ep_attr_in(a, attr_number)).transpose()?;
    need(ep, attr_number + 1)?;
    // SAFETY: NULL or valid by the caller's promise.
    unsafe {
        put(
            ep,
            attr_number + 1,
            raw(Ep::create(ia, parts, attr.as_ref())?),
        )
    }
}

/// The attributes of argument `number`; `None` for NULL.
///
/// # Safety
/// `attr` is NULL or valid.
unsafe fn attributes(attr: *const DatEpAttr, number: u16) -> Result<Option<DatEpAttr>> {
    if attr.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, so valid by the caller's promise.
    unsafe { structure(attr, number) }.map(Some)
}

pub(crate) unsafe extern "C" fn ep_create<T: Transport>(
    ia: DatHandle,
    pz: DatHandle,
    recv: DatHandle,
    request: DatHandle,
    connect: DatHandle,
    attr: *const DatEpAttr,
    ep: *mut DatHandle,
) -> u32 {
    making(|| {
        let parts = parts(pz, recv, request, connect, 0);
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { ep_made::<T>(ia, parts, attributes(attr, 6)?.as_ref(), 6, ep) }
    })
}

#[allow(
    clippy::too_many_arguments,
    reason = "dat_ep_create_with_srq has as many"
)]
pub(crate) unsafe extern "C" fn ep_create_with_srq<T: Transport>(
    ia: DatHandle,
    pz: DatHandle,
    recv: DatHandle,
    request: DatHandle,
    connect: DatHandle,
    srq: DatHandle,
    attr: *const DatEpAttr,
    ep: *mut DatHandle,
) -> u32 {
    making(|| {
        handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        handle::srq::<T>(srq, Subtype::InvalidHandleSrq)?;
        let parts = parts(pz, recv, request, connect, srq);
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { ep_made::<T>(ia, parts, attributes(attr, 7)?.as_ref(), 7, ep) }
    })
}

pub(crate) unsafe extern "C" fn ep_query<T: Transport>(
    ep: DatHandle,
    _mask: u64,
    param: *mut DatEpParam,
) -> u32 {
    making(|| {
        let ep = find::<T>(ep)?;
        need(param, 3)?;
        let info = ep.info()?;
        let value = DatEpParam {
            ia_handle: raw(info.ia),
            ep_state: info.state as u32,
            comm: DatComm {
                domain: 0,
                r#type: 0,
                protocol: 0,
            },
            local_ia_address_ptr: intern::address(Some(info.local_address), 0),
            local_port_qual: info.local_port,
            remote_ia_address_ptr: intern::address(info.remote_address, 0),
            remote_port_qual: info.remote_port,
            pz_handle: info.pz.map_or(0, raw),
            recv_evd_handle: info.recv_evd.map_or(0, raw),
            request_evd_handle: info.request_evd.map_or(0, raw),
            connect_evd_handle: info.connect_evd.map_or(0, raw),
            srq_handle: info.srq.map_or(0, raw),
            ep_attr: ep_attr_out(&info.attr),
        };
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(param, 3, value) }
    })
}

/// Bits of `DAT_EP_PARAM_MASK` (2.0): the fields in the order of the structure.
mod field {
    pub(super) const PZ: u64 = 0x080;
    pub(super) const RECV_EVD: u64 = 0x100;
    pub(super) const REQUEST_EVD: u64 = 0x200;
    pub(super) const CONNECT_EVD: u64 = 0x400;
    pub(super) const SRQ: u64 = 0x800;
    pub(super) const READ_ONLY: u64 = 0x07f;
    pub(super) const SERVICE_TYPE: u64 = 0x1000;
    pub(super) const MAX_MESSAGE_SIZE: u64 = 0x2000;
    pub(super) const MAX_RDMA_SIZE: u64 = 0x4000;
    pub(super) const QOS: u64 = 0x8000;
    pub(super) const RECV_FLAGS: u64 = 0x1_0000;
    pub(super) const REQUEST_FLAGS: u64 = 0x2_0000;
    pub(super) const MAX_RECV_DTOS: u64 = 0x4_0000;
    pub(super) const MAX_REQUEST_DTOS: u64 = 0x8_0000;
    pub(super) const MAX_RECV_IOV: u64 = 0x10_0000;
    pub(super) const MAX_REQUEST_IOV: u64 = 0x20_0000;
    pub(super) const MAX_READ_IN: u64 = 0x40_0000;
    pub(super) const MAX_READ_OUT: u64 = 0x80_0000;
    pub(super) const SRQ_SOFT_HW: u64 = 0x100_0000;
    pub(super) const MAX_READ_IOV: u64 = 0x200_0000;
    pub(super) const MAX_WRITE_IOV: u64 = 0x400_0000;
    pub(super) const KNOWN: u64 = 0x7fff_ffff;
}

pub(crate) unsafe extern "C" fn ep_modify<T: Transport>(
    ep: DatHandle,
    mask: u64,
    param: *const DatEpParam,
) -> u32 {
    making(|| {
        let ep = find::<T>(ep)?;
        // SAFETY: NULL or valid by the slot's contract.
        let param = unsafe { structure(param, 3)? };
        ep.modify(&ep_change(mask, &param)?)
    })
}

/// What dat_ep_modify is to change.
///
/// # Errors
/// `DAT_INVALID_PARAMETER` (argument 2) for fields that cannot be changed, (argument 3) for values that
/// cannot be; `DAT_INVALID_HANDLE`.
pub(crate) fn ep_change<T: Transport>(mask: u64, param: &DatEpParam) -> Result<EpChange<T>> {
    if mask & !field::KNOWN != 0 || mask & field::READ_ONLY != 0 {
        return Err(Error::arg(2));
    }
    let attr = &param.ep_attr;
    let has = |bit: u64| mask & bit != 0;
    let number = |bit, value| {
        if has(bit) {
            count(value, 3).map(Some)
        } else {
            Ok(None)
        }
    };
    let flags = |bit, bits| {
        if has(bit) {
            CompletionFlags::from_bits(bits)
                .map(Some)
                .ok_or(Error::arg(3))
        } else {
            Ok(None)
        }
    };
    let evd = |bit, handle, wrong| {
        if has(bit) {
            handle::optional(handle, |h| handle::evd(h, wrong)).map(Some)
        } else {
            Ok(None)
        }
    };
    Ok(EpChange {
        pz: if has(field::PZ) {
            Some(handle::optional(param.pz_handle, |h| {
                handle::pz(h, Subtype::InvalidHandlePz)
            })?)
        } else {
            None
        },
        recv_evd: evd(
            field::RECV_EVD,
            param.recv_evd_handle,
            Subtype::InvalidHandleEvdRecv,
        )?,
        request_evd: evd(
            field::REQUEST_EVD,
            param.request_evd_handle,
            Subtype::InvalidHandleEvdRequest,
        )?,
        connect_evd: evd(
            field::CONNECT_EVD,
            param.connect_evd_handle,
            Subtype::InvalidHandleEvdConn,
        )?,
        srq: if has(field::SRQ) {
            Some(handle::optional(param.srq_handle, |h| {
                handle::srq(h, Subtype::InvalidHandleSrq)
            })?)
        } else {
            None
        },
        service_type: has(field::SERVICE_TYPE).then_some(attr.service_type),
        max_message_size: has(field::MAX_MESSAGE_SIZE).then_some(attr.max_message_size.into()),
        max_rdma_size: has(field::MAX_RDMA_SIZE).then_some(attr.max_rdma_size.into()),
        qos: has(field::QOS).then_some(attr.qos),
        recv_completion_flags: flags(field::RECV_FLAGS, attr.recv_completion_flags)?,
        request_completion_flags: flags(field::REQUEST_FLAGS, attr.request_completion_flags)?,
        max_recv_dtos: number(field::MAX_RECV_DTOS, attr.max_recv_dtos)?,
        max_request_dtos: number(field::MAX_REQUEST_DTOS, attr.max_request_dtos)?,
        max_recv_iov: number(field::MAX_RECV_IOV, attr.max_recv_iov)?,
        max_request_iov: number(field::MAX_REQUEST_IOV, attr.max_request_iov)?,
        max_rdma_read_in: number(field::MAX_READ_IN, attr.max_rdma_read_in)?,
        max_rdma_read_out: number(field::MAX_READ_OUT, attr.max_rdma_read_out)?,
        srq_soft_hw: has(field::SRQ_SOFT_HW).then_some(attr.srq_soft_hw),
        max_rdma_read_iov: number(field::MAX_READ_IOV, attr.max_rdma_read_iov)?,
        max_rdma_write_iov: number(field::MAX_WRITE_IOV, attr.max_rdma_write_iov)?,
    })
}
