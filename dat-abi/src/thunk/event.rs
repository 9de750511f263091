//! Slots that take events, by a fast path if they can, and the one that posts software events.

use std::sync::atomic::Ordering;

use dat_core::error::{Error, Result, Subtype};
use dat_core::evd::word::{is_batched, is_idle, needs_cq_poll};
use dat_core::evd::{self, Evd, Polled};
use dat_core::head::raw;
use dat_core::transport::Transport;

use super::layout::Layout;
use crate::boundary::{caught, guard, guard_fast, require, to_count, to_timeout};
use crate::handle;
use crate::ret::DAT_SUCCESS;
use crate::types::{DatCount, DatHandle, DatTimeout};

/// Takes an event without waiting. The case of an idle EVD makes no call, so that no registers are saved for it; all other cases are
/// tail calls.
pub(crate) unsafe extern "C" fn evd_dequeue<T: Transport, V: Layout>(
    handle: DatHandle,
    event: *mut V::Event,
) -> u32 {
    // SAFETY: the function that returns this table reserves the arena first (`tables`).
    let Some(place) = (unsafe { T::arenas().evd.place(handle) }) else {
        return dequeue_slow::<T, V>(handle, event);
    };
    // SAFETY: the address is that of an EVD, or of zeros, which are an atomic word too.
    let word = unsafe { &(*place).head.word }.load(Ordering::Acquire);
    if is_idle(word, event.addr()) {
        return V::pack(evd::EMPTY);
    }
    if event.is_null() {
        return dequeue_slow::<T, V>(handle, event);
    }
    // SAFETY: alive in both cases, so it is an EVD; `event` is not NULL, so valid by the slot's contract.
    unsafe {
        if needs_cq_poll(word) {
            return dequeue_polled::<T, V>(&*place, event);
        }
        if is_batched(word) {
            return dequeue_batched::<T, V>(&*place, event);
        }
    }
    dequeue_slow::<T, V>(handle, event)
}

/// Takes a completion that was polled before, without another call. It has no boundary: it cannot panic, and the slow path has a
/// boundary of its own.
///
/// # Safety
/// `event` is valid for writes.
#[inline(never)]
unsafe extern "C" fn dequeue_batched<T: Transport, V: Layout>(
    evd: &'static Evd<T>,
    event: *mut V::Event,
) -> u32 {
    // SAFETY: valid by the caller's promise. It may be uninitialised, but it is only written.
    if evd.dequeue_batched(&mut unsafe { V::sink::<T>(event, raw(evd)) }) {
        return DAT_SUCCESS;
    }
    dequeue_slow::<T, V>(raw(evd), event)
}

/// Polls the transport, because no completion is left of the poll before.
///
/// # Safety
/// `event` is valid for writes.
#[inline(never)]
unsafe extern "C" fn dequeue_polled<T: Transport, V: Layout>(
    evd: &'static Evd<T>,
    event: *mut V::Event,
) -> u32 {
    let polled = caught(|| {
        // SAFETY: as in `dequeue_batched`.
        evd.dequeue_polled(&mut unsafe { V::sink::<T>(event, raw(evd)) })
    });
    match polled {
        Ok(Polled::Empty | Polled::Again) => V::pack(evd::EMPTY_CQ),
        Ok(Polled::Taken) => DAT_SUCCESS,
        // SAFETY: the same promise.
        Ok(Polled::Batched) => unsafe { dequeue_batched::<T, V>(evd, event) },
        Ok(Polled::SlowPath) => dequeue_slow::<T, V>(raw(evd), event),
        Err(error) => V::pack(error),
    }
}

/// Takes an event on the slow path: no EVD or a freed one, no event, queued events, completions that need more work.
#[cold]
#[inline(never)]
extern "C" fn dequeue_slow<T: Transport, V: Layout>(
    handle: DatHandle,
    event: *mut V::Event,
) -> u32 {
    guard_fast::<V>(|| {
        let evd = handle::evd::<T>(handle, Subtype::InvalidHandle1)?;
        if event.is_null() {
            return Err(Error::arg(2));
        }
        // SAFETY: not NULL, so valid by the slot's contract; see `dequeue_batched`.
        evd.dequeue(&mut unsafe { V::sink::<T>(event, handle) })
    })
}

/// Waits for events. A completion that is available is taken by a tail call, as in [`evd_dequeue`]; else this is a cancellation
/// point.
pub(crate) unsafe extern "C-unwind" fn evd_wait<T: Transport, V: Layout>(
    handle: DatHandle,
    timeout: DatTimeout,
    threshold: DatCount,
    event: *mut V::Event,
    nmore: *mut DatCount,
) -> u32 {
    // NULL minus 1 has the highest bit set, which no program's address has.
    let null = (event.addr().wrapping_sub(1) | nmore.addr().wrapping_sub(1)) >> (usize::BITS - 1);
    if threshold == 1
        && null == 0
        // SAFETY: as in `evd_dequeue`.
        && let Some(place) = unsafe { T::arenas().evd.place(handle) }
    {
        // SAFETY: as in `evd_dequeue`; `nmore` is valid by the slot's contract too.
        unsafe {
            let word = (*place).head.word.load(Ordering::Acquire);
            if is_batched(word) {
                return wait_batched::<T, V>(&*place, timeout, threshold, event, nmore);
            }
            if needs_cq_poll(word) {
                return wait_polled::<T, V>(&*place, timeout, threshold, event, nmore);
            }
            if word != 0 {
                return wait_queued::<T, V>(&*place, timeout, threshold, event, nmore);
            }
        }
    }
    guarded_wait_slow::<T, V>(handle, timeout, threshold, event, nmore)
}

/// Takes a completion that was polled before, and counts those that are left.
///
/// # Safety
/// `event` and `nmore` are valid for writes.
#[inline(never)]
unsafe extern "C-unwind" fn wait_batched<T: Transport, V: Layout>(
    evd: &'static Evd<T>,
    timeout: DatTimeout,
    threshold: DatCount,
    event: *mut V::Event,
    nmore: *mut DatCount,
) -> u32 {
    // SAFETY: as in `dequeue_batched`.
    let taken = caught(|| evd.wait_batched(&mut unsafe { V::sink::<T>(event, raw(evd)) }));
    match taken {
        Ok(Some(left)) => {
            // SAFETY: the caller's promise.
            unsafe { nmore.write_unaligned(left.cast_signed()) };
            DAT_SUCCESS
        }
        // SAFETY: the same promise.
        Ok(None) => unsafe { wait_queued::<T, V>(evd, timeout, threshold, event, nmore) },
        Err(error) => V::pack(error),
    }
}

/// Takes an event that is there, without the cost of a cancellation point.
///
/// # Safety
/// The same as [`wait_batched`].
#[inline(never)]
unsafe extern "C-unwind" fn wait_queued<T: Transport, V: Layout>(
    evd: &'static Evd<T>,
    timeout: DatTimeout,
    threshold: DatCount,
    event: *mut V::Event,
    nmore: *mut DatCount,
) -> u32 {
    // SAFETY: as in `dequeue_batched`.
    let taken = caught(|| evd.wait_queued(&mut unsafe { V::sink::<T>(event, raw(evd)) }));
    match taken {
        Ok(Some(left)) => {
            // SAFETY: the caller's promise.
            unsafe { nmore.write_unaligned(left.cast_signed()) };
            DAT_SUCCESS
        }
        Ok(None) => guarded_wait_slow::<T, V>(raw(evd), timeout, threshold, event, nmore),
        Err(error) => V::pack(error),
    }
}

/// Time limit, in microseconds, up to which a wait polls once.
const SHORT: DatTimeout = 10;

/// Polls the transport, because no completion is left of the poll before.
///
/// # Safety
/// The same as [`wait_batched`].
#[inline(never)]
unsafe extern "C-unwind" fn wait_polled<T: Transport, V: Layout>(
    evd: &'static Evd<T>,
    timeout: DatTimeout,
    threshold: DatCount,
    event: *mut V::Event,
    nmore: *mut DatCount,
) -> u32 {
    let polled = caught(|| {
        // SAFETY: as in `dequeue_batched`.
        let mut sink = unsafe { V::sink::<T>(event, raw(evd)) };
        let mut attempt = (timeout > SHORT).then_some(0);
        loop {
            let polled = evd.wait_polled(&mut sink, attempt);
            if polled != Polled::Again {
                return polled;
            }
            attempt = attempt.map(|attempt| attempt + 1);
        }
    });
    match polled {
        Ok(Polled::Taken) => {
            // SAFETY: the caller's promise.
            unsafe { nmore.write_unaligned(0) };
            DAT_SUCCESS
        }
        // SAFETY: the same promise.
        Ok(Polled::Batched) => unsafe {
            wait_batched::<T, V>(evd, timeout, threshold, event, nmore)
        },
        Ok(Polled::Empty | Polled::Again) => {
            guarded_wait_slow::<T, V>(raw(evd), timeout, threshold, event, nmore)
        }
        // SAFETY: the same promise.
        Ok(Polled::SlowPath) => unsafe {
            wait_queued::<T, V>(evd, timeout, threshold, event, nmore)
        },
        Err(error) => V::pack(error),
    }
}

/// Runs [`wait_slow`] in a boundary, as a cancellation point.
#[inline(never)]
extern "C-unwind" fn guarded_wait_slow<T: Transport, V: Layout>(
    handle: DatHandle,
    timeout: DatTimeout,
    threshold: DatCount,
    event: *mut V::Event,
    nmore: *mut DatCount,
) -> u32 {
    let body = || {
        // SAFETY: valid or NULL by the slot's contract.
        guard::<V>(|| unsafe { wait_slow::<T, V>(handle, timeout, threshold, event, nmore) })
    };
    // SAFETY: this function, and those of this file that call it, have no values to drop.
    unsafe { dat_os::cancel::point(body) }
}

/// Waits for events on the slow path.
///
/// # Safety
/// The pointers are NULL or valid, by the slot's contract.
#[inline(never)]
unsafe fn wait_slow<T: Transport, V: Layout>(
    handle: DatHandle,
    timeout: DatTimeout,
    threshold: DatCount,
    event: *mut V::Event,
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
    // SAFETY: as in `dequeue_batched`.
    let mut sink = unsafe { V::sink::<T>(event, handle) };
    let waited = evd.wait(to_timeout(timeout), threshold, &mut sink);
    let more = waited.unwrap_or_else(|failed| failed.nmore);
    // SAFETY: not NULL, so valid by the slot's contract.
    unsafe { nmore.write_unaligned(to_count(more)) };
    waited.map(|_| ()).map_err(|failed| failed.error)
}

pub(crate) unsafe extern "C" fn evd_post_se<T: Transport, V: Layout>(
    handle: DatHandle,
    event: *const V::Event,
) -> u32 {
    guard::<V>(|| {
        let evd = handle::evd::<T>(handle, Subtype::InvalidHandle1)?;
        require(event, 2)?;
        // SAFETY: not NULL, so valid by the slot's contract.
        let pointer = unsafe { V::software_pointer(event) };
        evd.post_se(pointer.ok_or(Error::arg(2))?)
    })
}
