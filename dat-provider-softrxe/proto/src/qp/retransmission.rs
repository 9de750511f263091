//! Retransmission (IBTA 9.7.5, 9.7.6): when the timer starts, what happens when it expires, and how the requester goes back.
//!
//! The lengths of timeouts are in `timeout_lengths`, what a long path changes about them in `round_trip`.

use std::time::Duration;

use super::requester::Requester;
use super::{Progress, Qp};
use crate::memory::Memory;
use crate::outputs::Context;
use crate::time::Time;
use crate::work::Status;

impl Requester {
    /// Starts the timer of the first request that is posted for a channel. It may have to wait for room there.
    #[inline]
    pub(super) fn start_timer(&mut self, now: Time, first: Duration) {
        if self.path.lossless && self.ring.len() == 1 {
            self.restart_timer(now, first);
        }
    }

    /// Begins anew after an acknowledgement of something that was not acknowledged yet.
    #[inline]
    pub(super) fn progressed(&mut self, now: Time, first: Duration) {
        self.retries = 0;
        self.rnr_retries = self.path.rnr_retry;
        self.gone_back_at = None;
        self.restart_timer(now, first);
    }

    #[inline(always)]
    pub(super) fn restart_timer(&mut self, now: Time, first: Duration) {
        if self.una != self.high || self.path.lossless && self.ring.len() > 0 {
            self.run_timer(now, first);
        } else {
            self.timer = None;
        }
    }

    #[inline(never)]
    fn run_timer(&mut self, now: Time, first: Duration) {
        self.timer = Some(now + self.round_trip.timeout(first, self.retries));
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let timer = self.timer.filter(|_| self.ring.len() > 0);
        self.rnr_until.or(timer)
    }

    /// Returns true if the channel's peer has consumed records since the last timeout, and may still have to consume those of
    /// this queue pair.
    fn is_awaited(&mut self, progress: Progress) -> bool {
        let before = std::mem::replace(&mut self.freed, progress.freed);
        let unsent = self.una == self.high;
        self.path.lossless
            && before != progress.freed
            && (unsent || progress.freed < self.sent_until)
    }

    /// Goes back to the oldest unanswered PSN.
    pub(super) fn go_back(&mut self) {
        self.next = self.una;
        self.cursor = self.ring.head();
        self.reads.clear();
    }
}

impl Qp {
    /// Goes back, once per gap, when an answer shows that `una` or its response was lost.
    pub(super) fn handle_gap<M>(&mut self, cx: &mut Context<'_, M>) {
        let r = &mut self.requester;
        if r.una == r.high || r.gone_back_at == Some(r.una) {
            return;
        }
        r.gone_back_at = Some(r.una);
        r.round_trip.lost();
        r.window.lost();
        r.go_back();
        cx.out.counters.go_backs += 1;
    }

    /// Handles the end of an RNR wait, or of a retransmission timeout: goes back to the oldest unanswered PSN, or fails the connection if that
    /// was the last try. Over a channel nothing is lost, so a timeout only counts; one during which the peer read records does not.
    pub(super) fn requester_timeout<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        progress: Progress,
    ) {
        let (r, first) = (&mut self.requester, cx.config.ack_timeout);
        if r.rnr_until.is_some_and(|until| until <= cx.now) {
            r.rnr_until = None;
            r.timer = None;
            if r.path.lossless {
                r.restart_timer(cx.now, first);
            }
            return;
        }
        let Some(due) = r.deadline().filter(|due| *due <= cx.now) else {
            return;
        };
        if r.is_awaited(progress) {
            r.retries = 0;
            r.restart_timer(cx.now, first);
            return;
        }
        cx.out.counters.timeouts += 1;
        if let Some((_, status)) = r.refused {
            self.fail_head(cx, status);
            return;
        }
        let earlier = r.retries;
        if r.spared.counts(cx.now, due) {
            if r.retries >= r.path.retry_count {
                self.fail_head(cx, Status::RetryExceeded);
                return;
            }
            r.retries += 1;
        }
        if r.path.lossless {
            r.restart_timer(cx.now, first);
            return;
        }
        r.gone_back_at = None;
        let waited = r.round_trip.timeout(first, earlier);
        r.round_trip.timed_out(r.window, cx.now, waited, earlier);
        r.window.lost();
        r.go_back();
        r.restart_timer(cx.now, first);
        cx.out.counters.go_backs += 1;
    }
}
