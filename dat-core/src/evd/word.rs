//! What an EVD says of itself without its lock: its [`Head::word`], one of five values, and the questions that the short
//! ways ask of it.
//!
//! [`Head::word`]: crate::head::Head::word

use std::sync::atomic::Ordering;

use super::{Evd, Inner};
use crate::head::ALIVE;
use crate::transport::Transport;

/// Larger than every address of a program.
const HIGH: u64 = 0xffff_ffff_8000_0000;

/// There is nothing to dequeue, and no completion queue to ask.
pub(super) const IDLE: u64 = ALIVE;
/// Events are queued, a thread is in dat_evd_wait, the next completions wait for room at hand, or whoever polls in vain is to
/// yield.
pub(super) const OTHER: u64 = HIGH | ALIVE;
/// With a completion queue; nothing queued, nobody waiting, and completions that were taken out of it.
pub(super) const AT_HAND: u64 = HIGH | ALIVE | 2;
/// The same without.
pub(super) const QUIET: u64 = HIGH | ALIVE | 4;

/// Whether there is nothing to dequeue, nor a reason to look any further, and `event` is not NULL. One comparison: every
/// other word less 1 is larger than any address, that of a dead EVD (0) too.
#[inline(always)]
#[must_use]
pub fn is_idle(word: u64, event: usize) -> bool {
    word.wrapping_sub(IDLE) < event as u64
}

/// Whether [`Evd::dequeue_polled`] may find something.
#[inline(always)]
#[must_use]
pub fn needs_cq_poll(word: u64) -> bool {
    word == QUIET
}

/// Whether [`Evd::dequeue_batched`] may find something.
#[inline(always)]
#[must_use]
pub fn is_batched(word: u64) -> bool {
    word == AT_HAND
}

impl<T: Transport> Evd<T> {
    /// How many events are queued; makes the word say what is so. To be called under the lock after every change, but for
    /// those that know the word themselves.
    #[inline]
    pub(super) fn left(&self, inner: &Inner<T>) -> u32 {
        let queued = inner.queue.len();
        let now = if queued != 0 || inner.state.waited {
            OTHER
        } else if inner.queue.cq.is_none() {
            if inner.patience.lasts() { OTHER } else { IDLE }
        } else if inner.queue.at_hand() != 0 {
            AT_HAND
        } else if inner.queue.has_behind() {
            OTHER
        } else {
            QUIET
        };
        let word = self.head.word.load(Ordering::Relaxed);
        if word != now && word != 0 {
            self.turn(word, now);
        }
        queued as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_is_answered_for_each_word() {
        const DEAD: u64 = 0;
        for event in [0, 8, 0x7fff_ffff_fff8] {
            let there = event != 0;
            for word in [DEAD, IDLE, OTHER, AT_HAND, QUIET] {
                assert_eq!(is_idle(word, event), there && word == IDLE, "{word:#x}");
            }
        }
        for word in [DEAD, IDLE, OTHER, AT_HAND, QUIET] {
            assert_eq!(needs_cq_poll(word), word == QUIET);
            assert_eq!(is_batched(word), word == AT_HAND);
        }
    }

    #[test]
    fn whoever_lives_has_the_bit_that_says_so() {
        for word in [IDLE, OTHER, AT_HAND, QUIET] {
            assert_eq!(word & ALIVE, ALIVE);
        }
    }
}
