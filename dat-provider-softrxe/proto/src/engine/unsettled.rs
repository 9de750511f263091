//! Acknowledgements that came with a record of a channel and are handled after it.
//!
//! A consumer that waits for a message gets it before the engine has ended the requests that are acknowledged with it. An acknowledgement
//! covers all PSNs before its own, so it may come late: until it is handled, the queue pair is as if it had not arrived. It is handled
//! before the next record, and before each call that could tell the difference. There is one at most.

use super::Engine;
use crate::memory::Memory;
use crate::psn::Psn;
use crate::time::Time;
use crate::work::CqId;

/// An acknowledgement that is not handled yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsettled {
    pub(super) slot: u32,
    /// The newest PSN that it covers.
    pub(super) psn: Psn,
    /// When it arrived, or when a request was posted after it: the timer of that one begins then.
    pub(super) at: Time,
}

impl<M: Memory> Engine<M> {
    /// Handles what the last record of a channel has left. Calls that could tell the difference do it by themselves; a driver does it when
    /// its consumer need not wait for it.
    #[inline]
    pub fn settle(&mut self) {
        if let Some(unsettled) = self.unsettled.take() {
            self.settle_one(unsettled);
        }
    }

    /// Returns true if what is left brings a completion to `cq`.
    #[inline]
    #[must_use]
    pub fn leaves_completions(&self, cq: CqId) -> bool {
        let Some(left) = self.unsettled else {
            return false;
        };
        match self.qps.get(left.slot as usize) {
            Some(Some(qp)) => qp.init.send_cq == cq && qp.completes_with(left.psn),
            _ => false,
        }
    }

    fn settle_one(&mut self, unsettled: Unsettled) {
        let Unsettled { slot, psn, at: now } = unsettled;
        let is_urgent = self.with_unsettled_qp(now, slot, |qp, cx| {
            qp.handle_ack(cx, psn);
            qp.has_urgent_output(cx)
        });
        if is_urgent == Some(true) {
            self.enqueue(slot);
        }
        self.arm(now, slot);
    }

    /// Leaves an acknowledgement for [`settle`](Self::settle), unless a thread waits for the completions that it brings.
    #[inline]
    pub(super) fn leave_unsettled(&mut self, now: Time, slot: u32, psn: Psn) {
        let unsettled = Unsettled { slot, psn, at: now };
        let Some(Some(qp)) = self.qps.get(slot as usize) else {
            return;
        };
        // What was not sent yet may be sent before this is handled.
        if !qp.has_sent(psn) {
            return;
        }
        if self.out.is_armed(qp.init.send_cq) {
            self.settle_one(unsettled);
        } else {
            self.unsettled = Some(unsettled);
        }
    }
}
