//! What tests over the loopback transport share: it makes upcalls from a thread of its own.

use std::time::Duration;

use dat_core::evd::{Evd, EventSink};
use dat_core::event::{Dto, Event};
use dat_loopback::Loopback;

/// How long a test waits for an event.
pub(crate) const WAIT: Option<Duration> = Some(Duration::from_secs(20));

/// The event that a call has taken.
#[derive(Default)]
pub(crate) struct Got(pub(crate) Option<Event>);

impl EventSink for Got {
    fn dto(&mut self, dto: &Dto) {
        self.0 = Some(Event::Dto(*dto));
    }
    fn event(&mut self, event: &Event) {
        self.0 = Some(*event);
    }
}

/// Waits for the next event.
pub(crate) fn wait(evd: &'static Evd<Loopback>) -> Event {
    let mut got = Got::default();
    evd.wait(WAIT, 1, &mut got).expect("an event within 20 s");
    got.0.unwrap()
}
