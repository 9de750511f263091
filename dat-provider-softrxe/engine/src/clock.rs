//! The engine's time. It is read at each post and poll, so without the checks and conversions of `Instant`.

use softrxe_proto::Time;

/// Now, monotonic; any thread.
pub(crate) fn now() -> Time {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` has room for the answer; every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Time::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn time_runs_as_others_do() {
        let (begin, other) = (now(), std::time::Instant::now());
        std::thread::sleep(Duration::from_millis(20));
        let other = other.elapsed();
        let passed = now().since(begin);
        assert!(passed >= other, "{passed:?} {other:?}");
        assert!(passed - other < Duration::from_secs(1));
    }
}
