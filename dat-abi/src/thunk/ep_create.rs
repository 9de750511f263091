//! Creating endpoints.

use dat_core::ep::{Ep, EpParts};
use dat_core::error::{Result, Subtype};
use dat_core::head::raw;
use dat_core::transport::Transport;

use super::layout::Layout;
use crate::boundary::{guard_allocating, put, require, structure};
use crate::handle;
use crate::types::DatHandle;

/// Finds the objects that a new endpoint uses; each may be `DAT_HANDLE_NULL`.
///
/// # Errors
/// `DAT_INVALID_HANDLE` with the subtype of the argument.
fn parts<T: Transport>(
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

/// Creates an endpoint: the attributes are argument `attr_number`, the output follows.
///
/// # Safety
/// `attr` is NULL or valid for reads, `ep` is NULL or valid for a write.
///
/// # Errors
/// `DAT_INVALID_HANDLE`, `DAT_INVALID_PARAMETER`, and the errors of [`Ep::create`].
unsafe fn create<T: Transport, V: Layout>(
    ia: DatHandle,
    parts: Result<EpParts<T>>,
    attr: *const V::EpAttr,
    attr_number: u16,
    ep: *mut DatHandle,
) -> Result<()> {
    let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
    let parts = parts?;
    let attr = if attr.is_null() {
        None
    } else {
        // SAFETY: not NULL, so valid by the caller's promise.
        let given = unsafe { structure(attr, attr_number)? };
        Some(V::ep_attr(&given).checked(attr_number)?)
    };
    require(ep, attr_number + 1)?;
    let made = Ep::create(ia, parts, attr.as_ref())?;
    // SAFETY: not NULL, so valid by the caller's promise.
    unsafe { put(ep, attr_number + 1, raw(made)) }
}

pub(crate) unsafe extern "C" fn ep_create<T: Transport, V: Layout>(
    ia: DatHandle,
    pz: DatHandle,
    recv: DatHandle,
    request: DatHandle,
    connect: DatHandle,
    attr: *const V::EpAttr,
    ep: *mut DatHandle,
) -> u32 {
    guard_allocating::<V>(|| {
        let parts = parts(pz, recv, request, connect, 0);
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { create::<T, V>(ia, parts, attr, 6, ep) }
    })
}

#[allow(
    clippy::too_many_arguments,
    reason = "dat_ep_create_with_srq has as many"
)]
pub(crate) unsafe extern "C" fn ep_create_with_srq<T: Transport, V: Layout>(
    ia: DatHandle,
    pz: DatHandle,
    recv: DatHandle,
    request: DatHandle,
    connect: DatHandle,
    srq: DatHandle,
    attr: *const V::EpAttr,
    ep: *mut DatHandle,
) -> u32 {
    guard_allocating::<V>(|| {
        handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        handle::srq::<T>(srq, Subtype::InvalidHandleSrq)?;
        let parts = parts(pz, recv, request, connect, srq);
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { create::<T, V>(ia, parts, attr, 7, ep) }
    })
}
