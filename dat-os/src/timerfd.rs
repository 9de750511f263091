//! A descriptor that becomes readable at a time (timerfd_create(2)).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::descriptor::above_streams;

/// A non-blocking timer of the monotonic clock, closed on exec.
#[derive(Debug)]
pub struct TimerFd(OwnedFd);

impl TimerFd {
    /// Creates a timer that is not set.
    ///
    /// # Errors
    /// The errors of `timerfd_create`, such as `EMFILE`.
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: no pointers are involved.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is new and has no other owner.
        above_streams(unsafe { OwnedFd::from_raw_fd(fd) }).map(Self)
    }

    /// Makes the descriptor readable once after `delay`, instead of at the time that was set before.
    pub fn set(&self, delay: Duration) {
        let spec = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: libc::timespec {
                tv_sec: libc::time_t::try_from(delay.as_secs()).unwrap_or(libc::time_t::MAX),
                // A value of zero would disarm the timer.
                tv_nsec: libc::c_long::from(delay.subsec_nanos()).max(1),
            },
        };
        // SAFETY: `spec` is valid for the call; the previous setting is not requested.
        unsafe {
            libc::timerfd_settime(self.as_raw_fd(), 0, &raw const spec, std::ptr::null_mut())
        };
    }

    /// Makes the descriptor unreadable until the next time that is set. It is not a cancellation point.
    pub fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: `count` has eight writable bytes. The only failure is a timer that has not expired.
        let _ = unsafe { libc::syscall(libc::SYS_read, self.as_raw_fd(), &raw mut count, 8_usize) };
    }
}

impl AsRawFd for TimerFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sleep::{Slept, on_readable};

    #[test]
    fn a_timer_expires_once_at_the_time_that_was_set_last() {
        let timer = TimerFd::new().unwrap();
        let expires = |time| on_readable([timer.as_raw_fd()], Some(time)) == Slept::Woken;
        assert!(!expires(Duration::from_millis(1)));
        timer.set(Duration::from_secs(3600));
        timer.set(Duration::ZERO);
        assert!(expires(Duration::from_secs(20)));
        timer.clear();
        assert!(!expires(Duration::from_millis(5)));
    }
}
