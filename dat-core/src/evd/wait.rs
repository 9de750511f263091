//! dat_evd_wait: the waiter drives the transport itself, in [`Transport::park`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_arena::BriefGuard;

use super::state::Call;
use super::word::{AT_HAND, QUIET};
use super::{Evd, EventSink, Inner, Polled, dead};
use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::ia::Ia;
use crate::transport::{Parked, Transport};

/// Why dat_evd_wait failed, and what its `nmore` says then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{error}; {nmore} events are queued")]
pub struct WaitError {
    /// The return code.
    pub error: Error,
    /// Events on the queue; meaningful with `DAT_TIMEOUT_EXPIRED` and `DAT_INTERRUPTED_CALL`.
    pub nmore: u32,
}

impl From<Error> for WaitError {
    fn from(error: Error) -> Self {
        Self { error, nmore: 0 }
    }
}

/// What the one waiter waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) threshold: usize,
    /// A notification event came since the wait began.
    pub(super) notified: bool,
    /// dat_evd_set_unwaitable was called.
    pub(super) refused: bool,
}

impl Waiting {
    /// Whether the waiter is to look.
    pub(super) fn due(self, queued: usize) -> bool {
        self.refused || (self.notified && queued >= self.threshold)
    }
}

impl<T: Transport> Evd<T> {
    /// The short way of dat_evd_wait with a threshold of 1 where completions [are at hand](super::word::is_batched): hands
    /// one out, and returns how many are left: all that were in the completion queue when it was last asked, which is when
    /// nothing was left at hand. `None`: nothing was done, [`Evd::wait`] does it.
    #[inline(always)]
    pub fn wait_batched(&'static self, sink: &mut impl EventSink) -> Option<u32> {
        let mut inner = self.inner.try_lock()?;
        if !self.is_plain(AT_HAND) || !inner.queue.take_usual(sink) {
            return None;
        }
        inner.queue.step();
        inner.tally.waits += 1;
        if inner.queue.at_hand() == 0 || inner.queue.is_unsure() {
            return Some(self.go_on(inner));
        }
        Some(inner.queue.left() as u32)
    }

    /// The same where [nothing is at hand](super::word::needs_cq_poll): asks the transport. With [`Polled::Taken`] none is left.
    #[inline(always)]
    pub fn wait_polled(&'static self, sink: &mut impl EventSink) -> Polled {
        let Some(mut inner) = self.inner.try_lock() else {
            return Polled::SlowPath;
        };
        if !self.is_plain(QUIET) {
            return Polled::SlowPath;
        }
        if !inner.queue.poll() {
            return Polled::Empty;
        }
        // As it did not fill the batch, the poll has emptied the completion queue.
        if inner.queue.at_hand() == 1 && inner.queue.take_usual(sink) {
            inner.queue.step();
            inner.tally.waits += 1;
            return Polled::Taken;
        }
        self.turn(QUIET, AT_HAND);
        Polled::Batched
    }

    /// Whether the word is `word`, everybody is to hear of each completion, and waiting is allowed. With these words nobody
    /// waits already.
    #[inline(always)]
    fn is_plain(&self, word: u64) -> bool {
        self.head.word.load(Ordering::Relaxed) == word && self.bars.load(Ordering::Acquire) == 0
    }

    /// The rest of [`Evd::wait_batched`] where the batch is used up, or the transport may have more.
    #[cold]
    #[inline(never)]
    fn go_on(&'static self, mut inner: BriefGuard<'static, Inner<T>>) -> u32 {
        let queue = &mut inner.queue;
        if queue.at_hand() == 0 && !queue.advance() && !queue.poll() {
            self.turn(AT_HAND, QUIET);
            return 0;
        }
        if queue.is_unsure() {
            queue.look_behind();
        }
        queue.left() as u32
    }

    /// dat_evd_wait: hands out the first event when `threshold` of them are queued; returns how many are
    /// left. `timeout` `None` is `DAT_TIMEOUT_INFINITE`, zero returns at once.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 3: threshold 0 or above the queue's length); `DAT_INVALID_STATE`
    /// (`EVD_WAITER`, `EVD_UNWAITABLE`, `EVD_CONFIG_NOTIFY`, `EVD_CONFIG_SOLICITED`); `DAT_TIMEOUT_EXPIRED`;
    /// `DAT_INTERRUPTED_CALL` (also when the thread is cancelled); `DAT_ABORT` (EVD freed, IA closed); `DAT_INVALID_HANDLE`.
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
        inner.state.step(Call::Wait { many })?;
        if threshold == 0 || threshold > inner.qlen {
            return Err(Error::arg(3).into());
        }
        inner.tally.waits += 1;
        inner.queue.drain();
        if inner.queue.len() >= threshold as usize {
            inner.queue.pop(sink);
            return Ok(self.left(&inner));
        }
        if timeout == Some(Duration::ZERO) {
            let nmore = self.left(&inner);
            let error = Error::of(ErrorKind::TimeoutExpired);
            return Err(WaitError { error, nmore });
        }
        self.block(inner, timeout, threshold as usize, sink)
    }

    /// Waits as the one waiter.
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
        inner.tally.blocked += 1;
        inner.state.waited = true;
        inner.waiting = Some(Waiting {
            threshold,
            notified: false,
            refused: false,
        });
        self.left(&inner);
        drop(inner);

        loop {
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let mut ready = || self.due(generation);
            let parked = T::park(&adapter, cq.as_deref(), &parker, left, &mut ready);
            let mut inner = self.inner.lock();
            if !self.is_life(generation) {
                return Err(Error::of(ErrorKind::Abort).into());
            }
            let Some(waiting) = self.look(&mut inner) else {
                return Err(Error::of(ErrorKind::Abort).into());
            };
            inner.tally.woken += u64::from(parked == Parked::Woken);
            let over = deadline.is_some_and(|d| Instant::now() >= d);
            let outcome = if parked == Parked::Cancelled {
                // Nothing is taken: the caller does not come to see it.
                Some(Err(Error::of(ErrorKind::InterruptedCall)))
            } else if waiting.refused {
                Some(Err(Error::state(Subtype::InvalidStateEvdUnwaitable)))
            } else if waiting.due(inner.queue.len()) {
                Some(Ok(()))
            } else if over && inner.queue.len() >= waiting.threshold {
                // Events that notify nobody came: the time is over, but they are there.
                Some(Ok(()))
            } else if parked == Parked::Interrupted {
                Some(Err(Error::of(ErrorKind::InterruptedCall)))
            } else if over {
                Some(Err(Error::of(ErrorKind::TimeoutExpired)))
            } else {
                None
            };
            let Some(outcome) = outcome else { continue };
            inner.waiting = None;
            inner.state.waited = false;
            if outcome.is_ok() {
                inner.queue.pop(sink);
            }
            let nmore = self.left(&inner);
            // The CNO owns the EVD again; `park` may have taken an announcement that was due to it.
            inner.watched = false;
            let told = self.listen(&mut inner);
            drop(inner);
            told.deliver();
            return outcome
                .map(|()| nmore)
                .map_err(|error| WaitError { error, nmore });
        }
    }

    /// For `park`, which asks after it armed the completion queue.
    fn due(&'static self, generation: u32) -> bool {
        let mut inner = self.inner.lock();
        if !self.is_life(generation) {
            return true;
        }
        match self.look(&mut inner) {
            None => true,
            Some(waiting) => waiting.due(inner.queue.len()),
        }
    }

    /// Takes completions in and notes whether they notify. `None`: nobody waits any more.
    fn look(&self, inner: &mut Inner<T>) -> Option<Waiting> {
        let notify = inner.queue.drain();
        self.left(inner);
        let waiting = inner.waiting.as_mut()?;
        waiting.notified |= notify;
        Some(*waiting)
    }

    /// Whether the EVD still lives the life of `generation`.
    pub(super) fn is_life(&self, generation: u32) -> bool {
        self.head.alive() && self.head.generation.load(Ordering::Relaxed) == generation
    }
}
