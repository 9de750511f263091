//! Deadlines of connections in progress, on one timer descriptor.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Deadlines by key. The descriptor becomes readable when one has passed.
pub(crate) struct Timers {
    fd: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: BTreeSet<(Instant, u64)>,
    /// Time at which the descriptor will fire. It is not moved back when its deadline is removed: nearly all are
    /// removed, and one spurious event costs less than a system call for each.
    armed: Option<Instant>,
}

impl Timers {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: no pointers are involved.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just created and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self {
            fd,
            state: Mutex::default(),
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Adds a deadline for `key`; returns the value that [`Timers::unset`] takes.
    pub(crate) fn set(&self, after: Duration, key: u64) -> Instant {
        let at = Instant::now() + after;
        let mut state = self.state.lock();
        state.queue.insert((at, key));
        if state.armed.is_none_or(|armed| armed > at) {
            state.armed = Some(at);
            self.arm(after);
        }
        at
    }

    /// Removes a deadline. The descriptor may still fire for it.
    pub(crate) fn unset(&self, at: Instant, key: u64) {
        self.state.lock().queue.remove(&(at, key));
    }

    /// Removes and returns the keys whose deadlines have passed.
    pub(crate) fn due(&self) -> Vec<u64> {
        let mut count = 0_u64;
        // SAFETY: eight bytes are writable at `count`. Failure means that nothing fired.
        unsafe { libc::read(self.fd(), (&raw mut count).cast(), 8) };
        let now = Instant::now();
        let mut state = self.state.lock();
        state.armed = None;
        let mut due = Vec::new();
        while let Some((at, key)) = state.queue.first().copied() {
            if at > now {
                state.armed = Some(at);
                self.arm(at - now);
                break;
            }
            state.queue.pop_first();
            due.push(key);
        }
        due
    }

    fn arm(&self, after: Duration) {
        let spec = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: libc::timespec {
                tv_sec: libc::time_t::try_from(after.as_secs()).unwrap_or(libc::time_t::MAX),
                // Zero would disarm it.
                tv_nsec: libc::c_long::from(after.subsec_nanos()).max(1),
            },
        };
        // SAFETY: `spec` is valid for the call, the previous value is not requested.
        unsafe { libc::timerfd_settime(self.fd(), 0, &raw const spec, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true if the timer fires within `time`.
    fn fires(timers: &Timers, time: Duration) -> bool {
        let mut entry = libc::pollfd {
            fd: timers.fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry is valid.
        let n = unsafe { libc::poll(&raw mut entry, 1, time.as_millis() as i32) };
        n == 1
    }

    #[test]
    fn deadlines_fire_in_order_and_forgotten_ones_do_not() {
        let timers = Timers::new().unwrap();
        let later = timers.set(Duration::from_secs(3600), 1);
        timers.set(Duration::from_millis(20), 2);
        let never = timers.set(Duration::from_millis(10), 3);
        timers.unset(never, 3);
        let mut due = Vec::new();
        // The first event is that of the removed deadline.
        while due.is_empty() {
            assert!(fires(&timers, Duration::from_secs(20)));
            due = timers.due();
        }
        assert_eq!(due, [2]);
        assert!(!fires(&timers, Duration::from_millis(1)), "an hour to go");
        assert_eq!(timers.due(), []);
        timers.unset(later, 1);
        assert!(timers.state.lock().queue.is_empty());
    }
}
