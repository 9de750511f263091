//! PSP and RSP slots, which both versions share.

use dat_core::error::{Error, Result, Subtype};
use dat_core::head::raw;
use dat_core::sp::{Sp, SpKind};
use dat_core::transport::Transport;

use crate::boundary::{Version, guard, guard_allocating, put, require};
use crate::handle;
use crate::types::{DatHandle, DatPspParam, DatRspParam};

const PSP_PROVIDER_FLAG: u32 = 1;

/// Converts `DAT_PSP_FLAGS` at argument `number`. Returns whether the provider creates the endpoints.
fn provider_ep(flags: u32, number: u16) -> Result<bool> {
    if flags > PSP_PROVIDER_FLAG {
        Err(Error::arg(number))
    } else {
        Ok(flags == PSP_PROVIDER_FLAG)
    }
}

pub(crate) unsafe extern "C" fn psp_create<T: Transport, V: Version>(
    ia: DatHandle,
    conn_qual: u64,
    evd: DatHandle,
    flags: u32,
    psp: *mut DatHandle,
) -> u32 {
    guard_allocating::<V>(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        let evd = handle::evd(evd, Subtype::InvalidHandleEvdCr)?;
        let provider_ep = provider_ep(flags, 4)?;
        require(psp, 5)?;
        // SAFETY: NULL or valid by the slot's contract.
        unsafe {
            put(
                psp,
                5,
                raw(Sp::psp_create(ia, Some(conn_qual), evd, provider_ep)?),
            )
        }
    })
}

pub(crate) unsafe extern "C" fn psp_create_any<T: Transport, V: Version>(
    ia: DatHandle,
    conn_qual: *mut u64,
    evd: DatHandle,
    flags: u32,
    psp: *mut DatHandle,
) -> u32 {
    guard_allocating::<V>(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        require(conn_qual, 2)?;
        let evd = handle::evd(evd, Subtype::InvalidHandleEvdCr)?;
        let provider_ep = provider_ep(flags, 4)?;
        require(psp, 5)?;
        let made = Sp::psp_create(ia, None, evd, provider_ep)?;
        let qual = made.info()?.conn_qual;
        // SAFETY: NULL or valid by the slot's contract.
        unsafe {
            put(conn_qual, 2, qual)?;
            put(psp, 5, raw(made))
        }
    })
}

pub(crate) unsafe extern "C" fn psp_query<T: Transport, V: Version>(
    psp: DatHandle,
    _mask: u32,
    param: *mut DatPspParam,
) -> u32 {
    guard::<V>(|| {
        let psp = handle::psp::<T>(psp)?;
        require(param, 3)?;
        let info = psp.info()?;
        let SpKind::Public { provider_ep } = info.kind else {
            return Err(Error::handle(Subtype::InvalidHandlePsp));
        };
        let value = DatPspParam {
            ia_handle: raw(info.ia),
            conn_qual: info.conn_qual,
            evd_handle: raw(info.evd),
            psp_flags: u32::from(provider_ep),
        };
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(param, 3, value) }
    })
}

pub(crate) unsafe extern "C" fn psp_free<T: Transport, V: Version>(psp: DatHandle) -> u32 {
    guard::<V>(|| handle::psp::<T>(psp)?.free())
}

pub(crate) unsafe extern "C" fn rsp_create<T: Transport, V: Version>(
    ia: DatHandle,
    conn_qual: u64,
    ep: DatHandle,
    evd: DatHandle,
    rsp: *mut DatHandle,
) -> u32 {
    guard_allocating::<V>(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        let ep = handle::ep(ep, Subtype::InvalidHandleEp)?;
        let evd = handle::evd(evd, Subtype::InvalidHandleEvdCr)?;
        require(rsp, 5)?;
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(rsp, 5, raw(Sp::rsp_create(ia, conn_qual, ep, evd)?)) }
    })
}

pub(crate) unsafe extern "C" fn rsp_query<T: Transport, V: Version>(
    rsp: DatHandle,
    _mask: u32,
    param: *mut DatRspParam,
) -> u32 {
    guard::<V>(|| {
        let rsp = handle::rsp::<T>(rsp)?;
        require(param, 3)?;
        let info = rsp.info()?;
        let SpKind::Reserved(ep) = info.kind else {
            return Err(Error::handle(Subtype::InvalidHandleRsp));
        };
        let value = DatRspParam {
            ia_handle: raw(info.ia),
            conn_qual: info.conn_qual,
            evd_handle: raw(info.evd),
            ep_handle: raw(ep),
        };
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(param, 3, value) }
    })
}

pub(crate) unsafe extern "C" fn rsp_free<T: Transport, V: Version>(rsp: DatHandle) -> u32 {
    guard::<V>(|| handle::rsp::<T>(rsp)?.free())
}
