//! Posting of events to an EVD, and the wakeup that follows: of the thread in dat_evd_wait, else through the CNO.

use std::sync::Arc;

use super::{Evd, Inner, dead};
use crate::cno::Cno;
use crate::error::{Error, Kind as ErrorKind, Result};
use crate::event::{AsyncEvent, Dto, Event};
use crate::flags::EvdFlags;
use crate::head::raw;
use crate::ia::Ia;
use crate::transport::{Token, Transport};

/// Wakeup that is due after an event was queued, delivered once all locks are released.
#[must_use = "a thread may wait for it"]
pub(crate) enum Wakeup<T: Transport> {
    /// No wakeup.
    None,
    /// Wakes the thread in dat_evd_wait.
    Waiter(Arc<T::Parker>),
    /// Triggers the CNO of the EVD.
    Cno(&'static Cno<T>, &'static Evd<T>),
}

impl<T: Transport> Wakeup<T> {
    /// Delivers the wakeup. May run a consumer's agent, so the caller holds no lock.
    pub(crate) fn deliver(self) {
        match self {
            Self::None => {}
            Self::Waiter(parker) => T::unpark(&parker),
            Self::Cno(cno, evd) => {
                if !cno.notify(evd)
                    && let Some(other) = evd.cno()
                {
                    other.notify(evd);
                }
            }
        }
    }
}

/// Result of [`Evd::enqueue`].
#[must_use = "a thread may wait for the event"]
pub(crate) struct Enqueued<T: Transport> {
    evd: &'static Evd<T>,
    wakeup: Wakeup<T>,
    lost: Option<Lost>,
}

/// Reason why an event was not queued.
enum Lost {
    /// The EVD was freed.
    Dead,
    /// The EVD is full. `first` since there was room.
    Full {
        event: Event,
        qlen: u32,
        first: bool,
    },
}

impl<T: Transport> Enqueued<T> {
    /// The second half of [`Evd::post`]. May run a consumer's agent, so the caller holds no lock.
    pub(crate) fn finish(self) -> bool {
        self.wakeup.deliver();
        match self.lost {
            None => true,
            Some(Lost::Dead) => false,
            Some(Lost::Full { event, qlen, first }) => {
                if !self.evd.overflow(&event, qlen, first) {
                    self.evd.inner.lock().overflowed = false;
                }
                false
            }
        }
    }
}

impl<T: Transport> Evd<T> {
    /// Queues a software event with the consumer's pointer (dat_evd_post_se).
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 1: the EVD takes no software events); `DAT_QUEUE_FULL`;
    /// `DAT_INVALID_HANDLE`.
    pub fn post_se(&'static self, pointer: usize) -> Result<()> {
        let wakeup = {
            let mut inner = self.inner.lock();
            if !self.head.alive() {
                return Err(dead());
            }
            if !inner.flags.contains(EvdFlags::SOFTWARE) {
                return Err(Error::arg(1));
            }
            let notify = inner.queue.drain_ready();
            // The length is no limit for completions, so these take no other event's room.
            if inner.queue.others() >= inner.qlen as usize {
                let wakeup = self.choose_wakeup(&mut inner, notify);
                drop(inner);
                wakeup.deliver();
                return Err(Error::of(ErrorKind::QueueFull));
            }
            inner.queue.push(Event::Software(pointer));
            self.choose_wakeup(&mut inner, true)
        };
        wakeup.deliver();
        Ok(())
    }

    /// Queues an event behind the completions that are there, and delivers the wakeup. If there is no room for it, [reports](Evd::overflow)
    /// that and returns false: the event is lost. The caller holds no lock that an agent's calls could need; see [`crate::lock_order`].
    pub(crate) fn post(&'static self, event: Event) -> bool {
        self.enqueue(event).finish()
    }

    /// The first half of [`Evd::post`], for callers that hold a lock.
    pub(crate) fn enqueue(&'static self, event: Event) -> Enqueued<T> {
        let mut inner = self.inner.lock();
        let (wakeup, lost) = if self.head.alive() {
            inner.counters.connections += u64::from(matches!(
                event,
                Event::Connection { .. } | Event::Datagram { .. }
            ));
            let notify = inner.queue.drain_ready();
            // The length is no limit for completions, so these take no other event's room.
            if inner.queue.others() >= inner.qlen as usize {
                let first = !std::mem::replace(&mut inner.overflowed, true);
                let lost = Lost::Full {
                    event,
                    qlen: inner.qlen,
                    first,
                };
                (self.choose_wakeup(&mut inner, notify), Some(lost))
            } else {
                if matches!(event, Event::ConnectionRequest { .. }) {
                    inner.poll_yield.request_arrived();
                }
                inner.overflowed = false;
                inner.queue.push(event);
                (self.choose_wakeup(&mut inner, true), None)
            }
        } else {
            (Wakeup::None, Some(Lost::Dead))
        };
        Enqueued {
            evd: self,
            wakeup,
            lost,
        }
    }

    /// Queues the flushed completion of a request that did not reach the transport, like [`Evd::post`]. Returns false if the queue holds as many
    /// events as its length, as the endpoints that feed it may have outstanding, and as `most`: then nothing is queued. A program that posts
    /// and takes no event must not use up the memory.
    pub(crate) fn post_flushed(&'static self, dto: Dto, most: u32) -> bool {
        let (queued, wakeup) = {
            let mut inner = self.inner.lock();
            if !self.head.alive() {
                return true;
            }
            let notify = inner.queue.drain_ready();
            let queued = inner.queue.len();
            inner.overflowed &= inner.queue.others() >= inner.qlen as usize;
            let room = inner.qlen.max(inner.cq_reserved).max(most);
            let has_room = queued < room as usize;
            if has_room {
                inner.queue.push(Event::Dto(dto));
            }
            (has_room, self.choose_wakeup(&mut inner, notify || has_room))
        };
        wakeup.deliver();
        queued
    }

    /// Logs a lost event. Posts `DAT_ASYNC_ERROR_EVD_OVERFLOW` to the IA's asynchronous EVD if it is the `first` since there was
    /// room: a peer that sends many requests must not fill that EVD, too. Returns false if that has no room either.
    fn overflow(&'static self, lost: &Event, qlen: u32, first: bool) -> bool {
        let ia = Ia::<T>::of(&self.head);
        if ia.async_evd().is_some_and(|evd| std::ptr::eq(evd, self)) {
            tracing::error!(
                evd = raw(self),
                qlen,
                ?lost,
                "the asynchronous EVD is full, an event is lost; take its events sooner, or resize it (dat_evd_resize)"
            );
        } else {
            tracing::warn!(
                evd = raw(self),
                qlen,
                ?lost,
                "an EVD is full, an event is lost; take its events sooner, or resize it (dat_evd_resize)"
            );
            return !first || ia.post_async(AsyncEvent::EvdOverflow, raw(self), 0);
        }
        true
    }

    /// Moves all completions from the completion queue to the event queue, through [`crate::ep::completion::complete`]; drives the
    /// transport if none is there.
    pub(crate) fn drain(&'static self) {
        let wakeup = {
            let mut inner = self.inner.lock();
            let notify = inner.queue.drain();
            inner.drop_internal();
            self.choose_wakeup(&mut inner, notify)
        };
        wakeup.deliver();
    }

    /// Drops the last sources of completions, when an endpoint that feeds this EVD is freed or reset.
    pub(crate) fn forget_sources(&self) {
        self.inner.lock().queue.forget_sources();
    }

    /// Empties the completion queue, so that completions of a queue pair that is gone take no room in it.
    pub(crate) fn gather(&'static self) {
        let mut inner = self.inner.lock();
        let wakeup = self.take_completions(&mut inner);
        drop(inner);
        wakeup.deliver();
    }

    /// Moves the completions that are there to the event queue and returns the wakeup.
    pub(super) fn take_completions(&'static self, inner: &mut Inner<T>) -> Wakeup<T> {
        let notify = inner.queue.drain_ready();
        inner.drop_internal();
        self.choose_wakeup(inner, notify)
    }

    /// Publishes the word after events were queued, and returns the wakeup. `notify`: at least one of these events is a
    /// notification.
    pub(super) fn choose_wakeup(&'static self, inner: &mut Inner<T>, notify: bool) -> Wakeup<T> {
        self.publish_word(inner);
        let queued = inner.queue.len();
        if let Some(waiting) = &mut inner.waiting {
            waiting.notified |= notify;
            if waiting.is_due(queued) {
                return inner.parker.clone().map_or(Wakeup::None, Wakeup::Waiter);
            }
            return Wakeup::None;
        }
        match &inner.cno {
            Some((cno, _)) if notify && inner.state.get().triggers_cno() => Wakeup::Cno(cno, self),
            _ => Wakeup::None,
        }
    }

    /// Has the transport report the next completion if that is needed, then drains the completion queue, so that no
    /// earlier completion is missed.
    pub(super) fn arm_cq(&'static self, inner: &mut Inner<T>) -> Wakeup<T> {
        let Some(cq) = inner.queue.cq.clone().filter(|_| inner.needs_reports()) else {
            return Wakeup::None;
        };
        if !inner.watched {
            match T::watch_cq(&cq, true) {
                Ok(()) => inner.watched = true,
                Err(error) => {
                    tracing::error!(
                        evd = raw(self),
                        %error,
                        "cannot watch the completion queue of an EVD: its CNO or a graceful disconnect misses completions"
                    );
                }
            }
        }
        self.take_completions(inner)
    }

    /// Arms the completion queue for a CNO that began to listen. It is notified at once of completions, and if `of_events` of events that are in the
    /// event queue already.
    pub(crate) fn arm_for_cno(&'static self, of_events: bool) {
        let wakeup = {
            let mut inner = self.inner.lock();
            match self.arm_cq(&mut inner) {
                Wakeup::None if of_events && inner.queue.len() > 0 => {
                    self.choose_wakeup(&mut inner, true)
                }
                armed => armed,
            }
        };
        wakeup.deliver();
    }

    pub(super) fn unwatch(&'static self, inner: &mut Inner<T>) {
        if std::mem::take(&mut inner.watched)
            && let Some(cq) = &inner.queue.cq
            && let Err(error) = T::watch_cq(cq, false)
        {
            tracing::debug!(evd = raw(self), %error, "cannot stop watching the completion queue of an EVD");
        }
    }
}

impl<T: Transport> Inner<T> {
    /// Drops the events of an internal EVD: receives of an SRQ give one each. All other completions there give none.
    fn drop_internal(&mut self) {
        if self.internal {
            self.queue.drop_events();
        }
    }

    /// Returns true if the transport must report completions: for a CNO, or for a graceful disconnect. A thread in
    /// dat_evd_wait takes them itself.
    pub(super) fn needs_reports(&self) -> bool {
        let state = self.state.get();
        let cno = match &self.cno {
            Some((cno, _)) => state.triggers_cno() && cno.listens(),
            None => false,
        };
        cno || (self.request_watches != 0 && !state.waited)
    }
}

/// Returns the EVD of `token`, if it still exists.
fn by_token<T: Transport>(token: Token) -> Option<&'static Evd<T>> {
    let evd = T::arenas().evd.get(token.index())?;
    (evd.head.alive() && evd.head.token(token.index()) == token).then_some(evd)
}

/// Handles the report of completions in a watched queue ([`crate::upcall::Upcalls::cq_ready`]).
pub(crate) fn cq_ready<T: Transport>(evd: Token) {
    let Some(evd) = by_token::<T>(evd) else {
        return;
    };
    let (wakeup, again) = {
        let mut inner = evd.inner.lock();
        inner.watched = false;
        inner.counters.announced += 1;
        (evd.take_completions(&mut inner), evd.arm_cq(&mut inner))
    };
    wakeup.deliver();
    again.deliver();
}

/// Handles the loss of completions of this EVD ([`crate::upcall::Fault::CqOverflow`]).
pub(crate) fn cq_overflow<T: Transport>(evd: Token) {
    if let Some(evd) = by_token::<T>(evd) {
        let _ = Ia::<T>::of(&evd.head).post_async(AsyncEvent::EvdOverflow, raw(evd), 0);
    }
}
