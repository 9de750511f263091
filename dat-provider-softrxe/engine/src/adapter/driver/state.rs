//! State of the threads that drive an adapter, besides their roles: spin budgets and predictions. All of it is under the hub's lock.

use std::time::{Duration, Instant};

use dat_os::schedule::processors;
use dat_os::spin::Spin;
use softrxe_proto::{CompletedOp, Completion, CqId, Time};

use super::roles::Roles;
use crate::adaptive::empty_polls::EmptyPolls;
use crate::adaptive::loop_exit::LoopExit;
use crate::adaptive::oversubscription::Oversubscription;
use crate::adaptive::{Batch, ReplyPredictor};

/// Largest spin budget of a waiter.
const MAX_WAITER_SPIN: Duration = Duration::from_micros(50);

/// State of the threads that drive an adapter.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) roles: Roles,
    spin_for_completion: Spin,
    spin_for_upcall: Spin,
    /// The budget of a leader that received something that ends no wait.
    pub(super) spin_for_more: Spin,
    /// Replies to messages.
    pub(super) replies: ReplyPredictor,
    /// Replies to RDMA writes, which the consumer notices by itself.
    pub(super) write_replies: ReplyPredictor,
    pub(crate) batch: Batch,
    pub(super) empty_polls: EmptyPolls,
    pub(super) loop_exit: LoopExit,
    /// When the ends of peers were last expected beside consumers that poll.
    pub(crate) ends_expected: Option<Time>,
    /// Noticed by consumers that poll and by the helper.
    pub(super) oversubscription: Oversubscription,
}

impl Driver {
    /// Starts without a watcher and without predictions.
    pub(crate) fn new() -> Self {
        Self {
            roles: Roles::default(),
            spin_for_completion: Spin::new(MAX_WAITER_SPIN, processors()),
            spin_for_upcall: Spin::new(MAX_WAITER_SPIN, processors()),
            spin_for_more: Spin::new(MAX_WAITER_SPIN, processors()),
            replies: ReplyPredictor::default(),
            write_replies: ReplyPredictor::default(),
            batch: Batch::default(),
            empty_polls: EmptyPolls::default(),
            loop_exit: LoopExit::default(),
            ends_expected: None,
            oversubscription: Oversubscription::default(),
        }
    }

    /// Records that a consumer took these completions.
    pub(super) fn taken(&mut self, now: Time, completions: &[Completion]) {
        let message = |done: &Completion| {
            matches!(done.op, CompletedOp::Receive | CompletedOp::ReceiveWriteImm)
        };
        if completions.iter().any(message) {
            self.replies.delivered(now);
        }
        if !completions.is_empty() {
            self.empty_polls.found();
        }
    }

    /// Returns how long the leader polls for more, after it received something that ended no wait. `spun` is its last spin that found
    /// nothing: how long it was, and when it began.
    pub(super) fn budget_for_more(
        &mut self,
        spun: Option<(Duration, Instant)>,
        now: Time,
    ) -> Duration {
        if let Some((spun, begin)) = spun {
            self.spin_for_more.missed(spun, begin.elapsed());
        }
        // Where other threads want the processor, one that sleeps gets it back sooner than one that spins.
        if self.oversubscription.is_present(now) {
            Duration::ZERO
        } else {
            self.spin_for_more.budget()
        }
    }

    /// Spin budget for a CQ waiter or event waiter.
    pub(super) const fn spin(&mut self, cq: Option<CqId>) -> &mut Spin {
        match cq {
            Some(_) => &mut self.spin_for_completion,
            None => &mut self.spin_for_upcall,
        }
    }
}
