//! Posting, and taking events: triplets are converted on the stack, events written in 1.2's layout.

use dat_core::ep::Ep;
use dat_core::error::{Error, Result, Subtype};
use dat_core::iov::LmrTriplet;
use dat_core::transport::Transport;

use super::guard;
use crate::boundary::{array, limit, structure, timeout};
use crate::handle;
use crate::ret::{DAT_SUCCESS, to_v1_2};
use crate::thunk::find;
use crate::types::{DatContext, DatCount, DatHandle, DatTimeout, event_number};
use crate::v1_2::convert::{Sink, remote, with_iov};
use crate::v1_2::types::{DatEvent, DatLmrTriplet, DatRmrTriplet};
use crate::v2_0::thunk::flags;

/// The segments at argument `number`, converted.
///
/// # Safety
/// As [`array()`].
#[inline(always)]
unsafe fn converted<R>(
    segments: DatCount,
    iov: *mut DatLmrTriplet,
    most: impl FnOnce() -> Result<u32>,
    f: impl FnOnce(&[LmrTriplet]) -> Result<R>,
) -> Result<R> {
    // SAFETY: the caller's promise.
    with_iov(unsafe { array(segments, iov.cast_const(), 2)? }, most, f)
}

/// Segments that a request of the endpoint may have.
fn most_requested<T: Transport>(ep: &'static Ep<T>) -> Result<u32> {
    ep.info().map(|info| info.attr.max_request_iov)
}

pub(crate) unsafe extern "C" fn ep_post_send<T: Transport>(
    ep: DatHandle,
    segments: DatCount,
    iov: *mut DatLmrTriplet,
    cookie: DatContext,
    completion: u32,
) -> u32 {
    guard(|| {
        let (ep, flags) = (find::<T>(ep)?, flags(completion, 5)?);
        // SAFETY: NULL or valid by the slot's contract.
        unsafe {
            converted(
                segments,
                iov,
                || most_requested(ep),
                |iov| ep.post_send(iov, cookie, flags),
            )
        }
    })
}

pub(crate) unsafe extern "C" fn ep_post_recv<T: Transport>(
    ep: DatHandle,
    segments: DatCount,
    iov: *mut DatLmrTriplet,
    cookie: DatContext,
    completion: u32,
) -> u32 {
    guard(|| {
        let (ep, flags) = (find::<T>(ep)?, flags(completion, 5)?);
        // SAFETY: NULL or valid by the slot's contract.
        unsafe {
            converted(
                segments,
                iov,
                || ep.info().map(|info| info.attr.max_recv_iov),
                |iov| ep.post_recv(iov, cookie, flags),
            )
        }
    })
}

pub(crate) unsafe extern "C" fn ep_post_rdma_read<T: Transport>(
    ep: DatHandle,
    segments: DatCount,
    iov: *mut DatLmrTriplet,
    cookie: DatContext,
    from: *const DatRmrTriplet,
    completion: u32,
) -> u32 {
    guard(|| {
        let (ep, flags) = (find::<T>(ep)?, flags(completion, 6)?);
        // SAFETY: NULL or valid by the slot's contract.
        unsafe {
            let from = remote(structure(from, 5)?)?;
            converted(
                segments,
                iov,
                || most_requested(ep),
                |iov| ep.post_rdma_read(iov, cookie, &from, flags),
            )
        }
    })
}

pub(crate) unsafe extern "C" fn ep_post_rdma_write<T: Transport>(
    ep: DatHandle,
    segments: DatCount,
    iov: *mut DatLmrTriplet,
    cookie: DatContext,
    to: *const DatRmrTriplet,
    completion: u32,
) -> u32 {
    guard(|| {
        let (ep, flags) = (find::<T>(ep)?, flags(completion, 6)?);
        // SAFETY: NULL or valid by the slot's contract.
        unsafe {
            let to = remote(structure(to, 5)?)?;
            converted(
                segments,
                iov,
                || most_requested(ep),
                |iov| ep.post_rdma_write(iov, cookie, &to, flags),
            )
        }
    })
}

pub(crate) unsafe extern "C" fn srq_post_recv<T: Transport>(
    srq: DatHandle,
    segments: DatCount,
    iov: *mut DatLmrTriplet,
    cookie: DatContext,
) -> u32 {
    guard(|| {
        let srq = handle::srq::<T>(srq, Subtype::InvalidHandleSrq)?;
        // SAFETY: NULL or valid by the slot's contract.
        unsafe {
            converted(
                segments,
                iov,
                || srq.info().map(|info| info.attr.max_recv_iov),
                |iov| srq.post_recv(iov, cookie),
            )
        }
    })
}

pub(crate) unsafe extern "C" fn evd_dequeue<T: Transport>(
    evd: DatHandle,
    event: *mut DatEvent,
) -> u32 {
    guard(|| {
        let found = handle::evd::<T>(evd, Subtype::InvalidHandle1)?;
        if event.is_null() {
            return Err(Error::arg(2));
        }
        // SAFETY: not NULL, so valid by the slot's contract; it is only written to.
        let event = unsafe { &mut *event };
        crate::thunk::dequeue(found, &mut Sink::<T>::new(event, evd))
    })
}

pub(crate) unsafe extern "C" fn evd_wait<T: Transport>(
    evd: DatHandle,
    span: DatTimeout,
    threshold: DatCount,
    event: *mut DatEvent,
    nmore: *mut DatCount,
) -> u32 {
    let mut code = DAT_SUCCESS;
    let checked = guard(|| {
        let found = handle::evd::<T>(evd, Subtype::InvalidHandle1)?;
        let threshold = u32::try_from(threshold).ok().filter(|n| *n > 0);
        let threshold = threshold.ok_or(Error::arg(3))?;
        for (pointer, number) in [(event.cast::<()>(), 4), (nmore.cast(), 5)] {
            if pointer.is_null() {
                return Err(Error::arg(number));
            }
        }
        // SAFETY: not NULL, so valid by the slot's contract; it is only written to.
        let sink = unsafe { &mut *event };
        let more = match found.wait(timeout(span), threshold, &mut Sink::<T>::new(sink, evd)) {
            Ok(more) => more,
            Err(failed) => {
                code = to_v1_2(failed.error.code());
                failed.nmore
            }
        };
        // SAFETY: not NULL, so valid by the slot's contract.
        unsafe { nmore.write(limit(more)) };
        Ok(())
    });
    if checked == DAT_SUCCESS {
        code
    } else {
        checked
    }
}

pub(crate) unsafe extern "C" fn evd_post_se<T: Transport>(
    evd: DatHandle,
    event: *const DatEvent,
) -> u32 {
    guard(|| {
        let evd = handle::evd::<T>(evd, Subtype::InvalidHandle1)?;
        // SAFETY: NULL or valid by the slot's contract.
        let event = unsafe { structure(event, 2)? };
        if event.event_number != event_number::SOFTWARE {
            return Err(Error::arg(2));
        }
        // SAFETY: a software event's data is its pointer; any bits are one.
        evd.post_se(unsafe { event.event_data.software_event_data.pointer })
    })
}
