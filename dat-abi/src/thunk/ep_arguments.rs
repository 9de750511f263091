//! Attributes and parameters of endpoints as a consumer passes them: one form for both versions' structures.

use dat_core::attributes::EpAttr;
use dat_core::ep::EpChange;
use dat_core::error::{Error, Result, Subtype};
use dat_core::flags::CompletionFlags;
use dat_core::transport::Transport;

use crate::boundary::count;
use crate::handle;
use crate::types::{DatCount, DatHandle};

/// The values of a `DAT_EP_ATTR`, unchecked.
#[derive(Clone, Copy)]
pub(crate) struct EpAttrArg {
    pub(crate) service_type: u32,
    pub(crate) max_message_size: u64,
    pub(crate) max_rdma_size: u64,
    pub(crate) qos: u32,
    pub(crate) recv_completion_flags: u32,
    pub(crate) request_completion_flags: u32,
    pub(crate) max_recv_dtos: DatCount,
    pub(crate) max_request_dtos: DatCount,
    pub(crate) max_recv_iov: DatCount,
    pub(crate) max_request_iov: DatCount,
    pub(crate) max_rdma_read_in: DatCount,
    pub(crate) max_rdma_read_out: DatCount,
    pub(crate) srq_soft_hw: DatCount,
    pub(crate) max_rdma_read_iov: DatCount,
    pub(crate) max_rdma_write_iov: DatCount,
}

impl EpAttrArg {
    /// Checks the attributes of argument `number`.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` for negative counts and unknown flags.
    pub(crate) fn checked(&self, number: u16) -> Result<EpAttr> {
        let flags = |bits| CompletionFlags::from_bits(bits).ok_or(Error::arg(number));
        Ok(EpAttr {
            service_type: self.service_type,
            max_message_size: self.max_message_size,
            max_rdma_size: self.max_rdma_size,
            qos: self.qos,
            recv_completion_flags: flags(self.recv_completion_flags)?,
            request_completion_flags: flags(self.request_completion_flags)?,
            max_recv_dtos: count(self.max_recv_dtos, number)?,
            max_request_dtos: count(self.max_request_dtos, number)?,
            max_recv_iov: count(self.max_recv_iov, number)?,
            max_request_iov: count(self.max_request_iov, number)?,
            max_rdma_read_in: count(self.max_rdma_read_in, number)?,
            max_rdma_read_out: count(self.max_rdma_read_out, number)?,
            srq_soft_hw: self.srq_soft_hw,
            max_rdma_read_iov: count(self.max_rdma_read_iov, number)?,
            max_rdma_write_iov: count(self.max_rdma_write_iov, number)?,
        })
    }
}

/// The fields of a `DAT_EP_PARAM` that dat_ep_modify may change, unchecked.
pub(crate) struct EpParamArg {
    pub(crate) pz: DatHandle,
    pub(crate) recv_evd: DatHandle,
    pub(crate) request_evd: DatHandle,
    pub(crate) connect_evd: DatHandle,
    pub(crate) srq: DatHandle,
    pub(crate) attr: EpAttrArg,
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

impl EpParamArg {
    /// Returns the changes that `mask` selects, in the bits of 2.0's `DAT_EP_PARAM_MASK` (dat_ep_modify).
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 2) for fields that cannot be changed, (argument 3) for values that a field cannot
    /// have; `DAT_INVALID_HANDLE`.
    pub(crate) fn change<T: Transport>(&self, mask: u64) -> Result<EpChange<T>> {
        if mask & !field::KNOWN != 0 || mask & field::READ_ONLY != 0 {
            return Err(Error::arg(2));
        }
        let attr = &self.attr;
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
                Some(handle::optional(self.pz, |h| {
                    handle::pz(h, Subtype::InvalidHandlePz)
                })?)
            } else {
                None
            },
            recv_evd: evd(
                field::RECV_EVD,
                self.recv_evd,
                Subtype::InvalidHandleEvdRecv,
            )?,
            request_evd: evd(
                field::REQUEST_EVD,
                self.request_evd,
                Subtype::InvalidHandleEvdRequest,
            )?,
            connect_evd: evd(
                field::CONNECT_EVD,
                self.connect_evd,
                Subtype::InvalidHandleEvdConn,
            )?,
            srq: if has(field::SRQ) {
                Some(handle::optional(self.srq, |h| {
                    handle::srq(h, Subtype::InvalidHandleSrq)
                })?)
            } else {
                None
            },
            service_type: has(field::SERVICE_TYPE).then_some(attr.service_type),
            max_message_size: has(field::MAX_MESSAGE_SIZE).then_some(attr.max_message_size),
            max_rdma_size: has(field::MAX_RDMA_SIZE).then_some(attr.max_rdma_size),
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
}
