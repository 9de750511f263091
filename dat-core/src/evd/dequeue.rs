//! Dequeueing of events without waiting (dat_evd_dequeue), with its fast paths.

use std::sync::atomic::Ordering;

use dat_arena::BriefGuard;

use super::state::Input;
use super::word::{BATCHED, POLL_CQ, SLOW_PATH};
use super::{Evd, Inner};
use crate::error::{Error, Kind, Result, Subtype};
use crate::event::{Dto, Event};
use crate::transport::Transport;

/// `DAT_QUEUE_EMPTY` of an EVD without a completion queue.
pub const EMPTY: Error = Error::of(Kind::QueueEmpty);
/// `DAT_QUEUE_EMPTY` of an EVD with a completion queue: programs compare the whole code, without the class bit.
pub const EMPTY_CQ: Error = Error::of(Kind::QueueEmpty).without_class();

/// Unlocks at the end of the fast path and returns false. A call, so that the fast path has only one exit.
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
    /// The completion queue is empty, and one more poll costs less than to block: continue with [`Evd::wait_polled`].
    Again,
    /// Nothing was done: continue with [`Evd::dequeue`] or [`Evd::wait`].
    SlowPath,
}

/// Returns `DAT_INVALID_HANDLE` for dat_evd_dequeue's EVD argument.
const fn dead_argument() -> Error {
    Error::handle(Subtype::InvalidHandle1)
}

/// Receiver of one event, in the consumer's layout. Called at most once a call, and only on success.
pub trait EventSink {
    /// Takes a completion.
    fn dto(&mut self, dto: &Dto);
    /// Takes any other event.
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

/// Keeps the event.
impl EventSink for Option<Event> {
    fn dto(&mut self, dto: &Dto) {
        *self = Some(Event::Dto(*dto));
    }
    fn event(&mut self, event: &Event) {
        *self = Some(*event);
    }
}

impl<T: Transport> Evd<T> {
    /// Dequeues one event (dat_evd_dequeue).
    ///
    /// # Errors
    /// `DAT_QUEUE_EMPTY` (without the class bit if the EVD has a completion queue); `DAT_INVALID_STATE`
    /// (`EVD_WAITER`) while a thread waits; `DAT_INVALID_HANDLE`.
    pub fn dequeue(&'static self, mut sink: impl EventSink) -> Result<()> {
        // The caller may have checked the address only. A forked child never gets a lock that was held in its parent.
        if !self.head.alive() {
            return Err(dead_argument());
        }
        let mut inner = self.inner.lock();
        if !self.head.alive() {
            return Err(dead_argument());
        }
        inner.state.check(Input::Dequeue)?;
        let taken = inner.queue.pop(&mut sink) || inner.queue.take_slow(&mut sink);
        inner.counters.found += u64::from(taken);
        inner.counters.missed += u64::from(!taken);
        let should_yield = !taken && inner.should_yield();
        self.publish_word(&inner);
        let has_cq = inner.queue.cq.is_some();
        drop(inner);
        if should_yield {
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

    /// Dequeues on the fast path if the word [says that completions are batched](super::word::is_batched): passes the
    /// next completion from the transport to `sink` without a call. Returns false if that is not possible; then
    /// nothing was done, and the caller continues with [`Evd::dequeue`].
    #[inline(always)]
    pub fn dequeue_batched(&'static self, sink: &mut impl EventSink) -> bool {
        let Some(mut inner) = self.inner.try_lock() else {
            return false;
        };
        if self.head.word.load(Ordering::Relaxed) != BATCHED || !inner.queue.take_fast(sink) {
            return refuse(inner);
        }
        if inner.queue.batched() == 0 {
            // The overflow is moved into the batch on the slow path.
            let now = if inner.queue.has_overflow() {
                SLOW_PATH
            } else {
                POLL_CQ
            };
            self.replace_word(BATCHED, now);
        }
        inner.queue.advance();
        inner.counters.found += 1;
        true
    }

    /// Dequeues on the fast path if the word [asks for a poll](super::word::needs_cq_poll): polls the transport.
    #[inline(always)]
    pub fn dequeue_polled(&'static self, sink: &mut impl EventSink) -> Polled {
        let Some(mut inner) = self.inner.try_lock() else {
            return Polled::SlowPath;
        };
        if self.head.word.load(Ordering::Relaxed) != POLL_CQ {
            return Polled::SlowPath;
        }
        if !inner.queue.poll() {
            inner.counters.missed += 1;
            drop(inner);
            T::after_empty_poll();
            return Polled::Empty;
        }
        if inner.queue.batched() == 1 && inner.queue.take_fast(sink) {
            inner.queue.advance();
            inner.counters.found += 1;
            return Polled::Taken;
        }
        self.replace_word(POLL_CQ, BATCHED);
        Polled::Batched
    }

    /// Replaces the word under the lock, unless the EVD is dead.
    #[inline(always)]
    pub(super) fn replace_word(&self, from: u64, to: u64) {
        self.head.replace_word(from, to);
    }
}
