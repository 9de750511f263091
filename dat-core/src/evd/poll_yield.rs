//! Yielding of the processor by a program that polls for a connection event.
//!
//! Other threads make connections: the transport's, the kernel's and the peer's. Where processors are few, a thread
//! that calls dat_evd_dequeue in a loop keeps them from running until its time slice ends. So while connection events
//! are expected, a dequeue that finds none yields. It yields a limited number of times, and a dequeue of an EVD that
//! expects no such event stays one load.

use std::sync::atomic::Ordering;

use super::{Evd, Inner};
use crate::transport::Transport;

/// Number of empty polls that yield after an attempt to connect began or another one ended.
const YIELDS_PER_ATTEMPT: u32 = 4096;
/// Number of empty polls that yield after a request arrived: others often come with it.
const YIELDS_PER_REQUEST: u32 = 256;

/// Expected connection events of an EVD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PollYield {
    /// Attempts to connect that will end in an event here.
    attempts: u32,
    /// Number of empty polls that will yield.
    polls: u32,
}

impl PollYield {
    /// Returns true if the next empty poll yields.
    pub(super) fn is_active(self) -> bool {
        self.polls != 0
    }

    fn attempt_began(&mut self) {
        self.attempts += 1;
        self.polls = YIELDS_PER_ATTEMPT;
    }

    fn attempt_ended(&mut self) {
        self.attempts = self.attempts.saturating_sub(1);
        self.polls = if self.attempts == 0 {
            0
        } else {
            YIELDS_PER_ATTEMPT
        };
    }

    /// Records that a connection request was queued.
    pub(super) fn request_arrived(&mut self) {
        self.polls = self.polls.max(YIELDS_PER_REQUEST);
    }

    /// Records an empty poll; returns true if it is to yield.
    pub(super) fn empty_poll(&mut self) -> bool {
        let is_active = self.is_active();
        self.polls = self.polls.saturating_sub(1);
        is_active
    }
}

/// Expectation of an event for an attempt to connect. Dropping it ends the expectation.
#[derive(Debug)]
pub(crate) struct ExpectedEvent<T: Transport> {
    evd: &'static Evd<T>,
    generation: u32,
}

impl<T: Transport> Drop for ExpectedEvent<T> {
    fn drop(&mut self) {
        let mut inner = self.evd.inner.lock();
        if self.evd.is_generation(self.generation) {
            inner.poll_yield.attempt_ended();
            self.evd.publish_word(&inner);
        }
    }
}

impl<T: Transport> Evd<T> {
    /// Records that an attempt to connect begins, whose event will be posted here. Takes the EVD's lock.
    pub(crate) fn expect_connection(&'static self) -> Option<ExpectedEvent<T>> {
        let mut inner = self.inner.lock();
        let generation = self.head.generation.load(Ordering::Relaxed);
        if !self.head.alive() {
            return None;
        }
        inner.poll_yield.attempt_began();
        self.publish_word(&inner);
        Some(ExpectedEvent {
            evd: self,
            generation,
        })
    }
}

impl<T: Transport> Inner<T> {
    /// Returns true after an empty poll if the caller is to yield, once it has unlocked.
    pub(super) fn should_yield(&mut self) -> bool {
        self.queue.cq.is_none() && self.poll_yield.empty_poll()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_polls_yield_during_attempts_a_limited_number_of_times() {
        let mut poll_yield = PollYield::default();
        assert!(!poll_yield.empty_poll());
        poll_yield.attempt_began();
        poll_yield.attempt_began();
        for _ in 0..YIELDS_PER_ATTEMPT {
            assert!(poll_yield.empty_poll());
        }
        assert!(!poll_yield.empty_poll());
        // One of two attempts ended: the other one may end soon.
        poll_yield.attempt_ended();
        assert!(poll_yield.empty_poll());
        poll_yield.attempt_ended();
        assert!(!poll_yield.empty_poll());
    }

    #[test]
    fn empty_polls_yield_after_a_request() {
        let mut poll_yield = PollYield::default();
        poll_yield.request_arrived();
        for _ in 0..YIELDS_PER_REQUEST {
            assert!(poll_yield.is_active());
            assert!(poll_yield.empty_poll());
        }
        assert!(!poll_yield.empty_poll());
        // A request does not reduce the count of an attempt.
        poll_yield.attempt_began();
        poll_yield.request_arrived();
        assert_eq!(poll_yield.polls, YIELDS_PER_ATTEMPT);
    }
}
