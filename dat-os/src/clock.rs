//! The monotonic clock as a number, without the checks and conversions of [`Instant`](std::time::Instant).

/// Returns the nanoseconds of the monotonic clock.
#[must_use]
#[inline]
pub fn monotonic_nanos() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` has room for the answer; every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_clock_agrees_with_that_of_the_standard_library() {
        let (begin, other) = (monotonic_nanos(), Instant::now());
        std::thread::sleep(Duration::from_millis(20));
        let other = other.elapsed();
        let passed = Duration::from_nanos(monotonic_nanos() - begin);
        assert!(passed >= other, "{passed:?} {other:?}");
        assert!(passed - other < Duration::from_secs(1));
    }
}
