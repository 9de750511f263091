//! Where more threads want to run than there are processors: how it is noticed, and how a thread is served there. Pure.
//!
//! The scheduler shares a processor in slices of milliseconds. A thread that wakes up interrupts the running one only if it has had less than its
//! share so far; else it waits for the scheduler's next tick. A thread with a little work every few microseconds is therefore served at once as long
//! as it sleeps longer than it works, and no wake-up comes before its share has recovered. `sched_yield` does the opposite: since Linux 6.18 the
//! caller loses a whole slice by it.

use std::time::Duration;

use softrxe_proto::Time;

/// A thread that wanted to run and did not for this long has lost its processor to another one. Interrupts are shorter.
pub(crate) const LOST: Duration = Duration::from_micros(200);
/// How long the first loss is remembered, and repeated ones at most. Each test whether the crowd is gone may cost a tick.
const MEMORY: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(640);

/// Remembers that the processor was lost to other threads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crowd {
    until: Option<Time>,
    memory: Duration,
}

impl Crowd {
    /// The calling thread lost its processor.
    pub(crate) fn lost(&mut self, now: Time) {
        // As soon after it was forgotten: the crowd was there all the time.
        let again = self
            .until
            .is_some_and(|until| now <= until + self.memory.max(MEMORY));
        self.memory = if again {
            (self.memory * 2).clamp(MEMORY, LONGEST)
        } else {
            MEMORY
        };
        self.until = Some(now + self.memory);
    }

    /// Returns true while a loss is remembered.
    pub(crate) fn is_here(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

/// A thread sleeps for this many times the time that it worked, and within these bounds.
const SHARE: u32 = 2;
const LEAST: Duration = Duration::from_micros(30);
const MOST: Duration = Duration::from_micros(200);

/// How long the helper sleeps in a crowd after it worked for `worked`, whatever arrives.
pub(crate) fn rest(worked: Duration) -> Duration {
    (worked * SHARE).clamp(LEAST, MOST)
}

/// How long it sleeps after it yielded to others: until it may run again, with a [short slice](super::slice::Slice).
pub(crate) const FORFEIT: Duration = Duration::from_micros(300);

/// How long the helper naps in a crowd while consumers poll. They may stop at any time and look at their memory only, and where processors are few it is
/// the helper that a peer waits for then.
pub(crate) const NAP: Duration = Duration::from_micros(100);

/// Polls of a consumer that found nothing, in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Vain {
    row: u32,
    last: Option<Time>,
}

/// Polls in a row between two pauses: some 15 us.
const ROW: u32 = 32;
/// Polls in a row that make a loop: a consumer that polls now and then may have done something else in between.
const LOOP: u32 = 8;
/// How long a pause is at most; what arrives ends it. Several times the row before it, so that the consumer has most of its share left then.
pub(crate) const PAUSE: Duration = Duration::from_micros(100);

impl Vain {
    /// A poll found something.
    pub(crate) fn found(&mut self) {
        self.row = 0;
        self.last = None;
    }

    /// A poll found nothing. Returns true if the caller is to pause. `preempted` tells whether the scheduler took the processor from the
    /// calling thread since it was last asked.
    pub(crate) fn polled(
        &mut self,
        crowd: &mut Crowd,
        now: Time,
        preempted: impl FnOnce() -> bool,
    ) -> bool {
        let gap = self.last.replace(now).map(|last| now.since(last));
        if gap.is_some_and(|gap| gap >= LOST) {
            if self.row >= LOOP && preempted() {
                crowd.lost(now);
            }
            self.row = 0;
        }
        self.row += 1;
        let pause = self.row.is_multiple_of(ROW) && crowd.is_here(now);
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
    fn a_loss_is_remembered_for_longer_when_it_comes_again() {
        let mut crowd = Crowd::default();
        assert!(!crowd.is_here(at(0)));
        crowd.lost(at(0));
        assert!(crowd.is_here(at(19_999)) && !crowd.is_here(at(20_000)));
        crowd.lost(at(25_000));
        assert!(crowd.is_here(at(64_999)) && !crowd.is_here(at(65_000)));
        let mut now = 65_000;
        for milliseconds in [80, 160, 320, 640, 640] {
            crowd.lost(at(now));
            assert!(crowd.is_here(at(now + milliseconds * 1000 - 1)));
            now += milliseconds * 1000;
            assert!(!crowd.is_here(at(now)));
        }
        crowd.lost(at(now + 2_000_000));
        assert!(!crowd.is_here(at(now + 2_020_000)), "a new one");
    }

    #[test]
    fn the_helper_works_for_a_third_of_the_time_at_most() {
        for worked in [0, 5, 20, 60, 100] {
            let worked = Duration::from_micros(worked);
            assert!(rest(worked) >= worked * 2 && rest(worked) >= LEAST);
        }
        assert_eq!(rest(Duration::from_millis(5)), MOST);
    }

    /// Polls of half a microsecond each from `from` on; returns the pauses, which take no time here.
    fn polls(of: &mut (Vain, Crowd), from: u64, count: u64, preempted: bool) -> usize {
        let (vain, crowd) = of;
        (0..count)
            .filter(|n| vain.polled(crowd, at(from + n / 2), || preempted))
            .count()
    }

    #[test]
    fn a_loop_that_loses_its_processor_pauses_from_then_on() {
        let mut vain = (Vain::default(), Crowd::default());
        assert_eq!(polls(&mut vain, 0, 1000, true), 0);
        assert_eq!(polls(&mut vain, 4000, 320, true), 10);
        // Less than a row never pauses: what is waited for came soon.
        for n in 0..20 {
            vain.0.found();
            assert_eq!(polls(&mut vain, 4200 + n * 20, 31, true), 0);
        }
        vain.0.found();
        assert_eq!(polls(&mut vain, 30_000, 1000, true), 0, "it is forgotten");
    }

    #[test]
    fn what_the_consumer_does_in_between_is_no_loss() {
        let mut vain = (Vain::default(), Crowd::default());
        // It computes between polls, of which it makes few.
        for n in 0..100 {
            assert_eq!(polls(&mut vain, n * 1000, 4, true), 0);
        }
        assert_eq!(polls(&mut vain, 100_000, 1000, true), 0);
        // It sleeps between loops: the scheduler took nothing.
        assert_eq!(polls(&mut vain, 200_000, 1000, false), 0);
        assert_eq!(polls(&mut vain, 300_000, 1000, false), 0);
    }
}
