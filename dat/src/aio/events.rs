//! Streams of a dispatcher's events.

use std::task::{Context as TaskContext, Poll};

use super::context::Context;
use super::watchers::Ticket;
use crate::error::Result;
use crate::{Evd, Event, Streams};

/// A dispatcher whose events are awaited: for endpoints of the low layer, software events, and whatever the futures of this module do
/// not cover.
///
/// ```
/// use udapl::aio::Context;
/// use udapl::{Event, Streams};
///
/// # fn main() -> Result<(), udapl::Error> {
/// let context = Context::open("softrxe-lo")?;
/// let mut events = context.events(16, Streams::SOFTWARE)?;
/// let evd = events.evd().clone();
/// std::thread::spawn(move || evd.post(7)); // e.g. a thread that has finished its work
/// let event = udapl::aio::block_on(events.next())?;
/// assert!(matches!(event, Event::Software(7)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Events {
    evd: Evd,
    context: Context,
    ticket: Ticket,
}

impl Drop for Events {
    fn drop(&mut self) {
        self.context
            .shared
            .forget(&self.ticket, |state| Some(&mut state.event_watchers));
    }
}

impl Context {
    /// Creates a dispatcher for at least `qlen` events of `streams`.
    ///
    /// # Errors
    /// As [`Ia::create_evd`](crate::Ia::create_evd).
    pub fn events(&self, qlen: u32, streams: Streams) -> Result<Events> {
        let evd = self
            .ia()
            .create_evd_on(self.notify().cno(), qlen, streams)?;
        Ok(Events {
            evd,
            context: self.clone(),
            ticket: Ticket::default(),
        })
    }
}

impl Events {
    /// Returns the dispatcher, for the endpoints and listeners that use it.
    #[must_use]
    pub fn evd(&self) -> &Evd {
        &self.evd
    }

    /// Returns the next event. A call that is dropped loses none.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub async fn next(&mut self) -> Result<Event> {
        std::future::poll_fn(|context| self.poll_event(context)).await
    }

    /// Polls for the next event, for streams and select loops of other crates.
    ///
    /// # Errors
    /// As [`Events::next`].
    pub fn poll_event(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<Event>> {
        if let Some(event) = self.evd.poll().transpose() {
            return Poll::Ready(event);
        }
        let mut state = self.context.shared.state();
        let watchers = &mut state.event_watchers;
        let former = watchers.watch(&mut self.ticket, context.waker());
        drop(state);
        drop(former);
        // An event that came between the first look and the waker.
        match self.evd.poll().transpose() {
            Some(event) => Poll::Ready(event),
            None => Poll::Pending,
        }
    }
}
