//! The events of an EVD: its queue, and the transport's completions that are not yet in it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::EventSink;
use crate::ep::dto::{self, Origins};
use crate::error::{Error, Result, Subtype};
use crate::event::{Dto, DtoStatus, Event};
use crate::transport::Transport;

/// Completions taken from the transport at a time.
pub(super) const BATCH: usize = 16;

/// Queued events, then the completions of the last poll, then those behind it, then those still in the completion queue: in
/// this order they are handed out.
pub(super) struct Queue<T: Transport> {
    events: VecDeque<Event>,
    batch: [T::RawCompletion; BATCH],
    /// `batch[next..][..at_hand]` are to be decoded.
    next: u32,
    at_hand: usize,
    /// The last poll filled the batch: more may be in the completion queue.
    unsure: bool,
    /// `behind[first..]` are behind the batch: what [`Queue::look_behind`] took out of the completion queue. Empty if there are none.
    behind: Vec<T::RawCompletion>,
    first: usize,
    /// Where it polls to.
    spare: [T::RawCompletion; BATCH],
    /// Where completions come from.
    origins: Origins,
    pub(super) cq: Option<Arc<T::Cq>>,
    /// Receives that the peer did not solicit are no notifications.
    pub(super) solicited_only: bool,
    /// Polls of the completion queue that brought something, and that did not.
    pub(super) polls: (u64, u64),
}

impl<T: Transport> Default for Queue<T> {
    fn default() -> Self {
        Self {
            events: VecDeque::new(),
            batch: [T::RawCompletion::default(); BATCH],
            next: 0,
            at_hand: 0,
            unsure: false,
            behind: Vec::new(),
            first: 0,
            spare: [T::RawCompletion::default(); BATCH],
            origins: Origins::nowhere(),
            cq: None,
            solicited_only: false,
            polls: (0, 0),
        }
    }
}

impl<T: Transport> Queue<T> {
    /// Empty, for `qlen` events without another allocation.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`; then it is empty, with `cq`.
    pub(super) fn start(&mut self, qlen: u32, cq: Option<Arc<T::Cq>>) -> Result<()> {
        self.stop();
        self.cq = cq;
        self.reserve(qlen)
    }

    /// Forgets all events; returns the completion queue, to be dropped without locks.
    pub(super) fn stop(&mut self) -> Option<Arc<T::Cq>> {
        self.events = VecDeque::new();
        (self.next, self.at_hand) = (0, 0);
        (self.unsure, self.behind, self.first) = (false, Vec::new(), 0);
        self.forget();
        self.solicited_only = false;
        self.polls = (0, 0);
        self.cq.take()
    }

    /// Forgets where completions came from.
    pub(super) fn forget(&mut self) {
        self.origins.forget();
    }

    /// Room for `qlen` events without another allocation.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`.
    pub(super) fn reserve(&mut self, qlen: u32) -> Result<()> {
        let more = (qlen as usize).saturating_sub(self.events.len());
        self.events
            .try_reserve(more)
            .map_err(|_| Error::resource(Subtype::ResourceMemory))
    }

    /// Events queued; completions not yet taken in do not count.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn push(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Hands out the first queued event.
    #[inline]
    pub(super) fn pop(&mut self, sink: &mut impl EventSink) -> bool {
        match self.events.pop_front() {
            None => false,
            Some(Event::Dto(dto)) => {
                sink.dto(&dto);
                true
            }
            Some(event) => {
                sink.event(&event);
                true
            }
        }
    }

    /// Whether there are completions to look at; fetches some if there are none yet.
    fn has_batch(&mut self) -> bool {
        self.at_hand != 0 || (self.has_behind() && self.advance()) || self.poll()
    }

    /// Hands out the first completion, straight from the transport; the queue is empty, and the batch is not. Then [`Queue::step`] is due. False: it is none to hand out, or a rare one.
    #[inline(always)]
    pub(super) fn take_usual(&mut self, sink: &mut impl EventSink) -> bool {
        let raw = &self.batch[self.next as usize % BATCH];
        if !dto::complete_usual::<T>(&mut self.origins, raw, sink) {
            return false;
        }
        self.at_hand -= 1;
        true
    }

    /// To the next completion. Apart, so that it can stand beside the unlocking, which is an instruction less then.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        self.next += 1;
    }

    /// Hands out the first completion of which anybody hears. False: there is none.
    pub(super) fn take_any(&mut self, sink: &mut impl EventSink) -> bool {
        while self.has_batch() {
            let (Some(cq), Some(raw)) = (&self.cq, self.batch.get(self.next as usize)) else {
                return false;
            };
            self.next += 1;
            self.at_hand -= 1;
            // Suppressed completions, and those of endpoints that are gone, are passed over.
            if dto::complete::<T>(&T::decode(cq, raw), |dto, _| sink.dto(dto)) {
                dto::remember::<T>(&mut self.origins, T::outcome(raw).0);
                return true;
            }
        }
        false
    }

    /// Completions that were taken from the transport and not handed out.
    #[inline(always)]
    pub(super) fn at_hand(&self) -> usize {
        self.at_hand
    }

    /// Whether completions are behind the batch.
    #[inline(always)]
    pub(super) fn has_behind(&self) -> bool {
        !self.behind.is_empty()
    }

    /// Completions that are left, in the batch and behind it.
    #[inline(always)]
    pub(super) fn left(&self) -> usize {
        self.at_hand + self.behind.len() - self.first
    }

    /// Whether [`Queue::left`] is known only after [`Queue::look_behind`].
    #[inline(always)]
    pub(super) fn is_unsure(&self) -> bool {
        self.unsure
    }

    /// Takes whatever the completion queue still has, to count it.
    #[cold]
    #[inline(never)]
    pub(super) fn look_behind(&mut self) {
        self.unsure = false;
        self.behind.drain(..self.first);
        self.first = 0;
        while let Some(cq) = &self.cq {
            if self.behind.try_reserve(BATCH).is_err() {
                // They stay where they are.
                self.unsure = true;
                return;
            }
            let polled = T::poll_cq(cq, &mut self.spare).min(BATCH);
            if polled == 0 {
                self.polls.1 += 1;
                return;
            }
            self.polls.0 += 1;
            self.behind.extend_from_slice(&self.spare[..polled]);
            if polled < BATCH {
                return;
            }
        }
    }

    /// The batch is used up: the next is what is behind it. False: nothing is.
    #[cold]
    #[inline(never)]
    pub(super) fn advance(&mut self) -> bool {
        let behind = &self.behind[self.first..];
        let count = behind.len().min(BATCH);
        self.batch[..count].copy_from_slice(&behind[..count]);
        self.first += count;
        if self.first == self.behind.len() {
            self.behind.clear();
            self.first = 0;
        }
        (self.next, self.at_hand) = (0, count);
        count != 0
    }

    /// Polls for the next batch; nothing is behind the last.
    #[inline(always)]
    pub(super) fn poll(&mut self) -> bool {
        let Some(cq) = &self.cq else { return false };
        let polled = T::poll_cq(cq, &mut self.batch);
        if polled == 0 {
            self.polls.1 += 1;
            return false;
        }
        self.polls.0 += 1;
        self.next = 0;
        self.at_hand = if polled >= BATCH { self.full() } else { polled };
        true
    }

    /// A poll filled the batch (at least: a transport may say that it polled more than there was room for).
    #[cold]
    #[inline(never)]
    fn full(&mut self) -> usize {
        self.unsure = true;
        BATCH
    }

    /// Takes all completions into the queue, behind what is there; they may exceed the queue's length,
    /// none is lost. Returns whether one of them is a notification.
    pub(super) fn drain(&mut self) -> bool {
        let mut notify = false;
        loop {
            let Some(cq) = &self.cq else { return false };
            let taken = self
                .batch
                .iter()
                .skip(self.next as usize)
                .take(self.at_hand);
            for raw in taken {
                dto::complete::<T>(&T::decode(cq, raw), |dto, notice| {
                    notify |= notice && !(self.solicited_only && quiet::<T>(cq, raw, dto));
                    self.events.push_back(Event::Dto(*dto));
                });
            }
            self.at_hand = 0;
            if !self.has_batch() {
                return notify;
            }
        }
    }
}

/// Whether this is a good receive whose sender did not ask for a notification.
fn quiet<T: Transport>(cq: &T::Cq, raw: &T::RawCompletion, dto: &Dto) -> bool {
    dto.status == DtoStatus::Success && !dto.op.is_request() && T::solicited(cq, raw) == Some(false)
}
