//! A clock for calls that cannot afford clock_gettime(2): the processor's counter of ticks, corrected by the monotonic clock.
//!
//! clock_gettime(2) waits until all earlier instructions have ended before it reads the counter, and so costs a call that takes 100 ns a
//! fifth of its time. Here the counter alone is read, without an order. The monotonic clock is read every 50 us. So the time
//! is wrong by no more than that, whatever the counter does, and by some nanoseconds where it runs evenly.
//!
//! Only x86-64 has it, and only where the kernel takes the counter for its own clock. Elsewhere each reading is one of the monotonic clock.

use std::sync::LazyLock;

use crate::clock::monotonic_nanos;

/// Nanoseconds for which a correction is used.
const VALIDITY: u64 = 50_000;
/// Shortest interval from which the length of a tick is learnt, in nanoseconds.
const LEARNT_FROM: u64 = 20_000;
/// Most ticks between two readings of the counter, with one of the clock between them, that are taken for the same time.
const SAME_TIME: u64 = 2_000;
/// Lengths of a tick that are believed: 1/16 to 16 nanoseconds, in units of 2^-32.
const LENGTHS: std::ops::RangeInclusive<u64> = 1 << 28..=1 << 36;

/// Monotonic time that is cheap to read. It never runs back.
#[derive(Debug)]
pub struct QuickClock {
    is_even: bool,
    estimate: Estimate,
}

impl QuickClock {
    /// Makes a clock. The first readings are those of the monotonic clock.
    #[must_use]
    pub fn new() -> Self {
        static IS_EVEN: LazyLock<bool> = LazyLock::new(counter_is_even);
        Self {
            is_even: *IS_EVEN,
            estimate: Estimate::default(),
        }
    }

    /// Returns nanoseconds of the monotonic clock.
    #[inline]
    pub fn nanos(&mut self) -> u64 {
        self.estimate
            .at(counter())
            .unwrap_or_else(|| self.correct())
    }

    #[cold]
    fn correct(&mut self) -> u64 {
        let before = counter();
        let nanos = monotonic_nanos();
        let taken = counter().wrapping_sub(before);
        if self.is_even && taken <= SAME_TIME {
            self.estimate.correct(before, nanos)
        } else {
            self.estimate.jump(before, nanos)
        }
    }
}

impl Default for QuickClock {
    fn default() -> Self {
        Self::new()
    }
}

/// What is known about the time of the counter. Pure.
#[derive(Debug, Default)]
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

    /// Records that the counter has `ticks` at `nanos`. Returns the time.
    fn correct(&mut self, ticks: u64, nanos: u64) -> u64 {
        let (passed, time) = (
            ticks.wrapping_sub(self.ticks),
            nanos - self.nanos.min(nanos),
        );
        let is_first = self.ticks == 0;
        let now = self.jump(ticks, nanos);
        if !is_first && time < LEARNT_FROM {
            return now;
        }
        let length = (u128::from(time) << 32) / u128::from(passed.max(1));
        let length = u64::try_from(length).ok().filter(|l| LENGTHS.contains(l));
        self.length = length.filter(|_| !is_first).unwrap_or(0);
        self.valid = (VALIDITY << 32).checked_div(self.length).unwrap_or(0);
        self.nanos = now;
        self.ticks = ticks;
        now
    }

    /// Returns `nanos`, or the latest time that was returned before the counter had `ticks`, if that is later: estimates may be ahead.
    fn jump(&self, ticks: u64, nanos: u64) -> u64 {
        let passed = ticks.wrapping_sub(self.ticks).min(self.valid);
        nanos.max(self.nanos + ((passed * self.length) >> 32))
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
        assert_eq!(estimate.correct(1_000, 500), 500);
        assert_eq!(estimate.at(1_001), None, "one reading tells no length");
        // Too soon.
        assert_eq!(estimate.correct(5_000, 2_500), 2_500);
        assert_eq!(estimate.at(5_001), None);
        // Two ticks a nanosecond.
        assert_eq!(estimate.correct(61_000, 30_500), 30_500);
        assert_eq!(estimate.at(61_000), Some(30_500));
        assert_eq!(estimate.at(61_200), Some(30_600));
        assert_eq!(estimate.at(61_000 + 2 * VALIDITY), None);
        assert_eq!(estimate.at(60_000), None, "a counter that runs back");
        // The clock is behind the estimate.
        assert_eq!(estimate.at(81_000), Some(40_500));
        assert_eq!(estimate.jump(81_000, 40_400), 40_500);
        assert_eq!(estimate.correct(1_061_000, 80_400), 80_500);
        assert_eq!(estimate.jump(1_061_000, 100), 80_500);
    }

    #[test]
    fn time_does_not_run_back_where_clock_and_counter_disagree() {
        let mut estimate = Estimate::default();
        let (mut last, mut ticks, mut nanos) = (0, 1_000, 0);
        for step in 0..100_000_u64 {
            ticks += 37 + step % 1000;
            // The clock runs at half the counter's speed, now a little slower and now a little quicker.
            nanos = nanos.max(ticks / 2 + step * step % 300);
            let now = match estimate.at(ticks) {
                Some(now) => now,
                None if step % 7 == 0 => estimate.jump(ticks, nanos),
                None => estimate.correct(ticks, nanos),
            };
            assert!(now >= last, "{now} after {last} in step {step}");
            last = now;
        }
    }

    #[test]
    fn a_counter_that_stands_or_races_is_not_believed() {
        for ticks in [1_000, 1_001, 1 << 60] {
            let mut estimate = Estimate::default();
            estimate.correct(1_000, 500);
            assert_eq!(estimate.correct(ticks, 100_500), 100_500);
            assert_eq!(estimate.at(ticks + 1), None);
        }
    }
}
