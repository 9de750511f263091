//! Waiting for events (dat_evd_wait). The waiter drives the transport itself, in [`Transport::park`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_arena::BriefGuard;

use super::state::Input;
use super::word::{BATCHED, POLL_CQ};
use super::{Evd, EventSink, Inner, Polled, dead};
use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::ia::Ia;
use crate::transport::{Parked, Transport};

/// Error of dat_evd_wait, with its `nmore`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{error}; {nmore} events are queued")]
pub struct WaitError {
    /// Return code.
    pub error: Error,
    /// Number of queued events; meaningful with `DAT_TIMEOUT_EXPIRED` and `DAT_INTERRUPTED_CALL`.
    pub nmore: u32,
}

impl From<Error> for WaitError {
    fn from(error: Error) -> Self {
        Self { error, nmore: 0 }
    }
}

/// Condition that the waiter waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) threshold: usize,
    /// True if a notification came since the wait began.
    pub(super) notified: bool,
    /// True if dat_evd_set_unwaitable was called.
    pub(super) refused: bool,
}

impl Waiting {
    /// Returns true if the waiter must return with `queued` events in the queue.
    pub(super) fn is_due(self, queued: usize) -> bool {
        self.refused || (self.notified && queued >= self.threshold)
    }
}

impl<T: Transport> Inner<T> {
    /// Returns what a wait does after a poll that found nothing.
    #[inline(never)]
    fn after_empty_poll(&mut self, attempt: Option<u32>) -> Polled {
        match attempt {
            Some(attempt) if self.quick_polls.again(attempt) => Polled::Again,
            Some(_) => {
                self.quick_polls.missed();
                Polled::Empty
            }
            None => Polled::Empty,
        }
    }
}

impl<T: Transport> Evd<T> {
    /// Waits on the fast path, with a threshold of 1, if the word [says that completions are
    /// batched](super::word::is_batched): hands one out and returns how many are left of those that were in the
    /// completion queue at the last poll. Polls again when none is left. Returns `None` if nothing was done; the
    /// caller continues with [`Evd::wait_queued`].
    #[inline(always)]
    pub fn wait_batched(&'static self, sink: &mut impl EventSink) -> Option<u32> {
        let mut inner = self.inner.try_lock()?;
        if !self.allows_fast_wait(&inner, BATCHED) || !inner.queue.take_fast(sink) {
            return None;
        }
        inner.queue.advance();
        inner.counters.waits += 1;
        if inner.queue.batched() == 0 || inner.queue.may_have_more() {
            return Some(self.next_batch(inner));
        }
        Some(inner.queue.remaining() as u32)
    }

    /// Waits on the fast path if the word [asks for a poll](super::word::needs_cq_poll): polls the transport. With
    /// [`Polled::Taken`] none is left. `attempt` is the number of the poll in this wait, from 0; `None` if there is only one.
    #[inline(always)]
    pub fn wait_polled(&'static self, sink: &mut impl EventSink, attempt: Option<u32>) -> Polled {
        let Some(mut inner) = self.inner.try_lock() else {
            return Polled::SlowPath;
        };
        if !self.allows_fast_wait(&inner, POLL_CQ) {
            return Polled::SlowPath;
        }
        if !inner.queue.poll() {
            return inner.after_empty_poll(attempt);
        }
        if attempt.is_some_and(|attempt| attempt > 0) {
            inner.quick_polls.hit();
        }
        // A poll that did not fill the batch has emptied the completion queue.
        if inner.queue.batched() == 1 && inner.queue.take_fast(sink) {
            inner.queue.advance();
            inner.counters.waits += 1;
            return Polled::Taken;
        }
        self.replace_word(POLL_CQ, BATCHED);
        Polled::Batched
    }

    /// Returns true if the word is `word`, every completion gives an event, and waiting is allowed. With such a word
    /// no thread waits.
    #[inline(always)]
    fn allows_fast_wait(&self, inner: &Inner<T>, word: u64) -> bool {
        self.head.word.load(Ordering::Relaxed) == word && !self.has_silent(inner)
    }

    /// Returns true if a completion that was polled may give no event. Each such completion is announced before its request is posted, so
    /// ask after the poll.
    #[inline(always)]
    fn has_silent(&self, inner: &Inner<T>) -> bool {
        self.silent.load(Ordering::Acquire) != inner.queue.silent
    }

    /// Hands out an event that is queued, or a completion that is there, with a threshold of 1; returns how many are left.
    /// Neither drives the transport nor blocks. Returns `None` if nothing was handed out; the caller continues with
    /// [`Evd::wait`].
    pub fn wait_queued(&'static self, sink: &mut impl EventSink) -> Option<u32> {
        let mut inner = self.inner.try_lock()?;
        if !self.head.alive() || inner.state.check(Input::Wait { many: false }).is_err() {
            return None;
        }
        // Else the number of events that are left is not 0.
        if inner.queue.len() <= 1 {
            inner.queue.drain_ready();
        }
        let taken = inner.queue.pop(sink);
        inner.counters.waits += u64::from(taken);
        let left = self.publish_word(&inner);
        taken.then_some(left)
    }

    /// Continues [`Evd::wait_batched`] if the batch is used up, or the transport may have more.
    #[cold]
    #[inline(never)]
    fn next_batch(&'static self, mut inner: BriefGuard<'static, Inner<T>>) -> u32 {
        let queue = &mut inner.queue;
        if queue.batched() == 0 && !queue.refill_from_overflow() && !queue.poll_ready() {
            self.replace_word(BATCHED, POLL_CQ);
            return 0;
        }
        if queue.may_have_more() {
            queue.collect_overflow();
        }
        // Another thread may have posted a request that gives no event since the word was looked at, and its completion may be here.
        if self.has_silent(&inner) {
            inner.queue.drain_ready();
            return self.publish_word(&inner);
        }
        inner.queue.remaining() as u32
    }

    /// Hands out the first event once `threshold` events are queued (dat_evd_wait); returns how many are left. A
    /// `timeout` of `None` is `DAT_TIMEOUT_INFINITE`, zero returns at once.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 3: threshold 0 or above the queue's length); `DAT_INVALID_STATE`
    /// (`EVD_WAITER`, `EVD_UNWAITABLE`, `EVD_CONFIG_NOTIFY`, `EVD_CONFIG_SOLICITED`); `DAT_TIMEOUT_EXPIRED`;
    /// `DAT_INTERRUPTED_CALL` (also when the thread is cancelled); `DAT_ABORT` (EVD freed, IA closed);
    /// `DAT_INVALID_HANDLE`.
    #[inline]
    pub fn wait(
        &'static self,
        timeout: Option<Duration>,
        threshold: u32,
        sink: &mut impl EventSink,
    ) -> Result<u32, WaitError> {
        let mut inner = self.inner.lock();
        if !self.head.alive() {
            return Err(dead().into());
        }
        let many = threshold > 1;
        inner.state.check(Input::Wait { many })?;
        if threshold == 0 || threshold > inner.qlen {
            return Err(Error::arg(3).into());
        }
        inner.counters.waits += 1;
        // What is there first: driving the transport takes longer.
        inner.queue.drain_ready();
        if inner.queue.len() < threshold as usize {
            inner.queue.drain();
        }
        if inner.queue.len() >= threshold as usize {
            inner.queue.pop(sink);
            return Ok(self.publish_word(&inner));
        }
        if timeout == Some(Duration::ZERO) {
            let nmore = self.publish_word(&inner);
            let error = Error::of(ErrorKind::TimeoutExpired);
            return Err(WaitError { error, nmore });
        }
        self.block(inner, timeout, threshold as usize, sink)
    }

    /// Blocks as the one waiter.
    #[cold]
    fn block(
        &'static self,
        mut inner: BriefGuard<'static, Inner<T>>,
        timeout: Option<Duration>,
        threshold: usize,
        sink: &mut impl EventSink,
    ) -> Result<u32, WaitError> {
        let adapter = Ia::<T>::of(&self.head).adapter()?;
        let cq = inner.queue.cq.clone();
        let parker = Arc::clone(inner.parker.get_or_insert_default());
        let generation = self.head.generation.load(Ordering::Relaxed);
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let many = threshold > 1;
        inner.state.apply(Input::Wait { many })?;
        inner.counters.blocked += 1;
        inner.waiting = Some(Waiting {
            threshold,
            notified: false,
            refused: false,
        });
        self.publish_word(&inner);
        drop(inner);

        loop {
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let mut ready = || self.is_ready(generation);
            let parked = T::park(&adapter, cq.as_deref(), &parker, left, &mut ready);
            let mut inner = self.inner.lock();
            if !self.is_generation(generation) {
                return Err(Error::of(ErrorKind::Abort).into());
            }
            let Some(waiting) = self.poll_for_waiter(&mut inner) else {
                return Err(Error::of(ErrorKind::Abort).into());
            };
            inner.counters.woken += u64::from(parked == Parked::Woken);
            let over = || deadline.is_some_and(|d| Instant::now() >= d);
            let outcome = if parked == Parked::Cancelled {
                // No event is taken, because the cancelled caller would not see it.
                Some(Err(Error::of(ErrorKind::InterruptedCall)))
            } else if waiting.refused {
                Some(Err(Error::state(Subtype::InvalidStateEvdUnwaitable)))
            } else if waiting.is_due(inner.queue.len()) {
                Some(Ok(()))
            } else if over() {
                // The events may be no notifications.
                if inner.queue.len() >= waiting.threshold {
                    Some(Ok(()))
                } else if parked == Parked::Interrupted {
                    Some(Err(Error::of(ErrorKind::InterruptedCall)))
                } else {
                    Some(Err(Error::of(ErrorKind::TimeoutExpired)))
                }
            } else if parked == Parked::Interrupted {
                Some(Err(Error::of(ErrorKind::InterruptedCall)))
            } else {
                None
            };
            let Some(outcome) = outcome else { continue };
            inner.waiting = None;
            inner.state.apply(Input::WaiterReturned)?;
            if outcome.is_ok() {
                inner.queue.pop(sink);
            }
            let nmore = self.publish_word(&inner);
            // Reports go to the CNO again; `park` may have consumed one.
            inner.watched = false;
            let wakeup = self.arm_cq(&mut inner);
            drop(inner);
            wakeup.deliver();
            return outcome
                .map(|()| nmore)
                .map_err(|error| WaitError { error, nmore });
        }
    }

    /// Returns true if the waiter must not sleep; `park` asks after it armed the completion queue.
    fn is_ready(&'static self, generation: u32) -> bool {
        let mut inner = self.inner.lock();
        if !self.is_generation(generation) {
            return true;
        }
        match self.poll_for_waiter(&mut inner) {
            None => true,
            Some(waiting) => waiting.is_due(inner.queue.len()),
        }
    }

    /// Drains the completion queue for the waiter and records a notification; drives the transport unless the waiter must return
    /// already. Returns `None` if no thread waits any more.
    fn poll_for_waiter(&self, inner: &mut Inner<T>) -> Option<Waiting> {
        let queued = inner.queue.len();
        let is_due = inner.waiting.is_some_and(|waiting| waiting.is_due(queued));
        let notify = if is_due {
            inner.queue.drain_ready()
        } else {
            inner.queue.drain()
        };
        self.publish_word(inner);
        let waiting = inner.waiting.as_mut()?;
        waiting.notified |= notify;
        Some(*waiting)
    }

    /// Returns true if the EVD is alive and still has this generation.
    pub(super) fn is_generation(&self, generation: u32) -> bool {
        self.head.alive() && self.head.generation.load(Ordering::Relaxed) == generation
    }
}
