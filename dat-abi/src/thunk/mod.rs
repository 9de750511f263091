//! Thunks that both versions share: functions of handles, counts and flags, of structures with one layout, or of structures whose
//! layout the version says ([`Layout`]).
//!
//! Every thunk is `unsafe extern "C"` with the contract of its manual page: pointers are NULL or valid. Handles may be any numbers.

mod cno;
mod ep;
mod ep_arguments;
mod ep_create;
mod evd;
mod event;
mod layout;
mod memory;
mod open;
mod post;
mod sp;

pub(crate) use cno::*;
pub(crate) use ep::*;
pub(crate) use ep_arguments::{EpAttrArg, EpParamArg};
pub(crate) use ep_create::*;
pub(crate) use evd::*;
pub(crate) use event::*;
pub(crate) use layout::Layout;
pub(crate) use memory::*;
pub(crate) use open::*;
pub(crate) use post::*;
pub(crate) use sp::*;

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use dat_core::error::{Error, Result, Subtype};
use dat_core::flags::Close;
use dat_core::transport::Transport;

use crate::boundary::{Version, guard, guard_allocating, put, require};
use crate::handle;
use crate::types::{DatContext, DatHandle};

/// Converts `DAT_CLOSE_FLAGS` at argument `number`.
pub(crate) fn close_flags(value: u32, number: u16) -> Result<Close> {
    match value {
        0 => Ok(Close::Abrupt),
        1 => Ok(Close::Graceful),
        _ => Err(Error::arg(number)),
    }
}

pub(crate) unsafe extern "C" fn ia_close<T: Transport, V: Version>(
    ia: DatHandle,
    flags: u32,
) -> u32 {
    guard::<V>(|| handle::ia::<T>(ia, Subtype::InvalidHandleIa)?.close(close_flags(flags, 2)?))
}

pub(crate) unsafe extern "C" fn set_consumer_context<T: Transport, V: Version>(
    any: DatHandle,
    context: DatContext,
) -> u32 {
    guard::<V>(|| {
        handle::any::<T>(any)?.1.store(context, Ordering::Release);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn get_consumer_context<T: Transport, V: Version>(
    any: DatHandle,
    context: *mut DatContext,
) -> u32 {
    guard::<V>(|| {
        let value = handle::any::<T>(any)?.1.load(Ordering::Acquire);
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(context, 2, value) }
    })
}

pub(crate) unsafe extern "C" fn get_handle_type<T: Transport, V: Version>(
    any: DatHandle,
    kind: *mut u32,
) -> u32 {
    guard::<V>(|| {
        let value = handle::any::<T>(any)?.0;
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(kind, 2, value) }
    })
}

pub(crate) unsafe extern "C" fn cr_accept<T: Transport, V: Version>(
    cr: DatHandle,
    ep: DatHandle,
    size: i32,
    private_data: *const c_void,
) -> u32 {
    guard_allocating::<V>(|| {
        let cr = handle::cr::<T>(cr, Subtype::InvalidHandleCr)?;
        let ep = handle::optional(ep, |h| handle::ep(h, Subtype::InvalidHandleEp))?;
        // SAFETY: NULL or valid by the slot's contract.
        cr.accept(ep, unsafe {
            crate::boundary::bytes(size, private_data, 3)?
        })
    })
}

pub(crate) unsafe extern "C" fn cr_handoff<T: Transport, V: Version>(
    cr: DatHandle,
    conn_qual: u64,
) -> u32 {
    guard_allocating::<V>(|| handle::cr::<T>(cr, Subtype::InvalidHandleCr)?.handoff(conn_qual))
}

pub(crate) unsafe extern "C" fn cr_query<T: Transport, V: Version>(
    cr: DatHandle,
    _mask: u32,
    param: *mut crate::types::DatCrParam,
) -> u32 {
    guard_allocating::<V>(|| {
        let cr = handle::cr::<T>(cr, Subtype::InvalidHandleCr)?;
        require(param, 3)?;
        let info = cr.info()?;
        let scope = crate::intern::scope_of(cr.ia());
        let value = crate::types::DatCrParam {
            remote_ia_address_ptr: crate::intern::address(Some(info.remote.ip()), scope),
            remote_port_qual: info.remote.port().into(),
            private_data_size: cr.private_data().len() as i32,
            private_data: cr.private_data().address().cast(),
            local_ep_handle: info.local_ep.map_or(0, dat_core::head::raw),
        };
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(param, 3, value) }
    })
}
