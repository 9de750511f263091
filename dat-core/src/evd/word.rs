//! Word of an EVD: the part of its state that the fast paths read without a lock. [`Head::word`] has one of five
//! values.
//!
//! [`Head::word`]: crate::head::Head::word

use std::sync::atomic::Ordering;

use super::{Evd, Inner};
use crate::head::ALIVE;
use crate::transport::Transport;

/// Number larger than any address of a program.
const HIGH: u64 = 0xffff_ffff_8000_0000;

/// The queue is empty, and there is no completion queue to poll.
pub(super) const IDLE: u64 = ALIVE;
/// The slow path is needed: events are queued, a thread is in dat_evd_wait, completions wait behind the batch, or
/// empty polls yield.
pub(super) const SLOW_PATH: u64 = HIGH | ALIVE;
/// Only the batch has completions; no event is queued and no thread waits.
pub(super) const BATCHED: u64 = HIGH | ALIVE | 2;
/// The completion queue must be polled; nothing is queued or batched and no thread waits.
pub(super) const POLL_CQ: u64 = HIGH | ALIVE | 4;

/// Returns true if a dequeue can return `DAT_QUEUE_EMPTY` at once and `event` is not NULL. One comparison: every
/// other word less 1 is larger than any address, that of a dead EVD (0) too.
#[inline(always)]
#[must_use]
pub fn is_idle(word: u64, event: usize) -> bool {
    word.wrapping_sub(IDLE) < event as u64
}

/// Returns true if [`Evd::dequeue_polled`] may find a completion.
#[inline(always)]
#[must_use]
pub fn needs_cq_poll(word: u64) -> bool {
    word == POLL_CQ
}

/// Returns true if [`Evd::dequeue_batched`] may find a completion.
#[inline(always)]
#[must_use]
pub fn is_batched(word: u64) -> bool {
    word == BATCHED
}

impl<T: Transport> Evd<T> {
    /// Publishes the word that fits the queue and returns the number of queued events. Called under the lock after
    /// every change, except where the caller writes the word itself.
    #[inline]
    pub(super) fn publish_word(&self, inner: &Inner<T>) -> u32 {
        let queued = inner.queue.len();
        let now = if queued != 0 || inner.state.get().waited {
            SLOW_PATH
        } else if inner.queue.cq.is_none() {
            if inner.poll_yield.is_active() {
                SLOW_PATH
            } else {
                IDLE
            }
        } else if inner.queue.batched() != 0 {
            BATCHED
        } else if inner.queue.has_overflow() {
            SLOW_PATH
        } else {
            POLL_CQ
        };
        let word = self.head.word.load(Ordering::Relaxed);
        if word != now && word != 0 {
            self.replace_word(word, now);
        }
        queued as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_predicate_holds_for_its_word_only() {
        const DEAD: u64 = 0;
        for event in [0, 8, 0x7fff_ffff_fff8] {
            let there = event != 0;
            for word in [DEAD, IDLE, SLOW_PATH, BATCHED, POLL_CQ] {
                assert_eq!(is_idle(word, event), there && word == IDLE, "{word:#x}");
            }
        }
        for word in [DEAD, IDLE, SLOW_PATH, BATCHED, POLL_CQ] {
            assert_eq!(needs_cq_poll(word), word == POLL_CQ);
            assert_eq!(is_batched(word), word == BATCHED);
        }
    }

    #[test]
    fn each_word_of_a_live_evd_has_the_alive_bit() {
        for word in [IDLE, SLOW_PATH, BATCHED, POLL_CQ] {
            assert_eq!(word & ALIVE, ALIVE);
        }
    }
}
