//! LMRs and RMRs in 2.0's layouts.

use dat_core::error::{Error, Result, Subtype};
use dat_core::flags::{MemPriv, MemType, VaType};
use dat_core::head::raw;
use dat_core::iov::LmrTriplet;
use dat_core::lmr::{Lmr, Source};
use dat_core::rmr::{LmrRange, Rmr};
use dat_core::transport::Transport;

use super::post::flags;
use super::{guard, making};
use crate::boundary::{need, put, structure};
use crate::handle;
use crate::segments::Synced;
use crate::types::{DatContext, DatHandle, DatRegionDescription};
use crate::v2_0::types::{DatLmrParam, DatRmrParam};

/// `DAT_MEM_PRIV_FLAGS` at argument `number`.
pub(crate) fn rights(bits: u32, number: u16) -> Result<MemPriv> {
    MemPriv::from_bits(bits).ok_or(Error::arg(number))
}

fn va_type(value: u32, number: u16) -> Result<VaType> {
    match value {
        0 => Ok(VaType::Va),
        1 => Ok(VaType::ZeroBased),
        _ => Err(Error::arg(number)),
    }
}

/// `DAT_MEM_TYPE` with its `DAT_REGION_DESCRIPTION`.
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

/// The outputs of dat_lmr_create, of which the consumer may leave out all but the handle.
pub(crate) struct LmrOut {
    pub(crate) lmr: *mut DatHandle,
    pub(crate) lmr_context: *mut u32,
    pub(crate) rmr_context: *mut u32,
    pub(crate) size: *mut u64,
    pub(crate) address: *mut u64,
}

impl LmrOut {
    /// Writes what `made` is.
    ///
    /// # Safety
    /// Every pointer is NULL or valid for a write.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was freed meanwhile.
    pub(crate) unsafe fn write<T: Transport>(&self, made: &'static Lmr<T>) -> Result<()> {
        let info = made.info()?;
        // SAFETY: NULL is left out, the rest is valid by the caller's promise.
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

#[allow(clippy::too_many_arguments, reason = "dat_lmr_create has as many")]
pub(crate) unsafe extern "C" fn lmr_create<T: Transport>(
    ia: DatHandle,
    mem_type: u32,
    region: DatRegionDescription,
    length: u64,
    pz: DatHandle,
    privileges: u32,
    va: u32,
    lmr: *mut DatHandle,
    lmr_context: *mut u32,
    rmr_context: *mut u32,
    size: *mut u64,
    address: *mut u64,
) -> u32 {
    making(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        // SAFETY: the cookie is NULL or valid by the slot's contract.
        let source = unsafe { source::<T>(mem_type, &region)? };
        let pz = handle::pz(pz, Subtype::InvalidHandlePz)?;
        let rights = rights(privileges, 6)?;
        let va = va_type(va, 7)?;
        need(lmr, 8)?;
        let made = Lmr::create(ia, source, length, pz, rights, va)?;
        let out = LmrOut {
            lmr,
            lmr_context,
            rmr_context,
            size,
            address,
        };
        // SAFETY: NULL or valid by the slot's contract; `lmr` is not NULL.
        unsafe { out.write(made) }
    })
}

pub(crate) unsafe extern "C" fn lmr_query<T: Transport>(
    lmr: DatHandle,
    _mask: u32,
    param: *mut DatLmrParam,
) -> u32 {
    guard(|| {
        let lmr = handle::lmr::<T>(lmr, Subtype::InvalidHandleLmr)?;
        need(param, 3)?;
        let info = lmr.info()?;
        let (mem_type, region) = match info.source {
            Source::Virtual(address) => (MemType::Virtual, address),
            Source::Lmr(below) => (MemType::Lmr, raw(below)),
            Source::Shared { address, .. } => (MemType::SharedVirtual, address),
        };
        let value = DatLmrParam {
            ia_handle: info.ia,
            mem_type: mem_type as u32,
            region_desc: DatRegionDescription {
                address: region,
                shared_memory_id: std::ptr::null(),
            },
            length: info.length,
            pz_handle: info.pz,
            mem_priv: info.rights.bits(),
            va_type: info.va_type as u32,
            lmr_context: info.lmr_context,
            rmr_context: info.rmr_context,
            registered_size: info.registered_size,
            registered_address: info.registered_address,
        };
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(param, 3, value) }
    })
}

pub(crate) unsafe extern "C" fn lmr_sync_rdma_read<T: Transport>(
    ia: DatHandle,
    iov: *const LmrTriplet,
    number: u64,
) -> u32 {
    guard(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        // SAFETY: NULL or valid by the slot's contract.
        Lmr::sync_read(ia, unsafe { Synced::new(iov, number)? })
    })
}

pub(crate) unsafe extern "C" fn lmr_sync_rdma_write<T: Transport>(
    ia: DatHandle,
    iov: *const LmrTriplet,
    number: u64,
) -> u32 {
    guard(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        // SAFETY: NULL or valid by the slot's contract.
        Lmr::sync_write(ia, unsafe { Synced::new(iov, number)? })
    })
}

#[allow(clippy::too_many_arguments, reason = "dat_rmr_bind has as many")]
pub(crate) unsafe extern "C" fn rmr_bind<T: Transport>(
    rmr: DatHandle,
    lmr: DatHandle,
    triplet: *const LmrTriplet,
    privileges: u32,
    va: u32,
    ep: DatHandle,
    cookie: DatContext,
    completion: u32,
    context: *mut u32,
) -> u32 {
    making(|| {
        let rmr: &Rmr<T> = handle::rmr(rmr, Subtype::InvalidHandleRmr)?;
        // SAFETY: NULL or valid by the slot's contract.
        let range = LmrRange::from(unsafe { structure(triplet, 3)? });
        let lmr = if range.length == 0 {
            None
        } else {
            Some(handle::lmr(lmr, Subtype::InvalidHandleLmr)?)
        };
        let rights = rights(privileges, 4)?;
        let va = va_type(va, 5)?;
        let ep = handle::ep(ep, Subtype::InvalidHandleEp)?;
        let flags = flags(completion, 8)?;
        need(context, 9)?;
        // SAFETY: NULL or valid by the slot's contract.
        unsafe {
            put(
                context,
                9,
                rmr.bind(lmr, range, rights, va, ep, cookie, flags)?,
            )
        }
    })
}

pub(crate) unsafe extern "C" fn rmr_create_for_ep<T: Transport>(
    pz: DatHandle,
    rmr: *mut DatHandle,
) -> u32 {
    making(|| {
        let pz = handle::pz::<T>(pz, Subtype::InvalidHandlePz)?;
        need(rmr, 2)?;
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(rmr, 2, raw(Rmr::create_for_ep(pz)?)) }
    })
}

pub(crate) unsafe extern "C" fn rmr_query<T: Transport>(
    rmr: DatHandle,
    _mask: u32,
    param: *mut DatRmrParam,
) -> u32 {
    guard(|| {
        let rmr = handle::rmr::<T>(rmr, Subtype::InvalidHandleRmr)?;
        need(param, 3)?;
        let info = rmr.info()?;
        let value = DatRmrParam {
            ia_handle: info.ia,
            pz_handle: info.pz,
            lmr_triplet: LmrTriplet {
                virtual_address: info.range.address,
                segment_length: info.range.length as u32,
                lmr_context: info.range.lmr_context,
            },
            mem_priv: info.rights.bits(),
            rmr_context: info.rmr_context,
            rmr_scope: info.scope as u32,
            va_type: info.va_type as u32,
        };
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(param, 3, value) }
    })
}
