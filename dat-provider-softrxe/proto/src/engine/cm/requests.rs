//! Requests of peers that wait for the consumer's answer: their limits and deadlines.

use std::net::SocketAddr;

use super::super::Engine;
use super::super::timers::Owner;
use crate::cm::connection::{request_lifetime, request_lifetime_after_mra};
use crate::cm::pending::Admission;
use crate::cm::state::{Input, State};
use crate::memory::Memory;
use crate::time::Time;

impl<M: Memory> Engine<M> {
    /// Makes room for a new request if the limits allow it. Returns false if not; the peer repeats its request later.
    pub(super) fn admit_request(&mut self, now: Time, source: SocketAddr) -> bool {
        let (most, share) = (self.config.max_requests(), self.config.share_of_requests());
        match self.cm.pending.admission(source, most, share) {
            Admission::Admit => {}
            Admission::Displace(old) => {
                tracing::debug!(%source, id = old, "a request was dropped to make room for another one");
                if self.drop_request(now, old) {
                    self.out.counters.requests_displaced += 1;
                }
            }
            Admission::Refuse => {
                tracing::debug!(%source, "the source has used up its share of requests; this one was dropped");
                self.out.counters.requests_ignored += 1;
                return false;
            }
        }
        true
    }

    /// Adds a request to those that wait for the consumer.
    pub(super) fn add_pending(&mut self, now: Time, id: u32, source: SocketAddr) {
        self.cm.pending.add(id, source, now + request_lifetime());
        self.arm_requests();
    }

    /// Sets the time at which a request or resolution that waits is dropped.
    pub(super) fn keep_request(&mut self, id: u32, deadline: Time) {
        self.cm.pending.wait_until(id, deadline);
        self.arm_requests();
    }

    /// Adds a timer entry at or before the first deadline of the requests that wait.
    pub(super) fn arm_requests(&mut self) {
        let Some(deadline) = self.cm.pending.deadline() else {
            return;
        };
        if self.pending_armed.is_none_or(|armed| deadline < armed) {
            self.pending_armed = Some(deadline);
            self.timers.add(deadline, Owner::PendingRequests);
        }
    }

    /// Handles the timer entry for requests that wait.
    pub(in crate::engine) fn expire_requests(&mut self, now: Time, at: Time) {
        if self.pending_armed != Some(at) {
            return;
        }
        self.pending_armed = None;
        while let Some((due, id)) = self.cm.pending.expired(now) {
            if now.is_after_stop(due) {
                // A peer that was stopped with this process repeats the request when it goes on, after an MRA late.
                let deadline = now + request_lifetime_after_mra();
                self.cm.pending.wait_until(id, deadline);
                continue;
            }
            if self.drop_request(now, id) {
                self.out.counters.requests_expired += 1;
            }
        }
        self.arm_requests();
    }

    /// Drops a request or resolution that the consumer has not answered, or its kept answer. Returns true if the consumer had
    /// not answered it; a later answer is an error.
    pub(super) fn drop_request(&mut self, now: Time, id: u32) -> bool {
        self.cm.pending.remove(id);
        if let Some(resolution) = self.cm.resolution(id) {
            let open = resolution.last.is_none();
            self.cm.remove_resolution(id);
            return open;
        }
        let open = self.cm.get(id).is_some_and(|c| c.state != State::TimeWait);
        self.cm_step(now, id, Input::GiveUp);
        open
    }
}
