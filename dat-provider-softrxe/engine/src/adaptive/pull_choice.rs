//! Whether the receiver of long payloads pulls them out of the sender's memory, or copies them out of the ring, where the sender has
//! copied them. Pure.
//!
//! To pull is one copy, but the kernel looks up each page: from machine to machine it is a third quicker than the copy out of the ring, or takes
//! five times as long. The copy into the ring may take much longer than the one out of it, so the sender tells how long it takes (`ring_copies`).
//! The receiver measures both ways, chooses, and measures again after some time.

/// Payloads that are measured for each way.
const SAMPLES: u32 = 8;
/// Bytes from one choice to the next measurement, at first and at most. The number grows by the factor.
const FIRST_INTERVAL: u64 = 4 << 20;
const LONGEST_INTERVAL: u64 = 4 << 30;
const FACTOR: u64 = 4;
/// Bytes that are copied before copies are measured: at least as much as a ring, whose memory may be in no cache or is used for the first time.
/// The consumer's memory may be in the peer's caches, where it was pulled, so later measurements wait for this part of the interval, and the
/// largest number at most.
const FILL: u64 = 2 << 20;
const FILL_DIVISOR: u64 = 16;
const LONGEST_FILL: u64 = 16 << 20;
/// Time of a copy into the ring or out of it, in hundredths of that of a pull, below which payloads are copied. Both ends copy at the same time, so
/// the longer time counts. A copy takes the sender's processor as well.
const COPIES_BELOW: u64 = 80;

/// How a payload got to its destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Out of the sender's memory.
    Pulled,
    /// Out of the ring.
    Copied,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// So many payloads of this way are still to be measured.
    Measure(Way, u32),
    /// So many bytes are still to be copied before such copies are measured.
    Fill(u64),
    /// The choice, and how many bytes pass before the next measurement.
    Chosen(Way, u64),
}

/// The choice for one channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PullChoice {
    phase: Phase,
    interval: u64,
    /// Shortest times for a MiB in nanoseconds, of this measurement.
    pulled: u64,
    copied: u64,
}

impl PullChoice {
    /// Begins to measure.
    pub(crate) const fn new() -> Self {
        Self {
            phase: Phase::Measure(Way::Pulled, SAMPLES),
            interval: FIRST_INTERVAL,
            pulled: u64::MAX,
            copied: u64::MAX,
        }
    }

    /// Returns whether the sender should lend its payloads now.
    pub(crate) fn pulls(&self) -> bool {
        matches!(
            self.phase,
            Phase::Measure(Way::Pulled, _) | Phase::Chosen(Way::Pulled, _)
        )
    }

    /// Returns whether the time of the next payload is of use, if it takes this way.
    pub(crate) fn measures(&self, way: Way) -> bool {
        matches!(self.phase, Phase::Measure(wanted, _) if wanted == way)
    }

    /// Records a payload of `bytes`, which took `nanos` if that was [measured](Self::measures). `copy_time` is how long the sender takes to copy a
    /// MiB into the ring, in nanoseconds, or 0.
    pub(crate) fn took(&mut self, way: Way, bytes: usize, nanos: Option<u64>, copy_time: u32) {
        let length = bytes as u64;
        match (self.phase, nanos) {
            (Phase::Measure(wanted, left), Some(nanos)) if wanted == way => {
                let for_a_mib = (nanos << 20) / length.max(1);
                let best = match way {
                    Way::Pulled => &mut self.pulled,
                    Way::Copied => &mut self.copied,
                };
                *best = for_a_mib.min(*best);
                self.phase = match (left, way) {
                    (2.., _) => Phase::Measure(way, left - 1),
                    (_, Way::Pulled) => Phase::Fill(self.fill()),
                    (_, Way::Copied) => Phase::Chosen(self.quicker(copy_time), self.interval),
                };
            }
            (Phase::Fill(left), _) if way == Way::Copied => {
                self.phase = match left.saturating_sub(length) {
                    0 => Phase::Measure(Way::Copied, SAMPLES),
                    left => Phase::Fill(left),
                }
            }
            // Payloads that were on their way when the choice changed.
            (Phase::Measure(..) | Phase::Fill(_), _) => {}
            (Phase::Chosen(chosen, left), _) if left > length => {
                self.phase = Phase::Chosen(chosen, left - length);
            }
            (Phase::Chosen(..), _) => {
                let interval = (self.interval * FACTOR).min(LONGEST_INTERVAL);
                *self = Self {
                    interval,
                    ..Self::new()
                };
            }
        }
    }

    fn fill(&self) -> u64 {
        (self.interval / FILL_DIVISOR).clamp(FILL, LONGEST_FILL)
    }

    fn quicker(&self, copy_time: u32) -> Way {
        let copied = self.copied.max(copy_time.into());
        if copied.saturating_mul(100) > self.pulled.saturating_mul(COPIES_BELOW) {
            Way::Pulled
        } else {
            Way::Copied
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 32 << 10;

    /// Passes payloads of `bytes` the way that is chosen, each of which takes the time of its way. Returns how many bytes were pulled.
    fn pass(choice: &mut PullChoice, bytes: u64, pulled: u64, copied: u64) -> u64 {
        let mut pulls = 0;
        for _ in 0..bytes / BYTES as u64 {
            let (way, nanos) = match choice.pulls() {
                true => (Way::Pulled, pulled),
                false => (Way::Copied, copied),
            };
            pulls += u64::from(choice.pulls());
            let measured = choice.measures(way).then_some(nanos);
            choice.took(way, BYTES, measured, 0);
        }
        pulls * BYTES as u64
    }

    /// Bytes that are measured for each way.
    const MEASURED: u64 = SAMPLES as u64 * BYTES as u64;

    /// Copies the bytes before a first measurement, of which nothing is measured.
    fn fill(choice: &mut PullChoice) {
        for _ in 0..FILL / BYTES as u64 {
            assert!(!choice.pulls() && !choice.measures(Way::Copied));
            choice.took(Way::Copied, BYTES, None, 0);
        }
        assert!(choice.measures(Way::Copied));
    }

    #[test]
    fn the_quicker_way_is_chosen_and_a_copy_has_to_be_much_quicker() {
        for (pulled, copied, pulls) in [
            (1_000, 200, false),
            (1_000, 790, false),
            (1_000, 810, true),
            (1_000, 1_500, true),
        ] {
            let mut choice = PullChoice::new();
            let measured = pass(&mut choice, 2 * MEASURED + FILL, pulled, copied);
            assert_eq!(measured, MEASURED);
            assert_eq!(choice.pulls(), pulls, "{pulled} {copied}");
            let rest = FIRST_INTERVAL - BYTES as u64;
            let after = pass(&mut choice, rest, pulled, copied);
            assert_eq!(after, if pulls { rest } else { 0 });
        }
    }

    #[test]
    fn a_choice_is_made_anew_and_less_and_less_often() {
        let mut choice = PullChoice::new();
        let first = pass(&mut choice, 2 * MEASURED + FILL, 500, 1_000);
        assert_eq!(first, MEASURED);
        for (interval, fill) in [(4, 2), (16, 4), (64, 16), (256, 16), (1024, 16), (4096, 16)] {
            assert_eq!(
                pass(&mut choice, interval << 20, 500, 1_000),
                interval << 20
            );
            assert!(choice.measures(Way::Pulled), "{interval}");
            let bytes = 2 * MEASURED + (fill << 20);
            assert_eq!(pass(&mut choice, bytes, 500, 1_000), MEASURED);
            assert!(choice.pulls(), "{interval}");
        }
        // The other way has become quicker.
        let bytes = LONGEST_INTERVAL + 2 * MEASURED + LONGEST_FILL;
        pass(&mut choice, bytes, 500, 100);
        assert!(!choice.pulls());
    }

    #[test]
    fn payloads_on_their_way_and_a_slow_one_do_not_count() {
        let mut choice = PullChoice::new();
        pass(&mut choice, MEASURED, 1_000, 0);
        for _ in 0..100 {
            assert!(!choice.measures(Way::Pulled));
            choice.took(Way::Pulled, BYTES, None, 0);
        }
        fill(&mut choice);
        // Another program had the processor.
        choice.took(Way::Copied, BYTES, Some(1_000_000), 0);
        pass(&mut choice, MEASURED - BYTES as u64, 1_000, 300);
        assert!(!choice.pulls());
    }

    #[test]
    fn the_time_counts_by_the_length() {
        let mut choice = PullChoice::new();
        for _ in 0..SAMPLES {
            choice.took(Way::Pulled, 8 * BYTES, Some(8_000), 0);
        }
        fill(&mut choice);
        for _ in 0..SAMPLES {
            choice.took(Way::Copied, BYTES, Some(900), 0);
        }
        assert!(choice.pulls());
    }

    #[test]
    fn the_slower_end_of_a_copy_counts() {
        // A MiB is pulled in 100 us, and copied out of the ring in 30.
        for (copy_time, pulls) in [
            (0, false),
            (79_000, false),
            (81_000, true),
            (u32::MAX, true),
        ] {
            let mut choice = PullChoice::new();
            for _ in 0..SAMPLES {
                choice.took(Way::Pulled, 1 << 20, Some(100_000), copy_time);
            }
            fill(&mut choice);
            for _ in 0..SAMPLES {
                choice.took(Way::Copied, 1 << 20, Some(30_000), copy_time);
            }
            assert_eq!(choice.pulls(), pulls, "{copy_time}");
        }
    }
}
