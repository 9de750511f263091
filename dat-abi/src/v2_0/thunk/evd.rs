//! Taking events: `DAT_EVENT` has its own layout in 2.0.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dat_core::error::{Error, Kind, Subtype};
use dat_core::transport::Transport;

use super::guard;
use crate::boundary::{need, structure, timeout};
use crate::handle;
use crate::ret::{DAT_SUCCESS, pack_v2_0};
use crate::types::{DatCount, DatHandle, DatTimeout};
use crate::v2_0::convert::Sink;
use crate::v2_0::types::DatEvent;

pub(crate) unsafe extern "C" fn evd_dequeue<T: Transport>(
    handle: DatHandle,
    event: *mut DatEvent,
) -> u32 {
    let evd = match handle::evd::<T>(handle, Subtype::InvalidHandle1) {
        Ok(evd) => evd,
        Err(error) => return error.code(),
    };
    if event.is_null() {
        return Error::arg(2).code();
    }
    // SAFETY: not NULL, so valid by the slot's contract. It may be uninitialised; every bit pattern is a
    // DAT_EVENT, and only writes happen.
    let event = unsafe { &mut *event };
    pack_v2_0(evd.dequeue(&mut Sink::<T>::new(event, handle)))
}

pub(crate) unsafe extern "C" fn evd_wait<T: Transport>(
    handle: DatHandle,
    span: DatTimeout,
    threshold: DatCount,
    event: *mut DatEvent,
    nmore: *mut DatCount,
) -> u32 {
    let body = || {
        let evd = match handle::evd::<T>(handle, Subtype::InvalidHandle1) {
            Ok(evd) => evd,
            Err(error) => return error.code(),
        };
        let Some(threshold) = u32::try_from(threshold).ok().filter(|n| *n > 0) else {
            return Error::arg(3).code();
        };
        if event.is_null() {
            return Error::arg(4).code();
        }
        if nmore.is_null() {
            return Error::arg(5).code();
        }
        // SAFETY: as in `evd_dequeue`.
        let event = unsafe { &mut *event };
        let (more, code) =
            match evd.wait(timeout(span), threshold, &mut Sink::<T>::new(event, handle)) {
                Ok(more) => (more, DAT_SUCCESS),
                Err(failed) => (failed.nmore, failed.error.code()),
            };
        // SAFETY: not NULL, so valid by the slot's contract.
        unsafe { nmore.write(crate::boundary::limit(more)) };
        code
    };
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Error::of(Kind::InternalError).code())
}

pub(crate) unsafe extern "C" fn evd_post_se<T: Transport>(
    handle: DatHandle,
    event: *const DatEvent,
) -> u32 {
    guard(|| {
        let evd = handle::evd::<T>(handle, Subtype::InvalidHandle1)?;
        need(event, 2)?;
        // SAFETY: NULL or valid by the slot's contract.
        let event = unsafe { structure(event, 2)? };
        if event.event_number != crate::types::event_number::SOFTWARE {
            return Err(Error::arg(2));
        }
        // SAFETY: a software event's data is its pointer; any bits are one.
        evd.post_se(unsafe { event.event_data.software_event_data.pointer })
    })
}
