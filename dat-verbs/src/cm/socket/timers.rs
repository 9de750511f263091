//! Deadlines of connections in progress, on one timer descriptor.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use dat_os::timerfd::TimerFd;
use parking_lot::Mutex;

/// Deadlines by key. The descriptor becomes readable when one has passed.
pub(crate) struct Timers {
    fd: TimerFd,
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
        Ok(Self {
            fd: TimerFd::new()?,
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
            self.fd.set(after);
        }
        at
    }

    /// Removes a deadline. The descriptor may still fire for it.
    pub(crate) fn unset(&self, at: Instant, key: u64) {
        self.state.lock().queue.remove(&(at, key));
    }

    /// Removes and returns the keys whose deadlines have passed.
    pub(crate) fn due(&self) -> Vec<u64> {
        self.fd.clear();
        let now = Instant::now();
        let mut state = self.state.lock();
        state.armed = None;
        let mut due = Vec::new();
        while let Some((at, key)) = state.queue.first().copied() {
            if at > now {
                state.armed = Some(at);
                self.fd.set(at - now);
                break;
            }
            state.queue.pop_first();
            due.push(key);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use dat_os::sleep::{Slept, on_readable};

    use super::*;

    /// Returns true if the timer fires within `time`.
    fn fires(timers: &Timers, time: Duration) -> bool {
        on_readable([timers.fd()], Some(time)) == Slept::Woken
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
