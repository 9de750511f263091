//! A histogram of times: each bucket is at most 1/16 wider than its lower end.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets of a power of two.
const STEPS: usize = 16;
const STEP_BITS: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = (64 - STEP_BITS as usize + 1) * STEPS;

/// Counts times in nanoseconds. Threads add at the same time.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// Made by the first time.
    buckets: OnceLock<Box<[AtomicU64]>>,
    largest: AtomicU64,
    sum: AtomicU64,
}

/// Returns the bucket of a time.
fn bucket(time: u64) -> usize {
    let bits = time.max(1).ilog2();
    if bits < STEP_BITS {
        return time as usize;
    }
    let shift = bits - STEP_BITS;
    (shift as usize + 1) * STEPS + (time >> shift) as usize - STEPS
}

/// Returns the largest time of a bucket.
fn upper_end(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let shift = bucket / STEPS - 1;
    let low = ((STEPS + bucket % STEPS) as u64) << shift;
    low + ((1 << shift) - 1)
}

impl Histogram {
    /// Counts a time.
    pub(crate) fn add(&self, time: u64) {
        let buckets = self
            .buckets
            .get_or_init(|| (0..BUCKETS).map(|_| AtomicU64::new(0)).collect());
        buckets[bucket(time)].fetch_add(1, Ordering::Relaxed);
        self.largest.fetch_max(time, Ordering::Relaxed);
        self.sum.fetch_add(time, Ordering::Relaxed);
    }

    /// Returns the time that `percent` of all times do not exceed, to the next end of a bucket; 0 without any.
    pub(crate) fn percentile(&self, percent: u64) -> u64 {
        let Some(buckets) = self.buckets.get() else {
            return 0;
        };
        let counts: Vec<u64> = buckets.iter().map(|b| b.load(Ordering::Relaxed)).collect();
        let rank = (counts.iter().sum::<u64>() * percent).div_ceil(100);
        let mut below = 0;
        let at = counts.iter().position(|count| {
            below += count;
            below >= rank.max(1)
        });
        at.map_or(0, upper_end).min(self.largest())
    }

    /// Returns the largest time.
    pub(crate) fn largest(&self) -> u64 {
        self.largest.load(Ordering::Relaxed)
    }

    /// Returns the sum of all times.
    pub(crate) fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// Forgets all times.
    pub(crate) fn clear(&self) {
        for bucket in self.buckets.get().into_iter().flatten() {
            bucket.store(0, Ordering::Relaxed);
        }
        self.largest.store(0, Ordering::Relaxed);
        self.sum.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_a_bucket_that_is_a_sixteenth_wide() {
        let mut times: Vec<u64> = (0..2000).collect();
        times.extend((11..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 12345]));
        times.push(u64::MAX);
        for time in times {
            let at = bucket(time);
            assert!(at < BUCKETS, "{time}");
            let end = upper_end(at);
            assert!(
                end >= time && end - time <= time / 16,
                "{time} in the bucket that ends at {end}"
            );
        }
    }

    #[test]
    fn percentiles_are_of_the_times_that_were_added() {
        let histogram = Histogram::default();
        assert_eq!((histogram.percentile(50), histogram.largest()), (0, 0));
        (1..=100).for_each(|time| histogram.add(time * 10));
        let p50 = histogram.percentile(50);
        assert!((500..=531).contains(&p50), "{p50}");
        assert_eq!(
            (histogram.percentile(100), histogram.largest()),
            (1000, 1000)
        );
        assert_eq!(histogram.sum(), 50_500);
        histogram.clear();
        assert_eq!((histogram.percentile(99), histogram.sum()), (0, 0));
    }
}
