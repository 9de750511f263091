//! dat_ia_query and dat_cr_reject of 2.0.

use std::ffi::c_void;

use dat_core::error::Subtype;
use dat_core::head::raw;
use dat_core::transport::Transport;

use super::guard_allocating;
use crate::boundary::{bytes, put};
use crate::handle;
use crate::types::{DAT_EVD_OUT_OF_SCOPE, DatCount, DatHandle};
use crate::v2_0::convert::{ia_attr, provider_attr};
use crate::v2_0::types::{DatIaAttr, DatProviderAttr};

pub(crate) unsafe extern "C" fn ia_query<T: Transport>(
    ia: DatHandle,
    async_evd: *mut DatHandle,
    ia_mask: u64,
    attr: *mut DatIaAttr,
    provider_mask: u64,
    provider: *mut DatProviderAttr,
) -> u32 {
    guard_allocating(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        let attributes = ia.attributes()?;
        // SAFETY: each is NULL or valid by the slot's contract. A structure is filled completely or not at all.
        unsafe {
            if !async_evd.is_null() {
                put(
                    async_evd,
                    2,
                    ia.async_evd().map_or(DAT_EVD_OUT_OF_SCOPE, raw),
                )?;
            }
            if ia_mask != 0 {
                put(attr, 4, ia_attr(&attributes))?;
            }
            if provider_mask != 0 {
                put(provider, 6, provider_attr(&ia.name(), &attributes))?;
            }
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn cr_reject<T: Transport>(
    cr: DatHandle,
    size: DatCount,
    private_data: *const c_void,
) -> u32 {
    guard_allocating(|| {
        let cr = handle::cr::<T>(cr, Subtype::InvalidHandleCr)?;
        // SAFETY: NULL or valid by the slot's contract.
        cr.reject(unsafe { bytes(size, private_data, 2)? })
    })
}
