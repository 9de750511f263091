//! Protocol events and upcalls that wait for a thread to run them.

use std::collections::VecDeque;

use softrxe_proto::Event;

use super::upcall::Upcall;

/// Events and upcalls, each in the order in which they happened. All of `upcalls` happened before all of `events`.
#[derive(Default)]
pub(crate) struct Pending {
    /// Events that were not converted to upcalls yet.
    pub(crate) events: VecDeque<Event>,
    /// Upcalls that no thread has run yet.
    pub(crate) upcalls: VecDeque<Upcall>,
}

impl Pending {
    /// Returns whether there is anything to report to core.
    pub(crate) fn has_upcalls(&self) -> bool {
        !self.events.is_empty() || !self.upcalls.is_empty()
    }
}
