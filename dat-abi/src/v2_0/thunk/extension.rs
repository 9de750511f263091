//! The IB extension (dat_extension_op): one slot whose arguments are a C `va_list`.

use std::ffi::{CStr, c_char, c_void};

use dat_core::ah::{Ah, Half};
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::flags::Close;
use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_core::transport::Transport;

use super::{counters, guard};
use crate::boundary::{put, require, structure};
use crate::provider::Provider;
use crate::segments::SegmentArray;
use crate::thunk::{find, flags, open_named};
use crate::types::{DAT_EVD_ASYNC_EXISTS, DatHandle};
use crate::v2_0::table::DatProvider;
use crate::v2_0::types::{DatIaAttr, DatIbAddrHandle, DatProviderAttr, ib_op};
use crate::va_list::VaList;

/// Operations on endpoints that are implemented.
const OF_ENDPOINTS: [i32; 6] = [
    ib_op::FETCH_AND_ADD,
    ib_op::CMP_AND_SWAP,
    ib_op::RDMA_WRITE_IMMED,
    ib_op::UD_SEND,
    ib_op::UD_AH_FREE,
    ib_op::UD_CM_FREE,
];

/// Operations on counters.
const OF_COUNTERS: [i32; 4] = [
    ib_op::QUERY_COUNTERS,
    ib_op::PRINT_COUNTERS,
    ib_op::START_COUNTERS,
    ib_op::STOP_COUNTERS,
];

/// Runs an operation on counters.
///
/// # Safety
/// The list has the operation's arguments; pointers are NULL or valid.
unsafe fn count_op<T: Transport>(handle: DatHandle, op: i32, list: &mut VaList) -> Result<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        let first = list.word() as i32;
        match op {
            ib_op::QUERY_COUNTERS => {
                let out = list.word() as *mut u64;
                counters::query::<T>(handle, first, out, list.word() as i32 != 0)
            }
            ib_op::PRINT_COUNTERS => counters::print::<T>(handle, first, list.word() as i32 != 0),
            _ => counters::run::<T>(handle, first, op == ib_op::START_COUNTERS),
        }
    }
}

/// Runs an operation; `arguments` is a `va_list`.
pub(crate) unsafe extern "C" fn handle_extendedop<T: Transport>(
    handle: DatHandle,
    op: i32,
    arguments: *mut c_void,
) -> u32 {
    guard(|| {
        if op == ib_op::CLOSE_QUERY {
            return crate::handle::ia::<T>(handle, Subtype::InvalidHandleIa)?.close(Close::Abrupt);
        }
        if OF_COUNTERS.contains(&op) {
            // SAFETY: the C caller's list, with the arguments that `op` has (dat_ib_extensions.h).
            return unsafe { count_op::<T>(handle, op, &mut list(arguments)?) };
        }
        // Checked before the handle: some operations that are not implemented take handles of other kinds.
        if !OF_ENDPOINTS.contains(&op) {
            return Err(Error::of(Kind::NotImplemented));
        }
        let ep = find::<T>(handle)?;
        // SAFETY: as above.
        let mut list = unsafe { list(arguments)? };
        // SAFETY: as above; pointers are NULL or valid.
        unsafe {
            match op {
                ib_op::FETCH_AND_ADD => {
                    let add = list.word();
                    let local = structure(list.word() as *const LmrTriplet, 4)?;
                    let cookie = list.word();
                    let remote = structure(list.word() as *const RmrTriplet, 6)?;
                    ep.fetch_add(add, &local, cookie, &remote, flags(list.word() as u32, 7)?)
                }
                ib_op::CMP_AND_SWAP => {
                    let (compare, swap) = (list.word(), list.word());
                    let local = structure(list.word() as *const LmrTriplet, 5)?;
                    let cookie = list.word();
                    let remote = structure(list.word() as *const RmrTriplet, 7)?;
                    ep.compare_swap(
                        compare,
                        swap,
                        &local,
                        cookie,
                        &remote,
                        flags(list.word() as u32, 8)?,
                    )
                }
                ib_op::RDMA_WRITE_IMMED => {
                    let segments = list.word() as i32;
                    let given = SegmentArray::new(segments, list.word() as *const LmrTriplet, 3)?;
                    let cookie = list.word();
                    let remote = structure(list.word() as *const RmrTriplet, 6)?;
                    let immediate = list.word() as u32;
                    let flags = flags(list.word() as u32, 8)?;
                    given.with(ep.max_segments(), |iov| {
                        ep.post_rdma_write_immediate(iov, cookie, &remote, immediate, flags)
                    })
                }
                ib_op::UD_SEND => {
                    let segments = list.word() as i32;
                    let given = SegmentArray::new(segments, list.word() as *const LmrTriplet, 3)?;
                    let to: DatIbAddrHandle = structure(list.word() as *const _, 5)?;
                    let cookie = list.word();
                    let flags = flags(list.word() as u32, 7)?;
                    let ah = address_handle::<T>(to.ah as usize)?;
                    given.with(ep.max_segments(), |iov| {
                        ep.post_send_ud(iov, ah, to.qpn, cookie, flags)
                    })
                }
                ib_op::UD_AH_FREE => {
                    let of: DatIbAddrHandle = structure(list.word() as *const _, 3)?;
                    address_handle::<T>(of.ah as usize)?.release(ep, Half::Handle)
                }
                ib_op::UD_CM_FREE => {
                    address_handle::<T>(list.word() as usize)?.release(ep, Half::Context)
                }
                _ => Err(Error::of(Kind::NotImplemented)),
            }
        }
    })
}

/// Returns the address handle for the `ah` of a `DAT_IB_ADDR_HANDLE`, or for the context of the event that reported it.
fn address_handle<T: Transport>(number: usize) -> Result<&'static Ah<T>> {
    match T::arenas().ah.from_addr(number) {
        Some(ah) if ah.head.alive() => Ok(ah),
        _ => Err(Error::of(Kind::InvalidHandle)),
    }
}

/// Converts a C string argument.
///
/// # Safety
/// `text` is NULL or a C string.
///
/// # Errors
/// `DAT_INVALID_PARAMETER` for NULL.
pub(crate) unsafe fn text(text: *const c_char, number: u16) -> Result<String> {
    if text.is_null() {
        return Err(Error::arg(number));
    }
    // SAFETY: not NULL, so a C string by the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned())
}

/// Returns that two IAs are not related: none of ours are.
pub(crate) unsafe extern "C" fn ia_ha_related<T: Transport>(
    ia: DatHandle,
    name: *const c_char,
    relation: *mut u32,
) -> u32 {
    guard(|| {
        crate::handle::ia::<T>(ia, Subtype::InvalidHandleIa)?;
        require(name, 2)?;
        // DAT_HA_FALSE
        // SAFETY: NULL or valid by the slot's contract.
        unsafe { crate::boundary::put(relation, 3, 0) }
    })
}

/// Runs an operation through a provider's registered table, where the handle of `OPEN_QUERY` is the IA's name.
pub(crate) unsafe extern "C" fn provider_extendedop<P: Provider>(
    handle: DatHandle,
    op: i32,
    arguments: *mut c_void,
) -> u32 {
    if op != ib_op::OPEN_QUERY {
        // SAFETY: the same contract.
        return unsafe { handle_extendedop::<P::Transport>(handle, op, arguments) };
    }
    guard(|| {
        // SAFETY: the C caller's name and list (dat_ib_extensions.h).
        let (name, mut list) = unsafe { (text(handle as *const c_char, 1)?, list(arguments)?) };
        // SAFETY: as above; pointers are NULL or valid.
        unsafe {
            let out = list.word() as *mut DatHandle;
            let (ia_mask, ia_attr) = (list.word(), list.word() as *mut DatIaAttr);
            let (provider_mask, provider_attr) = (
                list.word() & 0xffff_ffff,
                list.word() as *mut DatProviderAttr,
            );
            require(out, 2)?;
            let opened = open_named::<P>(&name, 2, 0, DAT_EVD_ASYNC_EXISTS)?;
            // The IA may use another engine than P::Transport, so its own table is called.
            let table = **(opened.ia as *const *const DatProvider);
            let code = table.ia_query.map_or(0, |query| {
                query(
                    opened.ia,
                    std::ptr::null_mut(),
                    ia_mask,
                    ia_attr,
                    provider_mask,
                    provider_attr,
                )
            });
            if let (Some(error), Some(close)) = (Error::from_code(code), table.ia_close) {
                close(opened.ia, 0);
                return Err(error);
            }
            put(out, 2, opened.ia)
        }
    })
}

/// Returns the `va_list` argument.
///
/// # Safety
/// `arguments` is NULL or the C caller's list.
///
/// # Errors
/// `DAT_INVALID_PARAMETER` for NULL.
unsafe fn list(arguments: *mut c_void) -> Result<VaList> {
    // SAFETY: the caller's promise.
    unsafe { VaList::from_parameter(arguments) }.ok_or(Error::arg(3))
}
