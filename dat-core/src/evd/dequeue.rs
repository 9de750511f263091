//! Taking events without waiting (dat_evd_dequeue), with its short ways.

use std::sync::atomic::Ordering;

use dat_arena::BriefGuard;

use super::state::Call;
use super::word::{AT_HAND, OTHER, QUIET};
use super::{Evd, Inner};
use crate::error::{Error, Kind, Result, Subtype};
use crate::event::{Dto, Event};
use crate::transport::Transport;

/// `DAT_QUEUE_EMPTY` of an EVD without a completion queue.
pub const EMPTY: Error = Error::of(Kind::QueueEmpty);
/// `DAT_QUEUE_EMPTY` of one with: programs compare it whole, without the class bit.
pub const EMPTY_CQ: Error = Error::of(Kind::QueueEmpty).without_class();

/// Gives a lock back where the short way ends. A call, for there is only one short way out then.
#[cold]
#[inline(never)]
fn refuse<T: Transport>(held: BriefGuard<'static, Inner<T>>) -> bool {
    drop(held);
    false
}

/// Result of [`Evd::dequeue_polled`] and [`Evd::wait_polled`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Polled {
    /// The only completion of the queue was handed out.
    Taken,
    /// The completion queue is empty: a dequeue returns `DAT_QUEUE_EMPTY` without the class bit, a wait has to block.
    Empty,
    /// The batch has completions now: continue with [`Evd::dequeue_batched`] or [`Evd::wait_batched`].
    Batched,
    /// Nothing was done: continue with [`Evd::dequeue`] or [`Evd::wait`].
    SlowPath,
}

/// `DAT_INVALID_HANDLE`, of the argument that dat_evd_dequeue calls the EVD.
const fn dead_argument() -> Error {
    Error::handle(Subtype::InvalidHandle1)
}

/// Takes one event where the consumer wants it. Called at most once a call, and only on success.
pub trait EventSink {
    /// A completion.
    fn dto(&mut self, dto: &Dto);
    /// Any other event.
    fn event(&mut self, event: &Event);
}

impl<S: EventSink> EventSink for &mut S {
    #[inline(always)]
    fn dto(&mut self, dto: &Dto) {
        (**self).dto(dto);
    }
    #[inline]
    fn event(&mut self, event: &Event) {
        (**self).event(event);
    }
}

impl<T: Transport> Evd<T> {
    /// dat_evd_dequeue.
    ///
    /// # Errors
    /// `DAT_QUEUE_EMPTY` (without the class bit if the EVD has a completion queue); `DAT_INVALID_STATE`
    /// (`EVD_WAITER`) while a thread waits; `DAT_INVALID_HANDLE`.
    pub fn dequeue(&'static self, mut sink: impl EventSink) -> Result<()> {
        // The caller may have looked at the address only. A forked child gets no lock that was held in its parent.
        if !self.head.alive() {
            return Err(dead_argument());
        }
        let mut inner = self.inner.lock();
        if !self.head.alive() {
            return Err(dead_argument());
        }
        inner.state.step(Call::Dequeue)?;
        let taken = inner.queue.pop(&mut sink) || inner.queue.take_any(&mut sink);
        inner.tally.found += u64::from(taken);
        inner.tally.missed += u64::from(!taken);
        let yields = !taken && inner.yields();
        self.left(&inner);
        let has_cq = inner.queue.cq.is_some();
        drop(inner);
        if yields {
            std::thread::yield_now();
        }
        if !taken {
            T::after_empty_poll();
        }
        match (taken, has_cq) {
            (true, _) => Ok(()),
            (false, false) => Err(EMPTY),
            (false, true) => Err(EMPTY_CQ),
        }
    }

    /// The short way where a completion [is at hand](super::word::is_batched): if it is of the usual kind it goes straight from
    /// the transport to `sink`, past every call. False: nothing was done, [`Evd::dequeue`] does it.
    #[inline(always)]
    pub fn dequeue_batched(&'static self, sink: &mut impl EventSink) -> bool {
        let Some(mut inner) = self.inner.try_lock() else {
            return false;
        };
        if self.head.word.load(Ordering::Relaxed) != AT_HAND || !inner.queue.take_usual(sink) {
            return refuse(inner);
        }
        if inner.queue.at_hand() == 0 {
            // What is behind the batch comes the long way once.
            let now = if inner.queue.has_behind() {
                OTHER
            } else {
                QUIET
            };
            self.turn(AT_HAND, now);
        }
        inner.queue.step();
        inner.tally.found += 1;
        true
    }

    /// The short way where [nothing is at hand](super::word::needs_cq_poll): asks the transport.
    #[inline(always)]
    pub fn dequeue_polled(&'static self, sink: &mut impl EventSink) -> Polled {
        let Some(mut inner) = self.inner.try_lock() else {
            return Polled::SlowPath;
        };
        if self.head.word.load(Ordering::Relaxed) != QUIET {
            return Polled::SlowPath;
        }
        if !inner.queue.poll() {
            inner.tally.missed += 1;
            drop(inner);
            T::after_empty_poll();
            return Polled::Empty;
        }
        if inner.queue.at_hand() == 1 && inner.queue.take_usual(sink) {
            inner.queue.step();
            inner.tally.found += 1;
            return Polled::Taken;
        }
        self.turn(QUIET, AT_HAND);
        Polled::Batched
    }

    /// From one word to another, under the lock, unless the EVD's life has ended.
    #[inline(always)]
    pub(super) fn turn(&self, from: u64, to: u64) {
        self.head.turn(from, to);
    }
}
