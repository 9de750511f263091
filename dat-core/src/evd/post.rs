//! How events come into an EVD, and who hears of them: the thread in dat_evd_wait, else the CNO.

use std::sync::Arc;

use super::{Evd, Inner, dead};
use crate::cno::Cno;
use crate::error::{Error, Kind as ErrorKind, Result};
use crate::event::{AsyncEvent, Event, RawHandle};
use crate::flags::EvdFlags;
use crate::head::raw;
use crate::ia::Ia;
use crate::transport::{Token, Transport};

/// Who is to be told of an event, once all locks are dropped.
#[must_use = "somebody waits for it"]
pub(crate) enum Told<T: Transport> {
    /// Nobody.
    Nobody,
    /// The thread in dat_evd_wait.
    Waiter(Arc<T::Parker>),
    /// The CNO, that the EVD of this handle has something.
    Cno(&'static Cno<T>, RawHandle),
}

impl<T: Transport> Told<T> {
    /// Tells them. May run a consumer's agent: the caller holds no lock.
    pub(crate) fn deliver(self) {
        match self {
            Self::Nobody => {}
            Self::Waiter(parker) => T::unpark(&parker),
            Self::Cno(cno, evd) => cno.notify(evd),
        }
    }
}

impl<T: Transport> Evd<T> {
    /// dat_evd_post_se: queues the consumer's pointer.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 1: the EVD takes no software events); `DAT_QUEUE_FULL`;
    /// `DAT_INVALID_HANDLE`.
    pub fn post_se(&'static self, pointer: usize) -> Result<()> {
        let told = {
            let mut inner = self.inner.lock();
            if !self.head.alive() {
                return Err(dead());
            }
            if !inner.flags.contains(EvdFlags::SOFTWARE) {
                return Err(Error::arg(1));
            }
            let notify = inner.queue.drain();
            if inner.queue.len() >= inner.qlen as usize {
                let told = self.settle(&mut inner, notify);
                drop(inner);
                told.deliver();
                return Err(Error::of(ErrorKind::QueueFull));
            }
            inner.queue.push(Event::Software(pointer));
            self.settle(&mut inner, true)
        };
        told.deliver();
        Ok(())
    }

    /// Queues an event, after the completions that are there already, and tells whoever is to be told.
    /// No room for an event that is no completion: `DAT_ASYNC_ERROR_EVD_OVERFLOW` instead. False: the
    /// event is lost. The caller holds no lock that an agent's calls could need; see [`crate::order`].
    pub(crate) fn post(&'static self, event: Event) -> bool {
        let told = {
            let mut inner = self.inner.lock();
            if !self.head.alive() {
                return false;
            }
            inner.tally.connections += u64::from(matches!(
                event,
                Event::Connection { .. } | Event::Datagram { .. }
            ));
            let notify = inner.queue.drain();
            let full = inner.queue.len() >= inner.qlen as usize;
            if full && !matches!(event, Event::Dto(_)) {
                let told = self.settle(&mut inner, notify);
                drop(inner);
                told.deliver();
                self.overflow(&event);
                return false;
            }
            if matches!(event, Event::ConnectionRequest { .. }) {
                inner.patience.request();
            }
            inner.queue.push(event);
            self.settle(&mut inner, true)
        };
        told.deliver();
        true
    }

    /// Reports a lost event on the IA's asynchronous EVD.
    fn overflow(&'static self, lost: &Event) {
        let ia = Ia::<T>::of(&self.head);
        if ia.async_evd().is_some_and(|evd| std::ptr::eq(evd, self)) {
            tracing::error!(
                ?lost,
                "the asynchronous EVD is full: an event is lost; resize it or wait on it"
            );
        } else {
            tracing::warn!(?lost, "an EVD is full: an event is lost");
            ia.post_async(AsyncEvent::EvdOverflow, raw(self), 0);
        }
    }

    /// Takes all completions out of the completion queue into the event queue, through
    /// [`crate::ep::dto::complete`].
    pub(crate) fn drain(&'static self) {
        let told = {
            let mut inner = self.inner.lock();
            self.take_in(&mut inner)
        };
        told.deliver();
    }

    /// An endpoint that feeds this EVD ends, or begins anew: what is known of it is so no more.
    pub(crate) fn forget(&self) {
        self.inner.lock().queue.forget();
    }

    /// Drains the completion queue and decides who hears of it.
    pub(super) fn take_in(&'static self, inner: &mut Inner<T>) -> Told<T> {
        let notify = inner.queue.drain();
        self.settle(inner, notify)
    }

    /// After events were queued, with a notification among them or not: who is to be told?
    pub(super) fn settle(&'static self, inner: &mut Inner<T>, notify: bool) -> Told<T> {
        self.left(inner);
        let queued = inner.queue.len();
        if let Some(waiting) = &mut inner.waiting {
            waiting.notified |= notify;
            if waiting.due(queued) {
                return inner.parker.clone().map_or(Told::Nobody, Told::Waiter);
            }
            return Told::Nobody;
        }
        match &inner.cno {
            Some((cno, _)) if notify && inner.state.tells_cno() => Told::Cno(cno, raw(self)),
            _ => Told::Nobody,
        }
    }

    /// If the CNO listens: asks the transport to announce the next completion, then looks once more, so
    /// that none is missed that came before.
    pub(super) fn listen(&'static self, inner: &mut Inner<T>) -> Told<T> {
        let listens = match &inner.cno {
            Some((cno, _)) => inner.state.tells_cno() && cno.listens(),
            None => false,
        };
        let Some(cq) = inner.queue.cq.clone().filter(|_| listens) else {
            return Told::Nobody;
        };
        if !inner.watched {
            match T::watch_cq(&cq, true) {
                Ok(()) => inner.watched = true,
                Err(error) => {
                    tracing::error!(%error, "a CNO will miss completions: they cannot be announced");
                }
            }
        }
        self.take_in(inner)
    }

    /// For dat_cno_wait: whoever waits there wants to hear of this EVD.
    pub(crate) fn listen_for_cno(&'static self) {
        let told = {
            let mut inner = self.inner.lock();
            self.listen(&mut inner)
        };
        told.deliver();
    }

    pub(super) fn unwatch(&self, inner: &mut Inner<T>) {
        if std::mem::take(&mut inner.watched)
            && let Some(cq) = &inner.queue.cq
            && let Err(error) = T::watch_cq(cq, false)
        {
            tracing::debug!(%error, "a completion queue is still watched");
        }
    }
}

/// The EVD that `token` names, if it still is that one.
fn by_token<T: Transport>(token: Token) -> Option<&'static Evd<T>> {
    let evd = T::arenas().evd.get(token.index())?;
    (evd.head.alive() && evd.head.token(token.index()) == token).then_some(evd)
}

/// For [`crate::upcall::Upcalls::cq_ready`]: completions came to a watched queue.
pub(crate) fn cq_ready<T: Transport>(evd: Token) {
    let Some(evd) = by_token::<T>(evd) else {
        return;
    };
    let (told, again) = {
        let mut inner = evd.inner.lock();
        inner.watched = false;
        inner.tally.announced += 1;
        (evd.take_in(&mut inner), evd.listen(&mut inner))
    };
    told.deliver();
    again.deliver();
}

/// For [`crate::upcall::Fault::CqOverflow`]: completions of this EVD were lost.
pub(crate) fn cq_overflow<T: Transport>(evd: Token) {
    if let Some(evd) = by_token::<T>(evd) {
        Ia::<T>::of(&evd.head).post_async(AsyncEvent::EvdOverflow, raw(evd), 0);
    }
}
