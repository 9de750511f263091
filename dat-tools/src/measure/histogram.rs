//! Durations, counted: extremes, mean and deviation are exact, percentiles to a thousandth.

/// Bits of a value that are kept: values of up to 1023 ns are exact.
const KEPT: u32 = 10;
const STEPS: usize = 1 << KEPT;

/// Number of durations of each length, in memory that does not grow with their number.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: u128,
    squares: u128,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: Vec::new(),
            total: 0,
            sum: 0,
            squares: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

/// Figures of a measurement, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) count: u64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) average: f64,
    pub(crate) stdev: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

fn bucket(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(KEPT);
    shift as usize * STEPS + (value >> shift) as usize
}

/// Returns the middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let (shift, kept) = (bucket / STEPS, (bucket % STEPS) as u64);
    (kept << shift) + ((1 << shift) >> 1)
}

impl Histogram {
    /// Adds a duration in nanoseconds.
    #[inline]
    pub(crate) fn add(&mut self, value: u64) {
        let at = bucket(value);
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.total += 1;
        self.sum += u128::from(value);
        self.squares += u128::from(value) * u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Returns the number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.total
    }

    /// Returns the duration that a share of the others does not exceed, by the nearest-rank method; 0 if there is none.
    pub(crate) fn percentile(&self, share: f64) -> f64 {
        let rank = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle(at).clamp(self.min, self.max) as f64;
            }
        }
        0.0
    }

    /// Returns the figures, each multiplied by `factor`; `None` without a duration.
    pub(crate) fn summary(&self, factor: f64) -> Option<Summary> {
        if self.total == 0 {
            return None;
        }
        let count = self.total as f64;
        let average = self.sum as f64 / count;
        // n * sum of squares - square of the sum is exact, so that nearly equal durations lose no digits.
        let spread = u128::from(self.total)
            .checked_mul(self.squares)
            .zip(self.sum.checked_mul(self.sum))
            .map_or(0.0, |(a, b)| a.saturating_sub(b) as f64);
        let stdev = if self.total > 1 {
            (spread / (count * (count - 1.0))).sqrt()
        } else {
            0.0
        };
        Some(Summary {
            count: self.total,
            min: self.min as f64 * factor,
            max: self.max as f64 * factor,
            average: average * factor,
            stdev: stdev * factor,
            p50: self.percentile(0.5) * factor,
            p90: self.percentile(0.9) * factor,
            p99: self.percentile(0.99) * factor,
            p999: self.percentile(0.999) * factor,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut all = Histogram::default();
        values.into_iter().for_each(|value| all.add(value));
        all
    }

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let all = of((1..=1000).rev());
        let shares = [0.0, 0.001, 0.5, 0.9, 0.99, 0.999, 1.0];
        let found = shares.map(|share| all.percentile(share));
        assert_eq!(found, [1.0, 1.0, 500.0, 900.0, 990.0, 999.0, 1000.0]);
        assert_eq!(of([7]).percentile(0.999), 7.0);
        assert_eq!(of([]).percentile(0.5), 0.0);
    }

    #[test]
    fn long_durations_are_off_by_a_thousandth_at_most() {
        let mut value = 1_u64;
        while value < u64::MAX / 3 {
            for near in [value, value + 1, value + value / 3] {
                let found = middle(bucket(near));
                assert!(
                    found.abs_diff(near) <= near / 1000 + 1,
                    "{near} became {found}"
                );
            }
            value *= 2;
        }
    }

    #[test]
    fn extremes_mean_and_deviation_are_exact() {
        let summary = of([2, 4, 4, 4, 5, 5, 7, 9]).summary(0.5).expect("figures");
        assert_eq!((summary.count, summary.min, summary.max), (8, 1.0, 4.5));
        assert_eq!(summary.average, 2.5);
        assert!((summary.stdev - 0.5 * (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        let far = of([10_000_000_000, 10_000_000_002]).summary(1.0);
        assert!(far.is_some_and(|s| (s.stdev - 2.0_f64.sqrt()).abs() < 1e-9));
        assert_eq!(of([5]).summary(1.0).map(|s| s.stdev), Some(0.0));
        assert_eq!(of([]).summary(1.0), None);
    }
}
