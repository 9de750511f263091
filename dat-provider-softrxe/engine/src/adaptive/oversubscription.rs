//! Remembers that more threads are runnable than there are processors, and how the helper behaves then. Pure.
//!
//! The scheduler divides a processor's time into slices of milliseconds. A thread that wakes up preempts the running one only
//! if it has used less than its share so far; else it waits for the scheduler's next tick. So a thread with a little work every
//! few microseconds is scheduled at once as long as it sleeps longer than it works, and is not woken before its share has
//! recovered. `sched_yield` has the opposite effect: since Linux 6.18 it costs the caller a whole slice, where another thread computes.

use std::time::Duration;

use softrxe_proto::Time;

/// A runnable thread that did not run for this long was preempted by another one. Interrupts are shorter.
pub(crate) const PREEMPTED: Duration = Duration::from_micros(200);
/// How long oversubscription counts as present after the first preemption, and at most after repeated ones. Each test
/// whether it has ended may cost a tick.
const REMEMBERED_FOR: Duration = Duration::from_millis(20);
const MAX_REMEMBERED_FOR: Duration = Duration::from_millis(640);

/// An observation that counts for a while, and for longer when it is repeated.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Remembered {
    until: Option<Time>,
    memory: Duration,
}

impl Remembered {
    /// Returns until when it counts.
    pub(super) fn record(&mut self, now: Time) -> Time {
        // One before or shortly after `until`: its cause never ended, so remember it twice as long.
        let again = self
            .until
            .is_some_and(|until| now <= until + self.memory.max(REMEMBERED_FOR));
        self.memory = if again {
            (self.memory * 2).clamp(REMEMBERED_FOR, MAX_REMEMBERED_FOR)
        } else {
            REMEMBERED_FOR
        };
        let until = now + self.memory;
        self.until = Some(until);
        until
    }

    /// Remembers it for as long as before, from `from` on.
    fn extend(&mut self, from: Time) {
        self.until = self.until.max(Some(from + self.memory.max(REMEMBERED_FOR)));
    }

    pub(super) fn is_present(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

/// Remembers that a thread was preempted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Oversubscription(Remembered);

impl Oversubscription {
    /// Records that the calling thread was preempted.
    pub(crate) fn preempted(&mut self, now: Time) {
        let _ = self.0.record(now);
    }

    /// Records that it lasts until `until`, and is to be looked for from then on.
    pub(super) fn lasts(&mut self, until: Time) {
        self.0.extend(until);
    }

    /// Returns whether a preemption is remembered.
    pub(crate) fn is_present(&self, now: Time) -> bool {
        self.0.is_present(now)
    }
}

/// The helper sleeps for this many times the time that it worked, within these bounds.
const REST_FACTOR: u32 = 2;
const MIN_REST: Duration = Duration::from_micros(30);
const MAX_REST: Duration = Duration::from_micros(200);

/// Returns how long the helper sleeps under oversubscription after it worked for `worked`, whatever arrives.
pub(crate) fn rest(worked: Duration) -> Duration {
    (worked * REST_FACTOR).clamp(MIN_REST, MAX_REST)
}

/// How long the helper sleeps after `sched_yield`: until it may run again with a [short slice](dat_os::schedule::Slice::Short).
pub(crate) const REST_AFTER_YIELD: Duration = Duration::from_micros(300);

/// How long the helper sleeps at first under oversubscription while consumers poll. A consumer may stop polling at any time and only read
/// its memory; where processors are few, a peer then waits for the helper.
pub(crate) const OVERSUBSCRIBED_POLL_SLEEP: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_nanos(1_000_000_000 + micros * 1000)
    }

    #[test]
    fn a_preemption_is_remembered_for_longer_when_it_is_repeated() {
        let mut state = Oversubscription::default();
        assert!(!state.is_present(at(0)));
        state.preempted(at(0));
        assert!(state.is_present(at(19_999)) && !state.is_present(at(20_000)));
        state.preempted(at(25_000));
        assert!(state.is_present(at(64_999)) && !state.is_present(at(65_000)));
        let mut now = 65_000;
        for milliseconds in [80, 160, 320, 640, 640] {
            state.preempted(at(now));
            assert!(state.is_present(at(now + milliseconds * 1000 - 1)));
            now += milliseconds * 1000;
            assert!(!state.is_present(at(now)));
        }
        state.preempted(at(now + 2_000_000));
        assert!(!state.is_present(at(now + 2_020_000)), "a new one");
    }

    #[test]
    fn the_helper_works_for_a_third_of_the_time_at_most() {
        for worked in [0, 5, 20, 60, 100] {
            let worked = Duration::from_micros(worked);
            assert!(rest(worked) >= worked * 2 && rest(worked) >= MIN_REST);
        }
        assert_eq!(rest(Duration::from_millis(5)), MAX_REST);
    }
}
