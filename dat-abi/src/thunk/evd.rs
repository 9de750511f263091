//! EVD slots that both versions share, except those that take events.

use dat_core::error::{Error, Result, Subtype};
use dat_core::evd::Evd;
use dat_core::flags::EvdFlags;
use dat_core::head::raw;
use dat_core::transport::Transport;

use crate::boundary::{Version, count, guard, guard_allocating, put, require, to_count};
use crate::handle;
use crate::types::{DatCount, DatEvdParam, DatHandle};

/// Returns the EVD of the first argument. The specification has no subtype for "an EVD"; like DAPL this uses the subtype of the
/// argument's number.
fn find<T: Transport>(evd: DatHandle) -> Result<&'static Evd<T>> {
    handle::evd(evd, Subtype::InvalidHandle1)
}

fn flags(value: u32, number: u16) -> Result<EvdFlags> {
    let flags = EvdFlags::from_bits(value).ok_or(Error::arg(number))?;
    if flags.is_empty() {
        Err(Error::arg(number))
    } else {
        Ok(flags)
    }
}

pub(crate) unsafe extern "C" fn evd_create<T: Transport, V: Version>(
    ia: DatHandle,
    qlen: DatCount,
    cno: DatHandle,
    evd_flags: u32,
    evd: *mut DatHandle,
) -> u32 {
    guard_allocating::<V>(|| {
        let ia = handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        let qlen = count(qlen, 2)?;
        let cno = handle::optional(cno, |h| handle::cno(h, Subtype::InvalidHandleCno))?;
        let flags = flags(evd_flags, 4)?;
        require(evd, 5)?;
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(evd, 5, raw(Evd::create(ia, qlen, cno, flags)?)) }
    })
}

pub(crate) unsafe extern "C" fn evd_query<T: Transport, V: Version>(
    evd: DatHandle,
    _mask: u32,
    param: *mut DatEvdParam,
) -> u32 {
    guard::<V>(|| {
        let evd = find::<T>(evd)?;
        require(param, 3)?;
        let info = evd.info()?;
        let value = DatEvdParam {
            ia_handle: info.ia,
            evd_qlen: to_count(info.qlen),
            evd_state: info.state,
            cno_handle: info.cno,
            evd_flags: info.flags.bits(),
        };
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { put(param, 3, value) }
    })
}

pub(crate) unsafe extern "C" fn evd_modify_cno<T: Transport, V: Version>(
    evd: DatHandle,
    cno: DatHandle,
) -> u32 {
    guard_allocating::<V>(|| {
        let evd = find::<T>(evd)?;
        evd.modify_cno(handle::optional(cno, |h| {
            handle::cno(h, Subtype::InvalidHandleCno)
        })?)
    })
}

pub(crate) unsafe extern "C" fn evd_enable<T: Transport, V: Version>(evd: DatHandle) -> u32 {
    guard::<V>(|| find::<T>(evd)?.enable())
}

pub(crate) unsafe extern "C" fn evd_disable<T: Transport, V: Version>(evd: DatHandle) -> u32 {
    guard::<V>(|| find::<T>(evd)?.disable())
}

pub(crate) unsafe extern "C" fn evd_set_unwaitable<T: Transport, V: Version>(
    evd: DatHandle,
) -> u32 {
    guard::<V>(|| find::<T>(evd)?.set_unwaitable())
}

pub(crate) unsafe extern "C" fn evd_clear_unwaitable<T: Transport, V: Version>(
    evd: DatHandle,
) -> u32 {
    guard::<V>(|| find::<T>(evd)?.clear_unwaitable())
}

pub(crate) unsafe extern "C" fn evd_resize<T: Transport, V: Version>(
    evd: DatHandle,
    qlen: DatCount,
) -> u32 {
    guard_allocating::<V>(|| find::<T>(evd)?.resize(count(qlen, 2)?))
}

pub(crate) unsafe extern "C" fn evd_free<T: Transport, V: Version>(evd: DatHandle) -> u32 {
    guard::<V>(|| find::<T>(evd)?.free())
}
