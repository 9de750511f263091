//! When the next look at a ring follows, while long records arrive without a pause. Pure.
//!
//! A receiver that reads each record as soon as it is there is one record behind its sender. Processors read on behind what a loop reads, so it
//! takes lines from the sender which that is about to write, and the sender gets each of them back. A receiver that rests for a while after each
//! look reads several records at a time, and leaves the lines before them alone. Where few records are in flight, rests make a stream
//! slower. So both ways are tried, and the quicker one is kept for some time.

use std::time::Duration;

use softrxe_proto::Time;

/// Shortest record that is long.
const LONG: u64 = 2 << 10;
/// Longest time between two looks of a stream that find something, besides the rest.
const FOLLOWS: Duration = Duration::from_nanos(2500);
/// Length of a rest: half a dozen records of 4 KiB.
const REST: Duration = Duration::from_micros(2);
/// Looks of a trial.
const TRIAL: u32 = 32;
/// Looks for which its result is kept: with rests, and without.
const KEPT_RESTING: u32 = 4096;
const KEPT_AT_ONCE: u32 = 16_384;

/// What is done, and for how many more looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Looks are made at once, to see how quick the stream is then.
    AtOnce(u32),
    /// The receiver rests after each look, to see how quick the stream is then. With the figure of the first phase.
    Resting(u32, Rate),
    /// The quicker way.
    Kept(u32, bool),
}

/// Bytes, and the time that they took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rate(u64, Duration);

impl Rate {
    /// Returns whether it is more than `other` by a quarter: trials are short, and vary.
    fn exceeds(self, other: Self) -> bool {
        let product = |bytes: u64, time: Duration| u128::from(bytes) * time.as_nanos();
        4 * product(self.0, other.1) > 5 * product(other.0, self.1)
    }
}

/// The pace of one ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamPace {
    phase: Phase,
    /// When the phase began, and the bytes since then.
    begin: Time,
    bytes: u64,
    /// The last look that found a record.
    last: Option<Time>,
    /// The end of a rest.
    resume: Time,
}

impl StreamPace {
    pub(crate) const fn new() -> Self {
        Self {
            phase: Phase::AtOnce(TRIAL),
            begin: Time::ZERO,
            bytes: 0,
            last: None,
            resume: Time::ZERO,
        }
    }

    /// Returns whether no look is to be made now.
    #[inline]
    pub(crate) fn rests(&self, now: Time) -> bool {
        now < self.resume
    }

    #[cfg(test)]
    pub(crate) const fn rest_until(&mut self, end: Time) {
        self.resume = end;
    }

    /// Records a look that found `records`, one or more, of `bytes` bytes together.
    pub(crate) fn found(&mut self, now: Time, records: usize, bytes: u64) {
        let before = self.last.replace(now);
        let follows = before.is_some_and(|last| now.is_within(FOLLOWS + REST, last));
        if !follows || bytes < LONG * records as u64 {
            if let Phase::AtOnce(_) | Phase::Resting(..) = self.phase {
                self.enter(now, Phase::AtOnce(TRIAL));
            }
            return;
        }
        self.bytes += bytes;
        let rate = Rate(self.bytes, now.since(self.begin));
        match self.phase {
            Phase::AtOnce(0) => self.enter(now, Phase::Resting(TRIAL, rate)),
            Phase::AtOnce(more) => self.phase = Phase::AtOnce(more - 1),
            Phase::Resting(0, at_once) => {
                let pays = rate.exceeds(at_once);
                let looks = if pays { KEPT_RESTING } else { KEPT_AT_ONCE };
                self.enter(now, Phase::Kept(looks, pays));
            }
            Phase::Resting(more, at_once) => self.phase = Phase::Resting(more - 1, at_once),
            Phase::Kept(0, _) => self.enter(now, Phase::AtOnce(TRIAL)),
            Phase::Kept(more, rests) => self.phase = Phase::Kept(more - 1, rests),
        }
        if let Phase::Resting(..) | Phase::Kept(_, true) = self.phase {
            self.resume = now + REST;
        }
    }

    const fn enter(&mut self, now: Time, phase: Phase) {
        self.phase = phase;
        self.begin = now;
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: u64 = 4160;

    /// A ring with a sender.
    struct Stream {
        /// Time of a record whose next ones are not looked at, and of another one.
        alone: u64,
        together: u64,
        /// Records that may be unread.
        window: u64,
        bytes: u64,
    }

    /// Looks every 50 ns for `micros`. Returns the number of looks that were left out, of 1,000, and the records that were read.
    fn looks(of: &mut StreamPace, stream: &Stream, micros: u64) -> (u64, u64) {
        let (mut left_out, mut read, mut there, mut next) = (0, 0, 0, 0);
        for n in 0..micros * 20 {
            let nanos = 1_000_000 + n * 50;
            let now = Time::from_nanos(nanos);
            let rests = of.rests(now);
            if nanos >= next && there < stream.window {
                there += 1;
                let each = if rests { stream.alone } else { stream.together };
                next = nanos + each;
            }
            if rests {
                left_out += 1;
            } else if there > 0 {
                of.found(now, there as usize, there * stream.bytes);
                read += there;
                there = 0;
            }
        }
        (left_out * 1000 / (micros * 20), read)
    }

    #[test]
    fn a_stream_that_is_quicker_with_rests_gets_them() {
        let stream = Stream {
            alone: 300,
            together: 550,
            window: 64,
            bytes: RECORD,
        };
        let (left_out, read) = looks(&mut StreamPace::new(), &stream, 20_000);
        assert!(left_out > 900, "{left_out}");
        assert!(read > 20_000 * 1000 / 330, "{read}");
    }

    #[test]
    fn one_that_is_not_is_read_at_once() {
        for (alone, together, window, bytes) in [
            // Nothing is gained.
            (550, 550, 64, RECORD),
            // Few are in flight, and one.
            (300, 550, 2, RECORD),
            (300, 1800, 1, RECORD),
            // Short ones, and a sender that is slow.
            (50, 100, 1000, 128),
            (5000, 5000, 64, RECORD),
        ] {
            let stream = Stream {
                alone,
                together,
                window,
                bytes,
            };
            let (left_out, read) = looks(&mut StreamPace::new(), &stream, 20_000);
            assert!(left_out < 40, "{left_out}");
            assert!(read > 20_000 * 960 / together, "{read}");
        }
    }

    #[test]
    fn the_end_of_a_stream_ends_its_trial() {
        let mut of = StreamPace::new();
        for n in 0..u64::from(TRIAL) + 2 {
            of.found(Time::from_nanos(n * 600), 1, RECORD);
        }
        assert!(matches!(of.phase, Phase::Resting(..)));
        let later = Time::from_nanos(1_000_000);
        of.found(later, 1, RECORD);
        assert_eq!(of.phase, Phase::AtOnce(TRIAL));
        assert!(!of.rests(later));
    }
}
