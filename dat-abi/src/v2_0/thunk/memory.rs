//! LMR and RMR slots of 2.0.

use dat_core::error::{Error, Result, Subtype};
use dat_core::flags::{MemType, VaType};
use dat_core::head::raw;
use dat_core::iov::LmrTriplet;
use dat_core::lmr::{Lmr, Source};
use dat_core::rmr::{LmrRange, Rmr};
use dat_core::transport::Transport;

use super::{guard, guard_allocating};
use crate::boundary::{put, require, structure};
use crate::handle;
use crate::thunk::{LmrOut, flags, rights, source};
use crate::types::{DatContext, DatHandle, DatRegionDescription};
use crate::v2_0::types::{DatLmrParam, DatRmrParam};

fn va_type(value: u32, number: u16) -> Result<VaType> {
    match value {
        0 => Ok(VaType::Va),
        1 => Ok(VaType::ZeroBased),
        _ => Err(Error::arg(number)),
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
    guard_allocating(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        // SAFETY: the cookie is NULL or valid by the slot's contract.
        let source = unsafe { source::<T>(mem_type, &region)? };
        let pz = handle::pz(pz, Subtype::InvalidHandlePz)?;
        let rights = rights(privileges, 6)?;
        let va = va_type(va, 7)?;
        require(lmr, 8)?;
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
        require(param, 3)?;
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
    guard_allocating(|| {
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
        require(context, 9)?;
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
    guard_allocating(|| {
        let pz = handle::pz::<T>(pz, Subtype::InvalidHandlePz)?;
        require(rmr, 2)?;
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
        require(param, 3)?;
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
