//! Events of an EVD: its event queue, and the transport's completions that are not yet in it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::EventSink;
use super::early::EarlyReceives;
use crate::ep::completion::complete;
use crate::ep::completion::fast_path::{LastSources, complete_fast, remember_source};
use crate::error::{Error, Result, Subtype};
use crate::event::{Dto, DtoStatus, Event};
use crate::transport::Transport;

/// Maximum number of completions of one poll.
pub(super) const BATCH: usize = 16;

/// Queue of an EVD. It hands out first the queued events, then the completions of the last poll (the batch), then the
/// overflow, then the completions still in the completion queue.
pub(super) struct Queue<T: Transport> {
    pub(super) events: VecDeque<Event>,
    /// Number of these that are no completions.
    others: usize,
    pub(super) early: EarlyReceives,
    batch: [T::RawCompletion; BATCH],
    /// Index of the first of the `batched` completions of the batch.
    next: u32,
    batched: usize,
    /// True if the last poll filled the batch, so that the completion queue may have more.
    more_in_cq: bool,
    /// Completions behind the batch that [`Queue::collect_overflow`] took out of the completion queue, from
    /// `overflow_start` on. Empty if there are none.
    overflow: Vec<T::RawCompletion>,
    overflow_start: usize,
    /// Buffer that the overflow is polled into.
    poll_buffer: [T::RawCompletion; BATCH],
    /// Sources of the last completions.
    sources: LastSources,
    pub(super) cq: Option<Arc<T::Cq>>,
    /// True if receives that the peer did not solicit are no notifications.
    pub(super) solicited_only: bool,
    /// Number of completions taken that were [announced as silent](super::Evd::expect_silent).
    pub(super) silent: u64,
    /// Polls of the completion queue that returned completions, and that returned none.
    pub(super) polls: (u64, u64),
}

impl<T: Transport> Default for Queue<T> {
    fn default() -> Self {
        Self {
            events: VecDeque::new(),
            others: 0,
            early: EarlyReceives::default(),
            batch: [T::RawCompletion::default(); BATCH],
            next: 0,
            batched: 0,
            more_in_cq: false,
            overflow: Vec::new(),
            overflow_start: 0,
            poll_buffer: [T::RawCompletion::default(); BATCH],
            sources: LastSources::unset(),
            cq: None,
            solicited_only: false,
            silent: 0,
            polls: (0, 0),
        }
    }
}

impl<T: Transport> Queue<T> {
    /// Empties the queue and reserves room for `qlen` events.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`; the queue is then empty and has `cq`.
    pub(super) fn start(&mut self, qlen: u32, cq: Option<Arc<T::Cq>>) -> Result<()> {
        self.stop();
        self.cq = cq;
        self.reserve(qlen)
    }

    /// Drops all events; returns the completion queue, to be dropped without locks.
    pub(super) fn stop(&mut self) -> Option<Arc<T::Cq>> {
        (self.events, self.others) = (VecDeque::new(), 0);
        self.early = EarlyReceives::default();
        (self.next, self.batched) = (0, 0);
        (self.more_in_cq, self.overflow, self.overflow_start) = (false, Vec::new(), 0);
        self.forget_sources();
        self.solicited_only = false;
        self.silent = 0;
        self.polls = (0, 0);
        self.cq.take()
    }

    /// Drops the last sources of completions.
    pub(super) fn forget_sources(&mut self) {
        self.sources.forget_sources();
    }

    /// Reserves room for `qlen` events.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`.
    pub(super) fn reserve(&mut self, qlen: u32) -> Result<()> {
        let more = (qlen as usize).saturating_sub(self.events.len());
        self.events
            .try_reserve(more)
            .map_err(|_| Error::resource(Subtype::ResourceMemory))
    }

    /// Returns the number of queued events, without completions that are not yet in the event queue.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns the number of queued events that are no completions.
    pub(super) fn others(&self) -> usize {
        self.others
    }

    /// Drops the queued events.
    pub(super) fn drop_events(&mut self) {
        self.events.clear();
        self.others = 0;
    }

    pub(super) fn push(&mut self, event: Event) {
        self.others += usize::from(!matches!(event, Event::Dto(_)));
        self.events.push_back(event);
    }

    /// Hands out the first queued event; returns false if there is none.
    #[inline]
    pub(super) fn pop(&mut self, sink: &mut impl EventSink) -> bool {
        match self.events.pop_front() {
            None => false,
            Some(Event::Dto(dto)) => {
                sink.dto(&dto);
                true
            }
            Some(event) => {
                self.others -= 1;
                sink.event(&event);
                true
            }
        }
    }

    /// Returns true if the batch has completions; refills it if it is empty.
    fn fill_batch(&mut self) -> bool {
        self.batched != 0 || (self.has_overflow() && self.refill_from_overflow()) || self.poll()
    }

    /// Hands out the first completion of the batch; the event queue is empty and the batch is not. The caller then
    /// calls [`Queue::advance`]. Returns false if the completion is suppressed, or needs the slow path.
    #[inline(always)]
    pub(super) fn take_fast(&mut self, sink: &mut impl EventSink) -> bool {
        let raw = &self.batch[self.next as usize % BATCH];
        if !complete_fast::<T>(&mut self.sources, raw, sink) {
            return false;
        }
        self.batched -= 1;
        true
    }

    /// Advances to the next completion. Separate from [`Queue::take_fast`], and called right before the unlock, where it
    /// costs one instruction less.
    #[inline(always)]
    pub(super) fn advance(&mut self) {
        self.next += 1;
    }

    /// Hands out the first completion that gives an event; returns false if there is none.
    pub(super) fn take_slow(&mut self, sink: &mut impl EventSink) -> bool {
        while self.fill_batch() {
            let (Some(cq), Some(raw)) = (&self.cq, self.batch.get(self.next as usize)) else {
                return false;
            };
            self.next += 1;
            self.batched -= 1;
            let mut taken = false;
            // Suppressed completions, and those of freed endpoints, are skipped.
            let completion = T::decode(cq, raw);
            complete::<T>(&completion, &mut self.silent, |dto, notice| {
                let notify =
                    || notice.notify && !(self.solicited_only && is_unsolicited::<T>(cq, raw, dto));
                taken = !(notice.early && self.early.keep(dto, notify()));
                if taken {
                    sink.dto(dto);
                }
            });
            if taken {
                remember_source::<T>(&mut self.sources, T::outcome(raw).0);
                return true;
            }
        }
        false
    }

    /// Returns the number of completions in the batch.
    #[inline(always)]
    pub(super) fn batched(&self) -> usize {
        self.batched
    }

    /// Returns true if there are completions behind the batch.
    #[inline(always)]
    pub(super) fn has_overflow(&self) -> bool {
        !self.overflow.is_empty()
    }

    /// Returns the number of completions in the batch and behind it.
    #[inline(always)]
    pub(super) fn remaining(&self) -> usize {
        self.batched + self.overflow.len() - self.overflow_start
    }

    /// Returns true if [`Queue::remaining`] is exact only after [`Queue::collect_overflow`].
    #[inline(always)]
    pub(super) fn may_have_more(&self) -> bool {
        self.more_in_cq
    }

    /// Moves the rest of the completion queue into the overflow, to count it.
    #[cold]
    #[inline(never)]
    pub(super) fn collect_overflow(&mut self) {
        self.more_in_cq = false;
        self.overflow.drain(..self.overflow_start);
        self.overflow_start = 0;
        while let Some(cq) = &self.cq {
            if self.overflow.try_reserve(BATCH).is_err() {
                // Without memory the rest stays in the completion queue.
                self.more_in_cq = true;
                return;
            }
            let polled = T::poll_cq_ready(cq, &mut self.poll_buffer).min(BATCH);
            if polled == 0 {
                self.polls.1 += 1;
                return;
            }
            self.polls.0 += 1;
            self.overflow.extend_from_slice(&self.poll_buffer[..polled]);
            if polled < BATCH {
                return;
            }
        }
    }

    /// Refills the used-up batch from the overflow; returns false if that is empty.
    #[cold]
    #[inline(never)]
    pub(super) fn refill_from_overflow(&mut self) -> bool {
        let overflow = &self.overflow[self.overflow_start..];
        let count = overflow.len().min(BATCH);
        self.batch[..count].copy_from_slice(&overflow[..count]);
        self.overflow_start += count;
        if self.overflow_start == self.overflow.len() {
            self.overflow.clear();
            self.overflow_start = 0;
        }
        (self.next, self.batched) = (0, count);
        count != 0
    }

    /// Polls the next batch; the batch and the overflow are empty.
    #[inline(always)]
    pub(super) fn poll(&mut self) -> bool {
        self.poll_by(T::poll_cq)
    }

    /// Polls the next batch like [`Queue::poll`], without driving the transport.
    #[inline(always)]
    pub(super) fn poll_ready(&mut self) -> bool {
        self.poll_by(T::poll_cq_ready)
    }

    #[inline(always)]
    fn poll_by(&mut self, poll: impl FnOnce(&T::Cq, &mut [T::RawCompletion]) -> usize) -> bool {
        let Some(cq) = &self.cq else { return false };
        let polled = poll(cq, &mut self.batch);
        if polled == 0 {
            self.polls.1 += 1;
            return false;
        }
        self.polls.0 += 1;
        self.next = 0;
        self.batched = if polled >= BATCH {
            self.batch_filled()
        } else {
            polled
        };
        true
    }

    /// Records that a poll filled the batch; a transport may return a number beyond the room that it had.
    #[cold]
    #[inline(never)]
    fn batch_filled(&mut self) -> usize {
        self.more_in_cq = true;
        BATCH
    }

    /// Moves all completions to the end of the event queue; drives the transport if none is there. They may exceed the
    /// queue's length; none is lost. Returns true if one of them is a notification.
    pub(super) fn drain(&mut self) -> bool {
        self.drain_by(Self::poll)
    }

    /// Moves completions like [`Queue::drain`], without driving the transport.
    pub(super) fn drain_ready(&mut self) -> bool {
        self.drain_by(Self::poll_ready)
    }

    fn drain_by(&mut self, poll: impl Fn(&mut Self) -> bool) -> bool {
        let mut notify = false;
        // A poll that does not fill the batch has emptied the completion queue.
        let mut emptied = false;
        loop {
            let Some(cq) = &self.cq else { return false };
            let taken = self
                .batch
                .iter()
                .skip(self.next as usize)
                .take(self.batched);
            let mut last = None;
            for raw in taken {
                let completion = T::decode(cq, raw);
                complete::<T>(&completion, &mut self.silent, |dto, notice| {
                    let notified = notice.notify
                        && !(self.solicited_only && is_unsolicited::<T>(cq, raw, dto));
                    if notice.early && self.early.keep(dto, notified) {
                        return;
                    }
                    notify |= notified;
                    self.events.push_back(Event::Dto(*dto));
                    last = Some(completion.id);
                });
            }
            if let Some(id) = last {
                remember_source::<T>(&mut self.sources, id);
            }
            self.batched = 0;
            if self.has_overflow() && self.refill_from_overflow() {
                continue;
            }
            if emptied || !poll(self) {
                self.more_in_cq = false;
                return notify;
            }
            emptied = self.batched < BATCH;
        }
    }
}

/// Returns true for a successful receive whose sender did not request a notification.
fn is_unsolicited<T: Transport>(cq: &T::Cq, raw: &T::RawCompletion, dto: &Dto) -> bool {
    dto.status == DtoStatus::Success && !dto.op.is_request() && T::solicited(cq, raw) == Some(false)
}
