//! LMR and RMR slots of 1.2, which has no VA type and names the LMR of a bind by its context.

use dat_core::error::{Error, Subtype};
use dat_core::flags::{MemType, VaType};
use dat_core::head::raw;
use dat_core::lmr::{Lmr, Source};
use dat_core::rmr::{LmrRange, Rmr};
use dat_core::transport::Transport;

use super::{guard, guard_allocating};
use crate::boundary::{put, require, structure};
use crate::handle;
use crate::thunk::{LmrOut, flags, rights, source};
use crate::types::{DatContext, DatHandle, DatRegionDescription};
use crate::v1_2::types::{DatLmrParam, DatLmrTriplet, DatRmrParam};

#[allow(clippy::too_many_arguments, reason = "dat_lmr_create has as many")]
pub(crate) unsafe extern "C" fn lmr_create<T: Transport>(
    ia: DatHandle,
    mem_type: u32,
    region: DatRegionDescription,
    length: u64,
    pz: DatHandle,
    privileges: u32,
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
        require(lmr, 7)?;
        let out = LmrOut {
            lmr,
            lmr_context,
            rmr_context,
            size,
            address,
        };
        let made = Lmr::create(ia, source, length, pz, rights, VaType::Va)?;
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
        let (mem_type, address) = match info.source {
            Source::Virtual(address) => (MemType::Virtual, address),
            Source::Lmr(below) => (MemType::Lmr, raw(below)),
            Source::Shared { address, .. } => (MemType::SharedVirtual, address),
        };
        let value = DatLmrParam {
            ia_handle: info.ia,
            mem_type: mem_type as u32,
            region_desc: DatRegionDescription {
                address,
                shared_memory_id: std::ptr::null(),
            },
            length: info.length,
            pz_handle: info.pz,
            mem_priv: info.rights.bits(),
            lmr_context: info.lmr_context,
            rmr_context: info.rmr_context,
            registered_size: info.registered_size,
            registered_address: info.registered_address,
        };
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(param, 3, value) }
    })
}

/// Renames an argument of dat_rmr_bind, whose number core takes from 2.0. 1.2 has neither the LMR nor the type of the addresses.
fn renumbered(error: Error) -> Error {
    let same = [(3, 2), (4, 3), (8, 6)];
    let found = same.into_iter().find(|(new, _)| error == Error::arg(*new));
    found.map_or(error, |(_, old)| Error::arg(old))
}

#[allow(clippy::too_many_arguments, reason = "dat_rmr_bind has as many")]
pub(crate) unsafe extern "C" fn rmr_bind<T: Transport>(
    rmr: DatHandle,
    triplet: *const DatLmrTriplet,
    privileges: u32,
    ep: DatHandle,
    cookie: DatContext,
    completion: u32,
    context: *mut u32,
) -> u32 {
    guard_allocating(|| {
        let rmr: &Rmr<T> = handle::rmr(rmr, Subtype::InvalidHandleRmr)?;
        // SAFETY: NULL or valid by the slot's contract.
        let triplet = unsafe { structure(triplet, 2)? };
        let range = LmrRange {
            lmr_context: triplet.lmr_context,
            address: triplet.virtual_address,
            length: triplet.segment_length,
        };
        let rights = rights(privileges, 3)?;
        let ep = handle::ep(ep, Subtype::InvalidHandleEp)?;
        let flags = flags(completion, 6)?;
        require(context, 7)?;
        let made = rmr
            .bind(None, range, rights, VaType::Va, ep, cookie, flags)
            .map_err(renumbered)?;
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(context, 7, made) }
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
            lmr_triplet: DatLmrTriplet {
                lmr_context: info.range.lmr_context,
                pad: 0,
                virtual_address: info.range.address,
                segment_length: info.range.length,
            },
            mem_priv: info.rights.bits(),
            rmr_context: info.rmr_context,
        };
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(param, 3, value) }
    })
}
