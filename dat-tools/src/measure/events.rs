//! Completions of a dispatcher: by polling, or by sleeping until one arrives.

use std::time::{Duration, Instant};

use dat::{Completion, ConnectionEvent, Error, Evd, Event};

use crate::measure::interrupt::Interrupt;

/// Longest sleep without a look at whether the user has interrupted the command: another thread may have got the signal.
const SLICE: Duration = Duration::from_millis(100);
/// Empty polls in a row between two looks at the clock.
const POLLS: u32 = 1024;

/// Says what an event is that comes in the place of the one that is waited for.
pub(crate) fn described(event: &Event) -> String {
    let how = match event {
        Event::Ended { how, .. } => *how,
        Event::Established { .. } => ConnectionEvent::Established,
        Event::PeerRejected { .. } => ConnectionEvent::PeerRejected,
        Event::Request(_) => return "another process asks for a connection".to_owned(),
        other => return format!("an event that does not belong here, {other:?}"),
    };
    Error::Disconnected { how }.to_string()
}

/// What came of looking for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Completion(Completion),
    /// Nothing arrived in time.
    Nothing,
    Interrupted,
}

/// A source of completions.
#[derive(Debug)]
pub(crate) struct Completions {
    pub(crate) evd: Evd,
    pub(crate) interrupt: Interrupt,
}

impl Completions {
    /// Returns the next completion, and gives up after about `limit`.
    #[inline]
    pub(crate) fn next(&self, wait: bool, limit: Duration) -> Result<Next, Error> {
        if wait {
            return self.wait(limit);
        }
        let mut idle = Idle::default();
        loop {
            if let Some(found) = self.poll()? {
                return Ok(Next::Completion(found));
            }
            match idle.after_empty_poll(&self.interrupt, limit) {
                None => {}
                Some(end) => return Ok(end),
            }
        }
    }

    /// Takes a completion if there is one.
    #[inline]
    pub(crate) fn poll(&self) -> Result<Option<Completion>, Error> {
        match self.evd.poll()? {
            Some(Event::Completion(found)) => Ok(Some(found)),
            _ => Ok(None),
        }
    }

    fn wait(&self, limit: Duration) -> Result<Next, Error> {
        let mut slept = Duration::ZERO;
        loop {
            let slice = SLICE.min(limit.saturating_sub(slept));
            match self.evd.wait(slice) {
                Ok(Event::Completion(found)) => return Ok(Next::Completion(found)),
                Ok(_) => {}
                Err(Error::TimedOut { .. }) => slept += slice,
                Err(Error::Interrupted { .. }) => {}
                Err(error) => return Err(error),
            }
            if self.interrupt.is_set() {
                return Ok(Next::Interrupted);
            }
            if slept >= limit {
                return Ok(Next::Nothing);
            }
        }
    }
}

/// Counts empty polls, so that few of them cost more than the poll.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    polls: u32,
    since: Option<Instant>,
}

impl Idle {
    /// Returns how the polling ends, if it does.
    #[inline]
    pub(crate) fn after_empty_poll(
        &mut self,
        interrupt: &Interrupt,
        limit: Duration,
    ) -> Option<Next> {
        self.polls += 1;
        if self.polls < POLLS {
            return None;
        }
        self.polls = 0;
        if interrupt.is_set() {
            return Some(Next::Interrupted);
        }
        let since = self.since.get_or_insert_with(Instant::now);
        (since.elapsed() >= limit).then_some(Next::Nothing)
    }

    /// Returns whether the last call looked at the clock: it is time for other looks that are too slow for each poll.
    pub(crate) const fn has_looked(&self) -> bool {
        self.polls == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_in_words() {
        let event = Event::Ended {
            ep: dat::EpId::NONE,
            how: ConnectionEvent::Broken,
        };
        let said = described(&event);
        assert!(said.starts_with("the connection broke"), "{said}");
    }
}
