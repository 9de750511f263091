//! Whether a future polls for a moment before it waits. Pure.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Misses after which polling rests: waits that it did not end.
pub(super) const MAX_MISSES: u32 = 8;
/// Misses that a hit makes good. A hit saves a sleep and its end, 30 to 60 us; a miss costs 10 us. So polling goes on where one wait of
/// five is a hit, and rests sooner or later where it is fewer, also if the misses are never [`MAX_MISSES`] in a row.
const WORTH: u32 = 4;
/// Waits without polling after that.
const REST: u32 = 32;

/// Rests where polling fails time and again. Several threads may use it; a count that one of them loses does not matter.
#[derive(Debug)]
pub(super) struct Linger {
    /// Misses that no hit has made good.
    misses: AtomicU32,
    /// Waits that are still to pass without polling.
    rest: AtomicU32,
    /// The last events woke several tasks.
    several: AtomicBool,
    /// The machine has several processors: the peer may run meanwhile.
    helps: bool,
}

impl Linger {
    pub(super) const fn new(processors: usize) -> Self {
        Self {
            misses: AtomicU32::new(0),
            rest: AtomicU32::new(0),
            several: AtomicBool::new(false),
            helps: processors > 1,
        }
    }

    /// Returns whether the next wait polls.
    pub(super) fn is_due(&self) -> bool {
        if !self.helps || self.several.load(Ordering::Relaxed) {
            return false;
        }
        let rest = self.rest.load(Ordering::Relaxed);
        if rest > 0 {
            self.rest.store(rest - 1, Ordering::Relaxed);
        }
        rest == 0
    }

    /// Records whether the last events woke several tasks. Then others are about to run.
    pub(super) fn woke(&self, several: bool) {
        self.several.store(several, Ordering::Relaxed);
    }

    /// Records whether polling found what the future waits for.
    pub(super) fn ended(&self, found: bool) {
        let misses = self.misses.load(Ordering::Relaxed);
        let mut misses = if found {
            misses.saturating_sub(WORTH)
        } else {
            misses + 1
        };
        if misses >= MAX_MISSES {
            self.rest.store(REST, Ordering::Relaxed);
            misses = 0;
        }
        self.misses.store(misses, Ordering::Relaxed);
    }
}

/// Results in a row after which a task leaves the others of its thread their turns.
const TURN: u32 = 32;

/// Counts what futures find without waiting. A task that always finds something would never let the others run.
#[derive(Debug, Default)]
pub(super) struct Turns {
    found: AtomicU32,
}

impl Turns {
    /// Returns whether a future is to wait, although it may find something; it is woken at once.
    pub(super) fn is_over(&self) -> bool {
        let is_over = self.found.load(Ordering::Relaxed) >= TURN;
        if is_over {
            self.found.store(0, Ordering::Relaxed);
        }
        is_over
    }

    /// Records whether a future found something, or waits.
    pub(super) fn ended(&self, found: bool) {
        let count = if found {
            self.found.load(Ordering::Relaxed) + 1
        } else {
            0
        };
        self.found.store(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_after_results_in_a_row() {
        let turns = Turns::default();
        for found in [TURN, TURN - 1, 1] {
            for _ in 0..found {
                assert!(!turns.is_over());
                turns.ended(true);
            }
            assert_eq!(turns.is_over(), found == TURN);
            turns.ended(false);
        }
    }

    #[test]
    fn a_future_lingers_until_that_fails_time_and_again() {
        let linger = Linger::new(2);
        for _ in 0..2 {
            for _ in 0..MAX_MISSES {
                assert!(linger.is_due());
                linger.ended(false);
            }
            assert!((0..REST).all(|_| !linger.is_due()));
        }
        for _ in 0..REST {
            for found in [false, false, true] {
                assert!(linger.is_due());
                linger.ended(found);
            }
        }
        assert!(!Linger::new(1).is_due());
        // One hit among `misses`: how many waits poll before the rest?
        let polls = |misses: usize| {
            let linger = Linger::new(2);
            let mut waits = (0..1000).map(|wait| wait % (misses + 1) == misses);
            let polled = |found: bool| linger.is_due().then(|| linger.ended(found)).is_some();
            waits.position(|found| !polled(found))
        };
        assert_eq!(
            [1, 3, 4, 5, 7].map(polls),
            [None, None, None, Some(23), Some(13)]
        );
        for several in [false, true, false] {
            linger.woke(several);
            assert_eq!(linger.is_due(), !several);
        }
    }
}
