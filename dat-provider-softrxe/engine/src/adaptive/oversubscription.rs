//! Detects that more threads are runnable than there are processors, and how a thread behaves then. Pure.
//!
//! The scheduler divides a processor's time into slices of milliseconds. A thread that wakes up preempts the running one only
//! if it has used less than its share so far; else it waits for the scheduler's next tick. So a thread with a little work every
//! few microseconds is scheduled at once as long as it sleeps longer than it works, and is not woken before its share has
//! recovered. `sched_yield` has the opposite effect: since Linux 6.18 it costs the caller a whole slice.

use std::time::Duration;

use softrxe_proto::Time;

/// A runnable thread that did not run for this long was preempted by another one. Interrupts are shorter.
pub(crate) const PREEMPTED: Duration = Duration::from_micros(200);
/// How long oversubscription counts as present after the first preemption, and at most after repeated ones. Each test
/// whether it has ended may cost a tick.
const REMEMBERED_FOR: Duration = Duration::from_millis(20);
const MAX_REMEMBERED_FOR: Duration = Duration::from_millis(640);

/// Remembers that a thread was preempted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Oversubscription {
    until: Option<Time>,
    memory: Duration,
}

impl Oversubscription {
    /// Records that the calling thread was preempted.
    pub(crate) fn preempted(&mut self, now: Time) {
        // A preemption before or shortly after `until`: oversubscription never ended, so remember it twice as long.
        let again = self
            .until
            .is_some_and(|until| now <= until + self.memory.max(REMEMBERED_FOR));
        self.memory = if again {
            (self.memory * 2).clamp(REMEMBERED_FOR, MAX_REMEMBERED_FOR)
        } else {
            REMEMBERED_FOR
        };
        self.until = Some(now + self.memory);
    }

    /// Returns whether a preemption is remembered.
    pub(crate) fn is_present(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now < until)
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

/// How long the helper sleeps under oversubscription while consumers poll. A consumer may stop polling at any time and only read
/// its memory; where processors are few, a peer then waits for the helper.
pub(crate) const OVERSUBSCRIBED_POLL_SLEEP: Duration = Duration::from_micros(100);

/// Counts polls in a row of a consumer that found nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EmptyPolls {
    row: u32,
    last: Option<Time>,
}

/// Empty polls in a row between two pauses: some 15 us.
const POLLS_PER_PAUSE: u32 = 32;
/// Empty polls in a row that make a loop. A consumer that polls now and then may have computed in between.
const POLLS_OF_A_LOOP: u32 = 8;
/// Longest pause; arriving packets end it. It is several times the row before it, so that the consumer has most of its share
/// left afterwards.
pub(crate) const PAUSE: Duration = Duration::from_micros(100);

impl EmptyPolls {
    /// Records a poll that found something.
    pub(crate) fn found(&mut self) {
        self.row = 0;
        self.last = None;
    }

    /// Records an empty poll. Returns whether the caller is to pause. `crowded` says whether the calling thread
    /// waited for its processor since it was last called: a hypervisor can cause a gap as well.
    pub(crate) fn polled(
        &mut self,
        oversubscription: &mut Oversubscription,
        now: Time,
        crowded: impl FnOnce() -> bool,
    ) -> bool {
        let last = self.last.replace(now);
        if last.is_some_and(|last| !now.is_within(PREEMPTED, last)) {
            if self.row >= POLLS_OF_A_LOOP && crowded() {
                oversubscription.preempted(now);
            }
            self.row = 0;
        }
        self.row += 1;
        let pause = self.row.is_multiple_of(POLLS_PER_PAUSE) && oversubscription.is_present(now);
        if pause {
            self.last = None;
        }
        pause
    }
}

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

    /// Polls of half a microsecond each from `from` on; returns the pauses, which take no time here.
    fn polls(
        of: &mut (EmptyPolls, Oversubscription),
        from: u64,
        count: u64,
        preempted: bool,
    ) -> usize {
        let (polls, state) = of;
        (0..count)
            .filter(|n| polls.polled(state, at(from + n / 2), || preempted))
            .count()
    }

    #[test]
    fn a_polling_loop_pauses_once_it_was_preempted() {
        let mut of = (EmptyPolls::default(), Oversubscription::default());
        assert_eq!(polls(&mut of, 0, 1000, true), 0);
        assert_eq!(polls(&mut of, 4000, 320, true), 10);
        // There is no pause before a full row.
        for n in 0..20 {
            of.0.found();
            assert_eq!(polls(&mut of, 4200 + n * 20, 31, true), 0);
        }
        of.0.found();
        assert_eq!(
            polls(&mut of, 30_000, 1000, true),
            0,
            "the preemption is forgotten"
        );
    }

    #[test]
    fn work_between_polls_does_not_count_as_preemption() {
        let mut of = (EmptyPolls::default(), Oversubscription::default());
        // The consumer computes between a few polls.
        for n in 0..100 {
            assert_eq!(polls(&mut of, n * 1000, 4, true), 0);
        }
        assert_eq!(polls(&mut of, 100_000, 1000, true), 0);
        // The consumer sleeps between loops and is not preempted.
        assert_eq!(polls(&mut of, 200_000, 1000, false), 0);
        assert_eq!(polls(&mut of, 300_000, 1000, false), 0);
    }
}
