//! PZ, LMR, RMR and SRQ slots that both versions share, and the arguments of dat_lmr_create.

use dat_core::attributes::SrqAttr;
use dat_core::error::{Error, Result, Subtype};
use dat_core::flags::MemPriv;
use dat_core::head::raw;
use dat_core::lmr::{Lmr, Source};
use dat_core::pz::Pz;
use dat_core::rmr::Rmr;
use dat_core::srq::Srq;
use dat_core::transport::Transport;

use super::layout::Layout;
use crate::boundary::{Version, count, guard, guard_allocating, put, require, structure, to_count};
use crate::handle;
use crate::segments::SyncSegments;
use crate::types::{
    DatCount, DatHandle, DatPzParam, DatRegionDescription, DatSrqAttr, DatSrqParam,
};

/// `DAT_SRQ_LW_DEFAULT`: no low watermark.
const NO_LOW_WATERMARK: DatCount = 0;

pub(crate) unsafe extern "C" fn pz_create<T: Transport, V: Version>(
    ia: DatHandle,
    pz: *mut DatHandle,
) -> u32 {
    guard_allocating::<V>(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        require(pz, 2)?;
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(pz, 2, raw(Pz::create(ia)?)) }
    })
}

pub(crate) unsafe extern "C" fn pz_query<T: Transport, V: Version>(
    pz: DatHandle,
    _mask: u32,
    param: *mut DatPzParam,
) -> u32 {
    guard::<V>(|| {
        let pz = handle::pz::<T>(pz, Subtype::InvalidHandlePz)?;
        // SAFETY: NULL or valid by the slot's contract.
        unsafe {
            put(
                param,
                3,
                DatPzParam {
                    ia_handle: raw(pz.ia()),
                },
            )
        }
    })
}

pub(crate) unsafe extern "C" fn pz_free<T: Transport, V: Version>(pz: DatHandle) -> u32 {
    guard::<V>(|| handle::pz::<T>(pz, Subtype::InvalidHandlePz)?.free())
}

/// Converts `DAT_MEM_PRIV_FLAGS` at argument `number`.
pub(crate) fn rights(bits: u32, number: u16) -> Result<MemPriv> {
    MemPriv::from_bits(bits).ok_or(Error::arg(number))
}

/// Converts `DAT_MEM_TYPE` and its `DAT_REGION_DESCRIPTION`.
///
/// # Safety
/// For `SHARED_VIRTUAL` the description's cookie pointer is NULL or valid.
///
/// # Errors
/// `DAT_INVALID_PARAMETER`, `DAT_INVALID_HANDLE`.
pub(crate) unsafe fn source<T: Transport>(
    mem_type: u32,
    region: &DatRegionDescription,
) -> Result<Source<T>> {
    Ok(match mem_type {
        0 => Source::Virtual(region.address),
        1 => Source::Lmr(handle::lmr(region.address, Subtype::InvalidHandleLmr)?),
        2 => {
            // SAFETY: NULL or valid by the caller's promise.
            let cookie = unsafe { structure(region.shared_memory_id, 3)? };
            Source::Shared {
                address: region.address,
                cookie: cookie.map(|b| b),
            }
        }
        _ => return Err(Error::arg(2)),
    })
}

/// The outputs of dat_lmr_create. All but the handle may be NULL.
pub(crate) struct LmrOut {
    pub(crate) lmr: *mut DatHandle,
    pub(crate) lmr_context: *mut u32,
    pub(crate) rmr_context: *mut u32,
    pub(crate) size: *mut u64,
    pub(crate) address: *mut u64,
}

impl LmrOut {
    /// Writes the handle of `made`, its contexts, and what was registered.
    ///
    /// # Safety
    /// Every pointer is NULL or valid for a write.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was freed in the meantime.
    pub(crate) unsafe fn write<T: Transport>(&self, made: &'static Lmr<T>) -> Result<()> {
        let info = made.info()?;
        // SAFETY: NULL is skipped, the rest is valid by the caller's promise.
        unsafe {
            self.lmr.write_unaligned(raw(made));
            for (to, value) in [
                (self.lmr_context, info.lmr_context),
                (self.rmr_context, info.rmr_context),
            ] {
                if !to.is_null() {
                    to.write_unaligned(value);
                }
            }
            for (to, value) in [
                (self.size, info.registered_size),
                (self.address, info.registered_address),
            ] {
                if !to.is_null() {
                    to.write_unaligned(value);
                }
            }
        }
        Ok(())
    }
}

pub(crate) unsafe extern "C" fn lmr_sync_rdma_read<T: Transport, V: Layout>(
    ia: DatHandle,
    iov: *const V::Local,
    number: u64,
) -> u32 {
    guard::<V>(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        // SAFETY: NULL or valid by the slot's contract.
        Lmr::sync_read(ia, unsafe { SyncSegments::new(iov, number)? })
    })
}

pub(crate) unsafe extern "C" fn lmr_sync_rdma_write<T: Transport, V: Layout>(
    ia: DatHandle,
    iov: *const V::Local,
    number: u64,
) -> u32 {
    guard::<V>(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        // SAFETY: NULL or valid by the slot's contract.
        Lmr::sync_write(ia, unsafe { SyncSegments::new(iov, number)? })
    })
}

pub(crate) unsafe extern "C" fn lmr_free<T: Transport, V: Version>(lmr: DatHandle) -> u32 {
    guard::<V>(|| handle::lmr::<T>(lmr, Subtype::InvalidHandleLmr)?.free())
}

pub(crate) unsafe extern "C" fn rmr_create<T: Transport, V: Version>(
    pz: DatHandle,
    rmr: *mut DatHandle,
) -> u32 {
    guard_allocating::<V>(|| {
        let pz = handle::pz::<T>(pz, Subtype::InvalidHandlePz)?;
        require(rmr, 2)?;
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(rmr, 2, raw(Rmr::create(pz)?)) }
    })
}

pub(crate) unsafe extern "C" fn rmr_free<T: Transport, V: Version>(rmr: DatHandle) -> u32 {
    guard::<V>(|| handle::rmr::<T>(rmr, Subtype::InvalidHandleRmr)?.free())
}

fn srq<T: Transport>(srq: DatHandle) -> Result<&'static Srq<T>> {
    handle::srq(srq, Subtype::InvalidHandleSrq)
}

pub(crate) unsafe extern "C" fn srq_create<T: Transport, V: Version>(
    ia: DatHandle,
    pz: DatHandle,
    attr: *mut DatSrqAttr,
    srq: *mut DatHandle,
) -> u32 {
    guard_allocating::<V>(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        let pz = handle::pz::<T>(pz, Subtype::InvalidHandlePz)?;
        // SAFETY: NULL or valid by the slot's contract.
        let given = unsafe { structure(attr.cast_const(), 3)? };
        require(srq, 4)?;
        let attr = SrqAttr {
            max_recv_dtos: count(given.max_recv_dtos, 3)?,
            max_recv_iov: count(given.max_recv_iov, 3)?,
            low_watermark: u32::try_from(given.low_watermark).ok().filter(|n| *n > 0),
        };
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(srq, 4, raw(Srq::create(ia, pz, &attr)?)) }
    })
}

pub(crate) unsafe extern "C" fn srq_free<T: Transport, V: Version>(handle: DatHandle) -> u32 {
    guard::<V>(|| srq::<T>(handle)?.free())
}

pub(crate) unsafe extern "C" fn srq_query<T: Transport, V: Version>(
    handle: DatHandle,
    _mask: u32,
    param: *mut DatSrqParam,
) -> u32 {
    guard::<V>(|| {
        let srq = srq::<T>(handle)?;
        require(param, 3)?;
        let info = srq.info()?;
        let value = DatSrqParam {
            ia_handle: raw(info.ia),
            srq_state: V::SRQ_OPERATIONAL,
            pz_handle: raw(info.pz),
            max_recv_dtos: to_count(info.attr.max_recv_dtos),
            max_recv_iov: to_count(info.attr.max_recv_iov),
            low_watermark: info.attr.low_watermark.map_or(NO_LOW_WATERMARK, to_count),
            available_dto_count: to_count(info.available),
            outstanding_dto_count: to_count(info.outstanding),
        };
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(param, 3, value) }
    })
}

pub(crate) unsafe extern "C" fn srq_resize<T: Transport, V: Version>(
    handle: DatHandle,
    max_recv_dtos: DatCount,
) -> u32 {
    guard_allocating::<V>(|| srq::<T>(handle)?.resize(count(max_recv_dtos, 2)?))
}

pub(crate) unsafe extern "C" fn srq_set_lw<T: Transport, V: Version>(
    handle: DatHandle,
    low_watermark: DatCount,
) -> u32 {
    guard::<V>(|| srq::<T>(handle)?.set_low_watermark(count(low_watermark, 2)?))
}
