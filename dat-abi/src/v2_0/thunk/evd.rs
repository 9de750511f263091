//! Taking events: `DAT_EVENT` has its own layout in 2.0.

use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::evd::Evd;
use dat_core::head::raw;
use dat_core::transport::Transport;

use super::guard;
use crate::boundary::{need, structure, timeout};
use crate::handle;
use crate::types::{DatCount, DatHandle, DatTimeout};
use crate::v2_0::convert::Sink;
use crate::v2_0::types::DatEvent;

/// The idle case takes no other call, so it saves no registers: everything else is a jump to [`dequeue_busy`].
pub(crate) unsafe extern "C" fn evd_dequeue<T: Transport>(
    handle: DatHandle,
    event: *mut DatEvent,
) -> u32 {
    let arena = &T::arenas().evd;
    if !arena.holds(handle) || event.is_null() {
        return evd_dequeue_refused::<T>(handle);
    }
    // SAFETY: the arena holds it.
    let evd = unsafe { arena.at(handle) };
    if evd.is_idle() {
        return Error::of(Kind::QueueEmpty).code();
    }
    // SAFETY: `event` is not NULL, so valid by the slot's contract.
    unsafe { dequeue_busy(evd, event) }
}

/// Dequeues from an EVD that is not idle, or dead.
///
/// # Safety
/// `event` is valid for writes.
#[inline(never)]
unsafe extern "C" fn dequeue_busy<T: Transport>(evd: &'static Evd<T>, event: *mut DatEvent) -> u32 {
    // SAFETY: valid by the caller's promise. It may be uninitialised; every bit pattern is a DAT_EVENT, and only writes
    // happen.
    let event = unsafe { &mut *event };
    guard(|| evd.dequeue_busy(Sink::<T>::new(event, raw(evd))))
}

/// A freed EVD, or none, or no event.
#[cold]
#[inline(never)]
extern "C" fn evd_dequeue_refused<T: Transport>(handle: DatHandle) -> u32 {
    guard(|| {
        handle::evd::<T>(handle, Subtype::InvalidHandle1)?;
        Err(Error::arg(2))
    })
}

pub(crate) unsafe extern "C" fn evd_wait<T: Transport>(
    handle: DatHandle,
    span: DatTimeout,
    threshold: DatCount,
    event: *mut DatEvent,
    nmore: *mut DatCount,
) -> u32 {
    guard(|| {
        let arena = &T::arenas().evd;
        if threshold == 1 && !event.is_null() && !nmore.is_null() && arena.holds(handle) {
            // SAFETY: the arena holds it; `event` is not NULL, so valid by the slot's contract.
            let (evd, event) = unsafe { (arena.at(handle), &mut *event) };
            if let Some(more) = evd.wait_usual(&mut Sink::<T>::new(event, handle)) {
                // SAFETY: not NULL, so valid by the slot's contract.
                unsafe { nmore.write(more.cast_signed()) };
                return Ok(());
            }
        }
        // SAFETY: valid or NULL by the slot's contract.
        unsafe { wait_long::<T>(handle, span, threshold, event, nmore) }
    })
}

/// All but a completion that is there already.
///
/// # Safety
/// As the slot's contract has it: the pointers are NULL or valid.
#[inline(never)]
unsafe fn wait_long<T: Transport>(
    handle: DatHandle,
    span: DatTimeout,
    threshold: DatCount,
    event: *mut DatEvent,
    nmore: *mut DatCount,
) -> Result<()> {
    let evd = handle::evd::<T>(handle, Subtype::InvalidHandle1)?;
    let Some(threshold) = u32::try_from(threshold).ok().filter(|n| *n > 0) else {
        return Err(Error::arg(3));
    };
    if event.is_null() {
        return Err(Error::arg(4));
    }
    if nmore.is_null() {
        return Err(Error::arg(5));
    }
    // SAFETY: as in `dequeue_busy`.
    let event = unsafe { &mut *event };
    let waited = evd.wait(timeout(span), threshold, &mut Sink::<T>::new(event, handle));
    let more = waited.unwrap_or_else(|failed| failed.nmore);
    // SAFETY: not NULL, so valid by the slot's contract.
    unsafe { nmore.write(crate::boundary::limit(more)) };
    waited.map(|_| ()).map_err(|failed| failed.error)
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
