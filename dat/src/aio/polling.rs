//! How long a task polls before it leaves its wake-up to a descriptor. Pure.

use std::time::Duration;

use dat_os::spin::Spin;

use super::linger::MAX_MISSES;

/// Waits without polling after that many which polling did not end.
const REST: u32 = 256;

/// A [`Spin`] that rests where it fails time and again. A task of a runtime does not yield its processor while it polls, and keeps
/// it from a peer that waits for the same one.
#[derive(Debug)]
pub(super) struct Polling {
    spin: Spin,
    /// Waits in a row that polling did not end.
    misses: u32,
    /// Waits that are still to pass without polling.
    rest: u32,
}

impl Polling {
    /// Returns a budget of `max`, or of zero if there is one of `processors` only.
    pub(super) const fn new(max: Duration, processors: usize) -> Self {
        Self {
            spin: Spin::new(max, processors),
            misses: 0,
            rest: 0,
        }
    }

    /// Returns how long the next wait polls.
    pub(super) const fn budget(&self) -> Duration {
        if self.rest > 0 {
            return Duration::ZERO;
        }
        self.spin.budget()
    }

    /// Records that an event came while the task polled. With `preempted`, another thread ran on this processor meanwhile, perhaps the
    /// peer that the task kept waiting.
    pub(super) fn hit(&mut self, preempted: bool) {
        if preempted {
            self.failed();
        } else {
            self.misses = 0;
            self.spin.hit();
        }
    }

    /// Records that the descriptor ended a wait: `waited` after it began, of which the task polled for `polled`.
    pub(super) fn missed(&mut self, polled: Duration, waited: Duration) {
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        self.spin.missed(polled, waited);
        self.failed();
    }

    const fn failed(&mut self) {
        self.misses += 1;
        if self.misses == MAX_MISSES {
            self.misses = 0;
            self.rest = REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_micros(50);
    /// The peer answers after polling has ended, every time.
    const LATE: Duration = Duration::from_micros(90);

    #[test]
    fn polling_rests_where_it_fails_time_and_again_and_is_tried_again() {
        let mut polling = Polling::new(MAX, 2);
        for _ in 0..2 {
            for _ in 0..MAX_MISSES {
                assert_eq!(polling.budget(), MAX);
                polling.missed(MAX, LATE);
            }
            for _ in 0..REST {
                assert_eq!(polling.budget(), Duration::ZERO);
                polling.missed(Duration::ZERO, LATE);
            }
        }
        assert_eq!(polling.budget(), MAX);
    }

    #[test]
    fn an_event_after_another_thread_ran_does_not_count() {
        let mut polling = Polling::new(MAX, 2);
        for _ in 0..MAX_MISSES {
            polling.hit(true);
        }
        assert_eq!(polling.budget(), Duration::ZERO);
    }

    #[test]
    fn polling_does_not_rest_where_it_helps_now_and_then() {
        let mut polling = Polling::new(MAX, 2);
        for _ in 0..100 {
            for _ in 1..MAX_MISSES {
                polling.missed(MAX, LATE);
            }
            polling.hit(false);
            assert_eq!(polling.budget(), MAX);
        }
    }
}
