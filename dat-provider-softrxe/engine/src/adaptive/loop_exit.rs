//! Whether a consumer leaves its polling loop before all that it waits for has come, and reads its memory for the rest. Programs of one-sided
//! communication do so: they poll for the completions of their own requests, then spin on a byte that a peer writes. Pure.
//! ([`empty_polls`](super::empty_polls) is about a consumer that stays in its loop.)

use std::time::Duration;

use softrxe_proto::Time;

/// A consumer without a call for this time has left its polling loop, or has lost its processor. A poll takes less than a microsecond, and the
/// helper that interrupts it needs some more.
const GONE: Duration = Duration::from_micros(10);
/// Score from which on the consumer is likely to read its memory, and the highest score.
const LIKELY: u8 = 2;
const MAX_SCORE: u8 = 4;

/// Predicts that the consumer leaves its next polling loop: counts how often the helper found something for one that had polled and was gone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoopExit {
    score: u8,
    polled: Option<Time>,
}

impl LoopExit {
    /// Records a poll.
    #[inline]
    pub(crate) const fn polled(&mut self, now: Time) {
        self.polled = Some(now);
    }

    /// Returns whether the last poll is some time ago.
    pub(crate) fn is_gone(&self, now: Time) -> bool {
        self.polled.is_none_or(|last| !now.is_within(GONE, last))
    }

    /// Records that something had arrived for a consumer that was gone, while the helper slept because it polled.
    pub(crate) fn left_alone(&mut self) {
        self.score = (self.score + 1).min(MAX_SCORE);
    }

    /// Records that the consumer still polled after one of the helper's long sleeps.
    pub(crate) const fn polled_on(&mut self) {
        self.score = self.score.saturating_sub(1);
    }

    /// Returns whether the consumer is likely to leave its next polling loop for its memory.
    pub(crate) const fn is_likely(&self) -> bool {
        self.score >= LIKELY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_that_left_its_loop_twice_is_expected_to_do_so_again() {
        let mut of = LoopExit::default();
        of.left_alone();
        assert!(!of.is_likely());
        of.left_alone();
        assert!(of.is_likely());
        for _ in 0..10 {
            of.left_alone();
        }
        for left in [true, true, false] {
            of.polled_on();
            assert_eq!(of.is_likely(), left);
        }
    }

    #[test]
    fn a_consumer_is_gone_some_time_after_its_last_poll() {
        let mut of = LoopExit::default();
        let at = |micros: u64| Time::from_nanos(micros * 1000);
        assert!(of.is_gone(at(5)));
        of.polled(at(5));
        assert!(!of.is_gone(at(14)) && of.is_gone(at(15)));
    }
}
