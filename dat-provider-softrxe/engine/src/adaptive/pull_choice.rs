//! Whether the receiver of long payloads pulls them out of the sender's memory, or copies them out of the ring, where the sender has
//! copied them. Pure.
//!
//! To pull is one copy, but the kernel looks up each page: from machine to machine it is a third quicker than the copy out of the ring, or takes
//! five times as long. So the receiver measures both ways, chooses, and measures again after some time.

/// Payloads that are measured for each way.
const SAMPLES: u32 = 8;
/// Payloads from one choice to the next measurement, at first and at most. The number grows by the factor.
const FIRST_INTERVAL: u32 = 64;
const LONGEST_INTERVAL: u32 = 4096;
const FACTOR: u32 = 4;
/// Time of a copy out of the ring, in hundredths of that of a pull, below which payloads are copied. A copy takes the sender's processor as well.
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
    /// The choice, and how many payloads pass before the next measurement.
    Chosen(Way, u32),
}

/// The choice for one channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PullChoice {
    phase: Phase,
    interval: u32,
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
        let (Phase::Measure(way, _) | Phase::Chosen(way, _)) = self.phase;
        way == Way::Pulled
    }

    /// Returns whether the time of the next payload is of use, if it takes this way.
    pub(crate) fn measures(&self, way: Way) -> bool {
        matches!(self.phase, Phase::Measure(wanted, _) if wanted == way)
    }

    /// Records a payload of `bytes`, which took `nanos` if that was [measured](Self::measures).
    pub(crate) fn took(&mut self, way: Way, bytes: usize, nanos: Option<u64>) {
        match (self.phase, nanos) {
            (Phase::Measure(wanted, left), Some(nanos)) if wanted == way => {
                let for_a_mib = (nanos << 20) / bytes.max(1) as u64;
                let best = match way {
                    Way::Pulled => &mut self.pulled,
                    Way::Copied => &mut self.copied,
                };
                *best = for_a_mib.min(*best);
                self.phase = match (left, way) {
                    (2.., _) => Phase::Measure(way, left - 1),
                    (_, Way::Pulled) => Phase::Measure(Way::Copied, SAMPLES),
                    (_, Way::Copied) => Phase::Chosen(self.quicker(), self.interval),
                };
            }
            // Payloads that were on their way when the choice changed.
            (Phase::Measure(..), _) => {}
            (Phase::Chosen(chosen, left @ 2..), _) => self.phase = Phase::Chosen(chosen, left - 1),
            (Phase::Chosen(..), _) => {
                let interval = (self.interval * FACTOR).min(LONGEST_INTERVAL);
                *self = Self {
                    interval,
                    ..Self::new()
                };
            }
        }
    }

    fn quicker(&self) -> Way {
        if self.copied.saturating_mul(100) > self.pulled.saturating_mul(COPIES_BELOW) {
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

    /// Passes `count` payloads the way that is chosen, each of which takes the time of its way. Returns how many were pulled.
    fn pass(choice: &mut PullChoice, count: u32, pulled: u64, copied: u64) -> u32 {
        let mut pulls = 0;
        for _ in 0..count {
            let (way, nanos) = match choice.pulls() {
                true => (Way::Pulled, pulled),
                false => (Way::Copied, copied),
            };
            pulls += u32::from(choice.pulls());
            let measured = choice.measures(way).then_some(nanos);
            choice.took(way, BYTES, measured);
        }
        pulls
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
            assert_eq!(pass(&mut choice, 2 * SAMPLES, pulled, copied), SAMPLES);
            assert_eq!(choice.pulls(), pulls, "{pulled} {copied}");
            let after = pass(&mut choice, FIRST_INTERVAL - 1, pulled, copied);
            assert_eq!(after, if pulls { FIRST_INTERVAL - 1 } else { 0 });
        }
    }

    #[test]
    fn a_choice_is_made_anew_and_less_and_less_often() {
        let mut choice = PullChoice::new();
        assert_eq!(pass(&mut choice, 2 * SAMPLES, 500, 1_000), SAMPLES);
        for interval in [64, 256, 1024, 4096, 4096] {
            assert_eq!(pass(&mut choice, interval, 500, 1_000), interval);
            assert!(choice.measures(Way::Pulled), "{interval}");
            assert_eq!(pass(&mut choice, 2 * SAMPLES, 500, 1_000), SAMPLES);
        }
        // The other way has become quicker.
        pass(&mut choice, 4096 + 2 * SAMPLES, 500, 100);
        assert!(!choice.pulls());
    }

    #[test]
    fn payloads_on_their_way_and_a_slow_one_do_not_count() {
        let mut choice = PullChoice::new();
        pass(&mut choice, SAMPLES, 1_000, 0);
        for _ in 0..100 {
            assert!(!choice.measures(Way::Pulled));
            choice.took(Way::Pulled, BYTES, None);
        }
        assert!(choice.measures(Way::Copied));
        // Its pages were not mapped yet.
        choice.took(Way::Copied, BYTES, Some(1_000_000));
        pass(&mut choice, SAMPLES - 1, 1_000, 300);
        assert!(!choice.pulls());
    }

    #[test]
    fn the_time_counts_by_the_length() {
        let mut choice = PullChoice::new();
        for _ in 0..SAMPLES {
            choice.took(Way::Pulled, 8 * BYTES, Some(8_000));
        }
        for _ in 0..SAMPLES {
            choice.took(Way::Copied, BYTES, Some(900));
        }
        assert!(choice.pulls());
    }
}
