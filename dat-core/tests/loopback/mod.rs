//! What tests over the loopback transport share: it makes upcalls from a thread of its own.

use std::time::Duration;

use dat_core::evd::Evd;
use dat_core::event::Event;
use dat_loopback::Loopback;

/// How long a test waits for an event.
pub(crate) const WAIT: Option<Duration> = Some(Duration::from_secs(20));

/// Waits for the next event.
pub(crate) fn wait(evd: &'static Evd<Loopback>) -> Event {
    let mut got = None;
    evd.wait(WAIT, 1, &mut got).expect("an event within 20 s");
    got.unwrap()
}
