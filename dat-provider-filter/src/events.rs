//! The slots that hand out events. Their frames have no destructors, because a cancelled wait unwinds through them.

use dat_abi::ret::{DAT_SUCCESS, DatReturn};
use dat_abi::types::{DatCount, DatHandle, DatTimeout, event_number};
use dat_abi::v2_0::types::{DAT_IB_UD_CONNECTION_REQUEST_EVENT, DatEvent};
use dat_core::error::{Error, Subtype};

use crate::slots::{Call, Slot, not_implemented};

/// Code for a number that no provider can be asked about.
const WRONG: DatReturn = Error::handle(Subtype::InvalidHandle1).code();

/// Slot `evd_wait`.
pub(crate) unsafe extern "C-unwind" fn evd_wait(
    evd: DatHandle,
    timeout: DatTimeout,
    threshold: DatCount,
    event: *mut DatEvent,
    nmore: *mut DatCount,
) -> DatReturn {
    let Some(call) = Call::begin(Slot::evd_wait, evd) else {
        return WRONG;
    };
    let code = match call.inner().evd_wait {
        // SAFETY: the slot's contract is that of this one.
        Some(slot) => unsafe { slot(evd, timeout, threshold, event, nmore) },
        None => not_implemented(),
    };
    if code == DAT_SUCCESS {
        // SAFETY: the provider has written the event.
        unsafe { deliver(&call, event) };
    }
    call.end(code)
}

/// Slot `evd_dequeue`.
pub(crate) unsafe extern "C" fn evd_dequeue(evd: DatHandle, event: *mut DatEvent) -> DatReturn {
    let Some(call) = Call::begin(Slot::evd_dequeue, evd) else {
        return WRONG;
    };
    let code = match call.inner().evd_dequeue {
        // SAFETY: the slot's contract is that of this one.
        Some(slot) => unsafe { slot(evd, event) },
        None => not_implemented(),
    };
    if code == DAT_SUCCESS {
        // SAFETY: the provider has written the event.
        unsafe { deliver(&call, event) };
    }
    call.end(code)
}

/// Shows the filter an event.
///
/// # Safety
/// `event` was written by a provider.
unsafe fn deliver(call: &Call, event: *const DatEvent) {
    let Some(instance) = call.instance() else {
        return;
    };
    // SAFETY: valid by the caller's promise; all fields are plain data.
    let event = unsafe { event.read_unaligned() };
    let is_request = [
        event_number::CONNECTION_REQUEST,
        DAT_IB_UD_CONNECTION_REQUEST_EVENT,
    ]
    .contains(&event.event_number);
    if is_request {
        // SAFETY: the data of these events; the provider made the CR.
        unsafe { instance.adopt(event.event_data.cr_arrival_event_data.cr_handle) };
    }
    call.tell(|filter| filter.event(&event));
}
