//! EP slots that both versions share.

use std::ffi::c_void;

use dat_core::ep::Ep;
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::transport::Transport;

use super::close_flags;
use crate::boundary::{Version, bytes, guard, guard_allocating, put, to_count, to_timeout};
use crate::handle;
use crate::sockaddr::read_canonical;
use crate::types::{
    DAT_VALUE_UNKNOWN, DatBoolean, DatCount, DatHandle, DatIaAddressPtr, DatTimeout,
};

/// Returns the endpoint of the EP argument.
#[inline(always)]
pub(crate) fn find<T: Transport>(ep: DatHandle) -> Result<&'static Ep<T>> {
    handle::ep(ep, Subtype::InvalidHandleEp)
}

#[allow(clippy::too_many_arguments, reason = "dat_ep_connect has as many")]
pub(crate) unsafe extern "C" fn ep_connect<T: Transport, V: Version>(
    ep: DatHandle,
    address: DatIaAddressPtr,
    conn_qual: u64,
    timeout: DatTimeout,
    size: DatCount,
    private_data: *const c_void,
    qos: u32,
    flags: u32,
) -> u32 {
    guard_allocating::<V>(|| {
        let ep = find::<T>(ep)?;
        if address.is_null() {
            return Err(Error::arg(2));
        }
        // SAFETY: NULL or valid by the slot's contract.
        let (remote, data) = unsafe {
            (
                read_canonical(address.cast()).map(|at| at.ip()),
                bytes(size, private_data, 5)?,
            )
        };
        let remote = remote.ok_or(Error::of(Kind::InvalidAddress))?;
        ep.connect(remote, conn_qual, to_timeout(timeout), data, qos, flags)
    })
}

pub(crate) unsafe extern "C" fn ep_dup_connect<T: Transport, V: Version>(
    ep: DatHandle,
    model: DatHandle,
    timeout: DatTimeout,
    size: DatCount,
    private_data: *const c_void,
    qos: u32,
) -> u32 {
    guard_allocating::<V>(|| {
        let (ep, model) = (find::<T>(ep)?, find::<T>(model)?);
        // SAFETY: NULL or valid by the slot's contract.
        let data = unsafe { bytes(size, private_data, 4)? };
        ep.dup_connect(model, to_timeout(timeout), data, qos)
    })
}

pub(crate) unsafe extern "C" fn ep_disconnect<T: Transport, V: Version>(
    ep: DatHandle,
    flags: u32,
) -> u32 {
    guard_allocating::<V>(|| find::<T>(ep)?.disconnect(close_flags(flags, 2)?))
}

pub(crate) unsafe extern "C" fn ep_get_status<T: Transport, V: Version>(
    ep: DatHandle,
    state: *mut u32,
    recv_idle: *mut DatBoolean,
    request_idle: *mut DatBoolean,
) -> u32 {
    guard::<V>(|| {
        let (now, recv, request) = find::<T>(ep)?.status();
        // SAFETY: each is NULL (not requested) or valid by the slot's contract.
        unsafe {
            if !state.is_null() {
                put(state, 2, now as u32)?;
            }
            if !recv_idle.is_null() {
                put(recv_idle, 3, DatBoolean::from(recv))?;
            }
            if !request_idle.is_null() {
                put(request_idle, 4, DatBoolean::from(request))?;
            }
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ep_free<T: Transport, V: Version>(ep: DatHandle) -> u32 {
    guard::<V>(|| find::<T>(ep)?.free())
}

pub(crate) unsafe extern "C" fn ep_reset<T: Transport, V: Version>(ep: DatHandle) -> u32 {
    guard_allocating::<V>(|| find::<T>(ep)?.reset())
}

pub(crate) unsafe extern "C" fn ep_recv_query<T: Transport, V: Version>(
    ep: DatHandle,
    allocated: *mut DatCount,
    span: *mut DatCount,
) -> u32 {
    guard::<V>(|| {
        let (posted, spanned) = find::<T>(ep)?.recv_query()?;
        let known = |buffers: u32| match buffers {
            u32::MAX => DAT_VALUE_UNKNOWN,
            n => to_count(n),
        };
        // SAFETY: each is NULL (not requested) or valid by the slot's contract.
        unsafe {
            if !allocated.is_null() {
                put(allocated, 2, known(posted))?;
            }
            if !span.is_null() {
                put(span, 3, known(spanned))?;
            }
        }
        Ok(())
    })
}

/// Converts a watermark argument. `DAT_WATERMARK_INFINITE` and every other negative number is no watermark.
fn watermark(value: DatCount) -> Option<u32> {
    u32::try_from(value).ok()
}

pub(crate) unsafe extern "C" fn ep_set_watermark<T: Transport, V: Version>(
    ep: DatHandle,
    soft: DatCount,
    hard: DatCount,
) -> u32 {
    guard::<V>(|| find::<T>(ep)?.set_watermark(watermark(soft), watermark(hard)))
}
