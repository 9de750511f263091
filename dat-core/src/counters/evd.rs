//! Counters of an EVD.

use super::counters;

counters! {
    /// Counters of an EVD (`DAT_EVD_COUNTERS`).
    EvdCounter: "DCNT_EVD_";
    Wait = "WAIT",
    WaitBlocked = "WAIT_BLOCKED",
    WaitNotify = "WAIT_NOTIFY",
    Dequeue = "DEQUEUE",
    DequeueFound = "DEQUEUE_FOUND",
    DequeueNotFound = "DEQUEUE_NOT_FOUND",
    DequeuePoll = "DEQUEUE_POLL",
    DequeuePollFound = "DEQUEUE_POLL_FOUND",
    ConnCallback = "CONN_CALLBACK",
    DtoCallback = "DTO_CALLBACK",
}

/// The counts of an EVD. Written under its lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EvdCounters {
    /// Number of calls of dat_evd_wait.
    pub(crate) waits: u64,
    /// Number of calls of dat_evd_wait that slept.
    pub(crate) blocked: u64,
    /// Number of times that a sleeping waiter was woken.
    pub(crate) woken: u64,
    /// Number of calls of dat_evd_dequeue that returned an event.
    pub(crate) found: u64,
    /// Number of calls of dat_evd_dequeue that looked for an event and found none. A call on an EVD without a completion queue and
    /// without events does not look.
    pub(crate) missed: u64,
    /// Number of polls of the completion queue that found completions, and of those that found none.
    pub(crate) polls: (u64, u64),
    /// Number of connection events.
    pub(crate) connections: u64,
    /// Number of times that the transport reported completions.
    pub(crate) announced: u64,
}

impl EvdCounters {
    /// Returns the values in the order of [`EvdCounter`].
    pub(crate) fn values(&self) -> [u64; EvdCounter::ALL.len()] {
        [
            self.waits,
            self.blocked,
            self.woken,
            self.found + self.missed,
            self.found,
            self.missed,
            self.polls.0 + self.polls.1,
            self.polls.0,
            self.connections,
            self.announced,
        ]
    }

    /// Resets the counters that `which` selects.
    pub(crate) fn reset(&mut self, which: super::Which) {
        let one = |counter: EvdCounter| which.has(counter as usize);
        for (counter, value) in [
            (EvdCounter::Wait, &mut self.waits),
            (EvdCounter::WaitBlocked, &mut self.blocked),
            (EvdCounter::WaitNotify, &mut self.woken),
            (EvdCounter::DequeueFound, &mut self.found),
            (EvdCounter::DequeueNotFound, &mut self.missed),
            (EvdCounter::DequeuePollFound, &mut self.polls.0),
            (EvdCounter::ConnCallback, &mut self.connections),
            (EvdCounter::DtoCallback, &mut self.announced),
        ] {
            if one(counter) {
                *value = 0;
            }
        }
        // A sum is reset by resetting its two parts.
        if one(EvdCounter::Dequeue) {
            (self.found, self.missed) = (0, 0);
        }
        if one(EvdCounter::DequeuePoll) {
            self.polls = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Which;
    use super::*;

    #[test]
    fn a_sum_is_reset_with_its_parts() {
        let mut counters = EvdCounters {
            waits: 1,
            found: 3,
            missed: 4,
            polls: (5, 6),
            ..EvdCounters::default()
        };
        assert_eq!(counters.values(), [1, 0, 0, 7, 3, 4, 11, 5, 0, 0]);
        counters.reset(Which::One(EvdCounter::Dequeue as usize));
        assert_eq!(counters.values(), [1, 0, 0, 0, 0, 0, 11, 5, 0, 0]);
        counters.reset(Which::One(EvdCounter::DequeuePollFound as usize));
        assert_eq!(counters.values(), [1, 0, 0, 0, 0, 0, 6, 0, 0, 0]);
        counters.reset(Which::All);
        assert_eq!(counters.values(), [0; 10]);
    }
}
