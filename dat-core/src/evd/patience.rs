//! A program that polls for a connection event, and gives the processor to those who make it.
//!
//! Connections are made by other threads: the transport's, the kernel's and the peer's. One that calls dat_evd_dequeue over and over
//! keeps them from it where processors are fewer, until its time slice ends. So while connection events are to be expected, a
//! dequeue that finds none yields. It does so a limited number of times, and an EVD of which nothing is expected is left with one load
//! as ever.

use std::sync::atomic::Ordering;

use super::{Evd, Inner};
use crate::transport::Transport;

/// Polls in vain that yield, after an attempt to connect began or another one ended.
const ATTEMPT: u32 = 4096;
/// After a request came: others often come with it.
const REQUEST: u32 = 256;

/// What is known of connection events to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Patience {
    /// Attempts to connect that will end in an event here.
    attempts: u32,
    /// Polls in vain that yield from now on.
    polls: u32,
}

impl Patience {
    /// Whether the next poll in vain is to yield.
    pub(super) fn lasts(self) -> bool {
        self.polls != 0
    }

    fn begin(&mut self) {
        self.attempts += 1;
        self.polls = ATTEMPT;
    }

    fn end(&mut self) {
        self.attempts = self.attempts.saturating_sub(1);
        self.polls = if self.attempts == 0 { 0 } else { ATTEMPT };
    }

    /// A request is announced.
    pub(super) fn request(&mut self) {
        self.polls = self.polls.max(REQUEST);
    }

    /// A poll in vain; whether it is to yield.
    pub(super) fn poll(&mut self) -> bool {
        let lasts = self.lasts();
        self.polls = self.polls.saturating_sub(1);
        lasts
    }
}

/// An attempt to connect, of which its EVD expects an event. Dropping it ends the expectation.
#[derive(Debug)]
pub(crate) struct Expected<T: Transport> {
    evd: &'static Evd<T>,
    generation: u32,
}

impl<T: Transport> Drop for Expected<T> {
    fn drop(&mut self) {
        let mut inner = self.evd.inner.lock();
        if self.evd.is_life(self.generation) {
            inner.patience.end();
            self.evd.left(&inner);
        }
    }
}

impl<T: Transport> Evd<T> {
    /// An attempt to connect begins, whose outcome will be announced here. Takes the EVD's lock.
    pub(crate) fn expect(&'static self) -> Option<Expected<T>> {
        let mut inner = self.inner.lock();
        let generation = self.head.generation.load(Ordering::Relaxed);
        if !self.head.alive() {
            return None;
        }
        inner.patience.begin();
        self.left(&inner);
        Some(Expected {
            evd: self,
            generation,
        })
    }
}

impl<T: Transport> Inner<T> {
    /// After a poll in vain, under the lock: whether the caller is to yield when it has dropped that.
    pub(super) fn yields(&mut self) -> bool {
        self.queue.cq.is_none() && self.patience.poll()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_while_attempts_go_on_but_not_for_ever() {
        let mut patience = Patience::default();
        assert!(!patience.poll());
        patience.begin();
        patience.begin();
        for _ in 0..ATTEMPT {
            assert!(patience.poll());
        }
        assert!(!patience.poll());
        // One of the two ends: the other one may be close.
        patience.end();
        assert!(patience.poll());
        patience.end();
        assert!(!patience.poll());
    }

    #[test]
    fn a_request_announces_others() {
        let mut patience = Patience::default();
        patience.request();
        for _ in 0..REQUEST {
            assert!(patience.lasts());
            assert!(patience.poll());
        }
        assert!(!patience.poll());
        // It does not shorten what an attempt gave.
        patience.begin();
        patience.request();
        assert_eq!(patience.polls, ATTEMPT);
    }
}
