//! The slots that hand out events. Their frames have no destructors, because a cancelled wait unwinds through them.

use dat_abi::ret::{DAT_SUCCESS, DatReturn};
use dat_abi::types::{DAT_TIMEOUT_INFINITE, DatCount, DatHandle, DatTimeout, event_number};
use dat_abi::v2_0::types::{DAT_IB_UD_CONNECTION_REQUEST_EVENT, DatEvent};
use dat_core::error::{Error, Subtype};

use crate::filter::Delivery;
use crate::slots::{Call, Slot, not_implemented};

/// Code for a number that no provider can be asked about.
const WRONG: DatReturn = Error::handle(Subtype::InvalidHandle1).code();

/// Slot `evd_wait`.
pub(crate) unsafe extern "C-unwind" fn evd_wait<const LEVEL: usize>(
    evd: DatHandle,
    timeout: DatTimeout,
    threshold: DatCount,
    event: *mut DatEvent,
    nmore: *mut DatCount,
) -> DatReturn {
    let Some(call) = Call::begin(LEVEL, Slot::evd_wait, evd) else {
        return WRONG;
    };
    if let Some(code) = call.refused() {
        return call.end(code);
    }
    let mut limit = timeout;
    loop {
        let code = match call.inner().evd_wait {
            // SAFETY: the slot's contract is that of this one.
            Some(slot) => unsafe { slot(evd, limit, threshold, event, nmore) },
            None => not_implemented(),
        };
        // SAFETY: after success the provider has written the event.
        if code != DAT_SUCCESS || unsafe { deliver(&call, event) } == Delivery::Pass {
            return call.end(code);
        }
        limit = left(&call, timeout);
    }
}

/// Returns what is left of the time limit of a wait.
fn left(call: &Call, timeout: DatTimeout) -> DatTimeout {
    if timeout == DAT_TIMEOUT_INFINITE {
        return timeout;
    }
    let past = DatTimeout::try_from(call.begun().elapsed().as_micros()).unwrap_or(DatTimeout::MAX);
    timeout.saturating_sub(past)
}

/// Slot `evd_dequeue`.
pub(crate) unsafe extern "C" fn evd_dequeue<const LEVEL: usize>(
    evd: DatHandle,
    event: *mut DatEvent,
) -> DatReturn {
    let Some(call) = Call::begin(LEVEL, Slot::evd_dequeue, evd) else {
        return WRONG;
    };
    if let Some(code) = call.refused() {
        return call.end(code);
    }
    loop {
        let code = match call.inner().evd_dequeue {
            // SAFETY: the slot's contract is that of this one.
            Some(slot) => unsafe { slot(evd, event) },
            None => not_implemented(),
        };
        // SAFETY: after success the provider has written the event.
        if code != DAT_SUCCESS || unsafe { deliver(&call, event) } == Delivery::Pass {
            return call.end(code);
        }
    }
}

/// Shows the filter an event, which it may change.
///
/// # Safety
/// `event` was written by a provider.
unsafe fn deliver(call: &Call, event: *mut DatEvent) -> Delivery {
    let Some(instance) = call.instance() else {
        return Delivery::Pass;
    };
    // The extension's data is left out: the event of a program that was compiled without extensions has none.
    // SAFETY: valid by the caller's promise; all fields are plain data.
    let mut copy = unsafe {
        DatEvent {
            event_number: (&raw const (*event).event_number).read_unaligned(),
            evd_handle: (&raw const (*event).evd_handle).read_unaligned(),
            event_data: (&raw const (*event).event_data).read_unaligned(),
            ..DatEvent::default()
        }
    };
    let is_request = [
        event_number::CONNECTION_REQUEST,
        DAT_IB_UD_CONNECTION_REQUEST_EVENT,
    ]
    .contains(&copy.event_number);
    if is_request {
        // SAFETY: the data of these events; the provider made the CR.
        unsafe { instance.adopt(copy.event_data.cr_arrival_event_data.cr_handle) };
    }
    let told = dat_os::cancel::defer(|| call.tell(|filter| filter.event(call, &mut copy)));
    // SAFETY: as above.
    unsafe { (&raw mut (*event).event_data).write_unaligned(copy.event_data) };
    told.unwrap_or(Delivery::Pass)
}
