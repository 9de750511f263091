//! A bound on the lines of one place in the code, as peers cause some of them as often as they like.

use std::collections::HashMap;
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;

/// Lines that a place may write in one [`PERIOD`].
const MOST: u32 = 100;
/// How long a place that wrote all its lines is silent, from the first of them on.
pub(super) const PERIOD: Duration = Duration::from_secs(60);

/// What becomes of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It is written. Before it so many were left out.
    Write { left_out: u64 },
    /// It is written, as the last one of this period.
    WriteLast,
    /// It is left out.
    LeaveOut,
}

/// The lines of a place.
#[derive(Clone, Copy, Debug)]
struct Place {
    since: Instant,
    written: u32,
    left_out: u64,
}

impl Place {
    const fn new(now: Instant) -> Self {
        Self {
            since: now,
            written: 0,
            left_out: 0,
        }
    }

    fn count(&mut self, now: Instant) -> Verdict {
        if now.duration_since(self.since) >= PERIOD {
            let before = std::mem::replace(self, Self::new(now));
            self.written = 1;
            return Verdict::Write {
                left_out: before.left_out,
            };
        }
        if self.written >= MOST {
            self.left_out += 1;
            return Verdict::LeaveOut;
        }
        self.written += 1;
        if self.written == MOST {
            Verdict::WriteLast
        } else {
            Verdict::Write { left_out: 0 }
        }
    }
}

/// Counts the lines of each place. Threads use it at the same time.
#[derive(Debug, Default)]
pub(super) struct Limit(Mutex<HashMap<Identifier, Place>>);

impl Limit {
    /// Counts a line of `place`. While another thread counts, the line is written: in a forked child that thread does not exist, and the
    /// lock stays as it was.
    pub(super) fn count(&self, place: Identifier, now: Instant) -> Verdict {
        let mut places = match self.0.try_lock() {
            Ok(places) => places,
            Err(TryLockError::Poisoned(places)) => places.into_inner(),
            Err(TryLockError::WouldBlock) => return Verdict::Write { left_out: 0 },
        };
        places.entry(place).or_insert(Place::new(now)).count(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_writes_so_many_lines_in_a_period_and_says_how_many_it_left_out() {
        let begin = Instant::now();
        let mut place = Place::new(begin);
        let at = |millis| begin + Duration::from_millis(millis);
        for n in 1..u64::from(MOST) {
            assert_eq!(place.count(at(n)), Verdict::Write { left_out: 0 });
        }
        assert_eq!(place.count(at(100)), Verdict::WriteLast);
        for n in 101..1101 {
            assert_eq!(place.count(at(n)), Verdict::LeaveOut);
        }
        let later = PERIOD.as_millis() as u64;
        assert_eq!(place.count(at(later - 1)), Verdict::LeaveOut);
        assert_eq!(place.count(at(later)), Verdict::Write { left_out: 1001 });
        assert_eq!(place.count(at(later + 1)), Verdict::Write { left_out: 0 });
    }
}
