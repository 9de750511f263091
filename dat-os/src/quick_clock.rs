//! A clock for calls that cannot afford clock_gettime(2): the processor's counter of ticks, corrected by the monotonic clock.
//!
//! clock_gettime(2) waits until all earlier instructions have ended before it reads the counter, and so costs a call that takes 100 ns a
//! fifth of its time. Here the counter alone is read, without an order, and the monotonic clock every 50 us. Where the counter runs
//! evenly, the time is wrong by some nanoseconds. Where it does not, for example after the system was suspended, it is wrong by 50 us
//! at most.
//!
//! Only x86-64 has it, and only where the kernel takes the counter for its own clock. Elsewhere each reading is one of the monotonic clock.

use std::sync::LazyLock;

use crate::clock::monotonic_nanos;

/// Nanoseconds for which a correction is used.
const VALIDITY: u64 = 50_000;
/// Intervals from which the length of a tick is learnt, in nanoseconds. In a longer one the system may have been suspended, when the
/// counter goes on and the clock does not.
const LEARNT_FROM: std::ops::RangeInclusive<u64> = 20_000..=10_000_000;
/// A tick is taken for longer or shorter than before by this part of it at most.
const STEADY: u64 = 64;
/// Most ticks between two readings of the counter, with one of the clock between them, that are taken for the same time.
const SAME_TIME: u64 = 2_000;
/// Lengths of a tick that are believed: 1/16 to 16 nanoseconds, in units of 2^-32.
const LENGTHS: std::ops::RangeInclusive<u64> = 1 << 28..=1 << 36;

/// Monotonic time that is cheap to read. It never runs back.
#[derive(Debug)]
pub struct QuickClock {
    is_even: bool,
    /// The latest time that was returned. A reading of the counter may be older than one of another processor before it.
    last: u64,
    estimate: Estimate,
}

impl QuickClock {
    /// Makes a clock. The first readings are those of the monotonic clock.
    #[must_use]
    pub fn new() -> Self {
        static IS_EVEN: LazyLock<bool> = LazyLock::new(counter_is_even);
        Self {
            is_even: *IS_EVEN,
            last: 0,
            estimate: Estimate::default(),
        }
    }

    /// Returns nanoseconds of the monotonic clock.
    #[inline]
    pub fn nanos(&mut self) -> u64 {
        let estimate = if self.is_even {
            self.estimate.at(counter())
        } else {
            None
        };
        let now = estimate.unwrap_or_else(|| self.correct());
        self.last = self.last.max(now);
        self.last
    }

    #[cold]
    fn correct(&mut self) -> u64 {
        if !self.is_even {
            return monotonic_nanos();
        }
        let before = counter();
        let nanos = monotonic_nanos();
        let taken = counter().wrapping_sub(before);
        if taken <= SAME_TIME {
            self.estimate.correct(before, nanos);
        }
        nanos
    }
}

impl Default for QuickClock {
    fn default() -> Self {
        Self::new()
    }
}

/// What is known about the time of the counter. Pure.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    /// The counter, and the clock at the same time. 0: not known yet.
    ticks: u64,
    nanos: u64,
    /// Length of a tick in units of 2^-32 nanoseconds.
    length: u64,
    /// Ticks after which the next correction is due.
    valid: u64,
}

impl Estimate {
    /// Returns the time at which the counter has `ticks`. `None`: a correction is due.
    #[inline]
    const fn at(&self, ticks: u64) -> Option<u64> {
        let passed = ticks.wrapping_sub(self.ticks);
        if passed < self.valid {
            Some(self.nanos + ((passed * self.length) >> 32))
        } else {
            None
        }
    }

    /// Records that the counter has `ticks` at `nanos`.
    fn correct(&mut self, ticks: u64, nanos: u64) {
        let forward = self.ticks != 0 && ticks > self.ticks && nanos > self.nanos;
        let time = nanos.saturating_sub(self.nanos);
        if forward && time < *LEARNT_FROM.start() {
            return;
        }
        let learnt = (forward && LEARNT_FROM.contains(&time)).then(|| {
            let length = (u128::from(time) << 32) / u128::from(ticks - self.ticks);
            u64::try_from(length).unwrap_or(0)
        });
        // The first two readings tell the length; an interval that contradicts it is of no use, and neither is what was learnt.
        let is_steady = |length: &u64| {
            let known = self.length;
            let steady = known == 0 || length.abs_diff(known) <= known / STEADY;
            LENGTHS.contains(length) && steady
        };
        self.length = learnt.filter(is_steady).unwrap_or(0);
        self.valid = (VALIDITY << 32).checked_div(self.length).unwrap_or(0);
        (self.ticks, self.nanos) = (ticks, nanos);
    }
}

/// Returns the counter of ticks.
#[inline]
fn counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has the instruction, and Linux allows it unless a process asks otherwise
    // (PR_SET_TSC), which would break the kernel's own clock as well.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Returns true if the kernel has found that the counters of all processors run evenly and alike.
fn counter_is_even() -> bool {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(target_arch = "x86_64")
        && std::fs::read_to_string(source).is_ok_and(|name| name.trim() == "tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_agrees_with_the_monotonic_one_and_never_runs_back() {
        let mut clock = QuickClock::new();
        let begin = monotonic_nanos();
        let mut last = 0;
        while last < begin + 20_000_000 {
            let before = monotonic_nanos();
            let now = clock.nanos();
            let after = monotonic_nanos();
            assert!(now >= last, "{now} after {last}");
            assert!(now + VALIDITY >= before, "{now} is before {before}");
            assert!(now <= after + VALIDITY, "{now} is after {after}");
            last = now;
        }
    }

    #[test]
    fn the_length_of_a_tick_is_learnt_and_time_is_corrected() {
        let mut estimate = Estimate::default();
        assert_eq!(estimate.at(1_000), None);
        estimate.correct(1_000, 500);
        assert_eq!(estimate.at(1_001), None, "one reading tells no length");
        // Too soon.
        estimate.correct(5_000, 2_500);
        assert_eq!(estimate.at(5_001), None);
        // Two ticks a nanosecond.
        estimate.correct(61_000, 30_500);
        assert_eq!(estimate.at(61_000), Some(30_500));
        assert_eq!(estimate.at(61_200), Some(30_600));
        assert_eq!(estimate.at(61_000 + 2 * VALIDITY), None);
        assert_eq!(estimate.at(60_000), None, "a counter that runs back");
        estimate.correct(161_000, 80_500);
        assert_eq!(estimate.at(161_002), Some(80_501));
    }

    #[test]
    fn a_counter_that_stands_races_or_runs_back_is_not_believed() {
        for ticks in [1_000, 1_001, 1 << 60, 900] {
            let mut estimate = Estimate::default();
            estimate.correct(1_000, 500);
            estimate.correct(ticks, 100_500);
            assert_eq!(estimate.at(ticks + 1), None);
            // It is learnt anew.
            estimate.correct(ticks + 100_000, 150_500);
            estimate.correct(ticks + 200_000, 200_500);
            assert_eq!(estimate.at(ticks + 200_002), Some(200_501));
        }
    }

    #[test]
    fn a_suspended_system_leaves_no_wrong_length() {
        let mut estimate = Estimate::default();
        estimate.correct(3_000_000, 1_000_000);
        estimate.correct(3_150_000, 1_050_000);
        assert_eq!(estimate.at(3_150_031), Some(1_050_010));
        // A second in which the clock ran, and four in which only the counter did; and the same in a millisecond.
        for (ticks, nanos) in [(15_000_000_000, 1_000_000_000), (15_000_000, 1_000_000)] {
            let mut after = Estimate { ..estimate };
            after.correct(3_150_000 + ticks, 1_050_000 + nanos);
            assert_eq!(after.at(3_150_001 + ticks), None);
        }
    }

    #[test]
    fn time_does_not_run_back_where_processors_disagree() {
        let mut clock = QuickClock {
            is_even: false,
            last: u64::MAX / 2,
            estimate: Estimate::default(),
        };
        assert_eq!(clock.nanos(), u64::MAX / 2);
    }
}
