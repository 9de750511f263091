//! The events of an EVD: its queue, and the transport's completions that are not yet in it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::EventSink;
use crate::ep::dto::{self, Origins};
use crate::event::{Dto, DtoStatus, Event};
use crate::transport::Transport;

/// Completions taken from the transport at a time.
pub(super) const BATCH: usize = 16;

/// Queued events, then the completions of the last poll, then those still in the completion queue: in this
/// order they are handed out.
pub(super) struct Queue<T: Transport> {
    events: VecDeque<Event>,
    batch: [T::RawCompletion; BATCH],
    /// `batch[next..][..at_hand]` are to be decoded.
    next: u32,
    at_hand: usize,
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
            origins: Origins::nowhere(),
            cq: None,
            solicited_only: false,
            polls: (0, 0),
        }
    }
}

impl<T: Transport> Queue<T> {
    /// Empty, for `qlen` events without another allocation.
    pub(super) fn start(&mut self, qlen: u32, cq: Option<Arc<T::Cq>>) {
        self.stop();
        self.events.reserve(qlen as usize);
        self.cq = cq;
    }

    /// Forgets all events; returns the completion queue, to be dropped without locks.
    pub(super) fn stop(&mut self) -> Option<Arc<T::Cq>> {
        self.events = VecDeque::new();
        (self.next, self.at_hand) = (0, 0);
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
    pub(super) fn reserve(&mut self, qlen: u32) {
        let more = (qlen as usize).saturating_sub(self.events.len());
        self.events.reserve(more);
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

    /// Whether there are completions to look at; polls if there are none yet.
    #[inline(always)]
    pub(super) fn has_batch(&mut self) -> bool {
        self.at_hand != 0 || self.refill()
    }

    /// Hands out the first completion, straight from the transport; the queue is empty, and there
    /// [is a batch](Queue::has_batch). Then [`Queue::step`] is due. False: it is none to hand out, or a rare one.
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

    /// The same, after [`Queue::take_usual`], and not 0 if the transport has more.
    #[inline(always)]
    pub(super) fn at_hand_or_behind(&mut self) -> usize {
        if self.next as usize == BATCH {
            self.look_behind()
        } else {
            self.at_hand()
        }
    }

    /// The last batch was full, and is used up.
    #[inline(never)]
    fn look_behind(&mut self) -> usize {
        self.refill();
        self.at_hand()
    }

    /// Polls for the next batch.
    #[inline(always)]
    pub(super) fn refill(&mut self) -> bool {
        let Some(cq) = &self.cq else { return false };
        let polled = T::poll_cq(cq, &mut self.batch);
        if polled == 0 {
            self.polls.1 += 1;
            return false;
        }
        self.polls.0 += 1;
        self.next = 0;
        self.at_hand = if polled > BATCH { too_many() } else { polled };
        true
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
            if !self.refill() {
                return notify;
            }
        }
    }
}

/// What a transport counts as polled that says it polled more than there was room for.
#[cold]
#[inline(never)]
fn too_many() -> usize {
    BATCH
}

/// Whether this is a good receive whose sender did not ask for a notification.
fn quiet<T: Transport>(cq: &T::Cq, raw: &T::RawCompletion, dto: &Dto) -> bool {
    dto.status == DtoStatus::Success && !dto.op.is_request() && T::solicited(cq, raw) == Some(false)
}
