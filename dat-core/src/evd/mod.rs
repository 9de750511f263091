//! Event dispatchers (dat_evd_create and the other `dat_evd_*` pages): queues of events, with a completion
//! queue of the transport below where DTO or RMR bind completions feed them.
//!
//! [`state`] says what is allowed, `queue` keeps the events in order, `wait` is the one waiter; here is the
//! rest: create, query, modify, free, and who is told of an event.

mod queue;
pub mod state;
mod wait;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use self::queue::Queue;
use self::state::{Call, Config, Effect, State};
use self::wait::Waiting;
use crate::cno::Cno;
use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::event::{AsyncEvent, Dto, Event, RawHandle};
use crate::flags::{CompletionFlags, EvdFlags};
use crate::head::{ALIVE, Head, debug_by_head, raw};
use crate::ia::{Ia, Kind};
use crate::ledger::Claim;
use crate::transport::{Token, Transport};

pub use self::wait::WaitError;

/// Bits of [`Head::word`] beside [`ALIVE`]. With none of them set there is nothing to dequeue, and no reason
/// to look any further.
const HAS_CQ: u64 = 2;
/// Events are queued.
const QUEUED: u64 = 4;
/// A thread is in dat_evd_wait.
const WAITED: u64 = 8;

/// A completion queue is never smaller: consumers size EVDs by what they expect at a time, not by what
/// their endpoints can produce.
const MIN_CQ_DEPTH: u32 = 256;

/// Every stream of the specification.
const ALL_STREAMS: EvdFlags = EvdFlags::SOFTWARE
    .union(EvdFlags::CR)
    .union(EvdFlags::QUEUED)
    .union(EvdFlags::CONNECTION)
    .union(EvdFlags::ASYNC);

/// `DAT_QUEUE_EMPTY` of an EVD without a completion queue.
const EMPTY: Error = Error::of(ErrorKind::QueueEmpty);
/// `DAT_QUEUE_EMPTY` of one with: programs compare it whole, without the class bit.
const EMPTY_CQ: Error = Error::of(ErrorKind::QueueEmpty).without_class();

/// `DAT_INVALID_HANDLE`: the EVD is freed. Which argument it was, the caller knows.
const fn dead() -> Error {
    Error::of(ErrorKind::InvalidHandle)
}

/// Takes one event where the consumer wants it. Called at most once a call, and only on success.
pub trait EventSink {
    /// A completion.
    fn dto(&mut self, dto: &Dto);
    /// Any other event.
    fn event(&mut self, event: &Event);
}

/// What dat_evd_query tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EvdInfo {
    /// The IA's handle.
    pub ia: RawHandle,
    /// Events it holds at least.
    pub qlen: u32,
    /// `DAT_EVD_STATE` bits: enabled or disabled, waitable or unwaitable, configuration.
    pub state: u32,
    /// The CNO's handle or 0.
    pub cno: RawHandle,
    /// Streams it may take.
    pub flags: EvdFlags,
}

/// An event dispatcher. All methods may be called from any thread.
#[repr(C)]
pub struct Evd<T: Transport> {
    /// Table, liveness and whether there can be anything to dequeue, generation, ledger.
    pub head: Head,
    inner: Mutex<Inner<T>>,
}

struct Inner<T: Transport> {
    state: State,
    qlen: u32,
    flags: EvdFlags,
    queue: Queue<T>,
    waiting: Option<Waiting>,
    /// Made when somebody waits for the first time.
    parker: Option<Arc<T::Parker>>,
    cno: Option<(&'static Cno<T>, Claim)>,
    /// The transport will announce the next completion ([`Transport::watch_cq`]).
    watched: bool,
    /// What the endpoints of the streams ask for, to find the [`Config`].
    quiet_feeds: u32,
    solicited_feeds: u32,
    async_feeds: u32,
    /// Completions that the endpoints can have outstanding, and room in the completion queue.
    expected: u32,
    cq_depth: u32,
}

debug_by_head!(Evd);

impl<T: Transport> Default for Evd<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            inner: Mutex::new(Inner {
                state: State::default(),
                qlen: 0,
                flags: EvdFlags::empty(),
                queue: Queue::default(),
                waiting: None,
                parker: None,
                cno: None,
                watched: false,
                quiet_feeds: 0,
                solicited_feeds: 0,
                async_feeds: 0,
                expected: 0,
                cq_depth: 0,
            }),
        }
    }
}

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

/// An event stream that feeds an EVD. While it exists the EVD is not freed; dropping it ends the stream.
#[derive(Debug)]
pub(crate) struct Feed<T: Transport> {
    evd: &'static Evd<T>,
    generation: u32,
    stream: EvdFlags,
    completion: CompletionFlags,
    depth: u32,
    claim: Option<Claim>,
}

impl<T: Transport> Feed<T> {
    /// The EVD.
    pub(crate) fn evd(&self) -> &'static Evd<T> {
        self.evd
    }

    /// Whether the EVD is still the one that was claimed: an IA's close frees an asynchronous EVD that
    /// another IA uses.
    pub(crate) fn valid(&self) -> bool {
        self.evd.head.alive() && self.evd.head.generation.load(Ordering::Acquire) == self.generation
    }

    /// Sees to it that the completion queue has room for `depth` more completions outstanding.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES` if the transport has no such queue.
    pub(crate) fn reserve(&mut self, depth: u32) -> Result<()> {
        let mut inner = self.evd.inner.lock();
        let Some(cq) = inner.queue.cq.clone() else {
            return Ok(());
        };
        let expected = inner.expected.saturating_add(depth);
        if expected > inner.cq_depth {
            let depth = expected.max(inner.cq_depth.saturating_mul(2));
            let grown = T::resize_cq(&cq, depth).map(|()| depth);
            inner.cq_depth = grown.or_else(|_| T::resize_cq(&cq, expected).map(|()| expected))?;
        }
        inner.expected = expected;
        self.depth += depth;
        Ok(())
    }
}

impl<T: Transport> Drop for Feed<T> {
    fn drop(&mut self) {
        let mut inner = self.evd.inner.lock();
        if self.valid() {
            inner.count(self.stream, self.completion, u32::wrapping_sub);
            inner.expected -= self.depth;
        }
        // Under the lock, so that the counts are right whenever the claims are.
        self.claim.take();
    }
}

impl<T: Transport> Inner<T> {
    /// Adds a feed to, or takes it from, the counts that make up the configuration.
    fn count(
        &mut self,
        stream: EvdFlags,
        completion: CompletionFlags,
        count: impl Fn(u32, u32) -> u32,
    ) {
        let quiet = u32::from(completion.contains(CompletionFlags::UNSIGNALLED));
        let solicited = u32::from(completion.contains(CompletionFlags::SOLICITED_WAIT));
        let asynchronous = u32::from(stream.contains(EvdFlags::ASYNC));
        self.quiet_feeds = count(self.quiet_feeds, quiet);
        self.solicited_feeds = count(self.solicited_feeds, solicited);
        self.async_feeds = count(self.async_feeds, asynchronous);
        self.state.config = match (self.solicited_feeds, self.quiet_feeds) {
            (0, 0) => Config::Threshold,
            (0, _) => Config::Notify,
            _ => Config::Solicited,
        };
    }
}

/// The size of a queue that a consumer asks for, as argument 2.
fn check_qlen<T: Transport>(ia: &'static Ia<T>, qlen: u32) -> Result<()> {
    if qlen == 0 || qlen > i32::MAX as u32 {
        return Err(Error::arg(2));
    }
    if qlen > ia.attributes()?.max_evd_qlen {
        return Err(Error::resource(Subtype::ResourceTevd));
    }
    Ok(())
}

impl<T: Transport> Evd<T> {
    /// dat_evd_create: enabled, waitable, empty.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 2: no length; 4: no stream, or unknown ones);
    /// `DAT_INSUFFICIENT_RESOURCES`; `DAT_INVALID_HANDLE` (IA closed, CNO freed).
    pub fn create(
        ia: &'static Ia<T>,
        qlen: u32,
        cno: Option<&'static Cno<T>>,
        flags: EvdFlags,
    ) -> Result<&'static Self> {
        check_qlen(ia, qlen)?;
        if flags.is_empty() || !ALL_STREAMS.contains(flags) {
            return Err(Error::arg(4));
        }
        let claim = match cno {
            Some(cno) => Some((cno, cno.head.claim(Subtype::InvalidHandleCno)?)),
            None => None,
        };
        let adapter = ia.adapter()?;
        let arena = &T::arenas().evd;
        let (index, evd) = arena
            .alloc()
            .ok_or(Error::resource(Subtype::ResourceMemory))?;
        let depth = qlen.max(MIN_CQ_DEPTH.min(ia.attributes()?.max_evd_qlen));
        let cq = if flags.intersects(EvdFlags::QUEUED) {
            let token = evd.head.next_token(index);
            match T::create_cq(&adapter, depth, token) {
                Ok(cq) => Some(Arc::new(cq)),
                Err(error) => {
                    arena.recycle(index);
                    return Err(error);
                }
            }
        } else {
            None
        };
        let bits = if cq.is_some() { HAS_CQ } else { 0 };
        {
            let mut inner = evd.inner.lock();
            inner.state = State::default();
            inner.qlen = qlen;
            inner.flags = flags;
            inner.queue.start(qlen, cq);
            inner.watched = false;
            inner.expected = 0;
            inner.cq_depth = depth;
            (inner.quiet_feeds, inner.solicited_feeds, inner.async_feeds) = (0, 0, 0);
        }
        ia.adopt(Kind::Evd, index, &evd.head, bits)
            .inspect_err(|_| {
                let cq = evd.inner.lock().queue.stop();
                drop(cq);
                arena.recycle(index);
            })?;
        let told = {
            let mut inner = evd.inner.lock();
            if let Some((cno, _)) = &claim {
                cno.attach(evd);
            }
            inner.cno = claim;
            evd.listen(&mut inner)
        };
        told.deliver();
        Ok(evd)
    }

    /// dat_evd_query.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn info(&'static self) -> Result<EvdInfo> {
        let inner = self.inner.lock();
        if !self.head.alive() {
            return Err(dead());
        }
        Ok(EvdInfo {
            ia: raw(Ia::<T>::of(&self.head)),
            qlen: inner.qlen,
            state: inner.state.bits(),
            cno: inner.cno.as_ref().map_or(0, |(cno, _)| raw(*cno)),
            flags: inner.flags,
        })
    }

    /// dat_evd_modify_cno: from now on `cno` is told, or nobody.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` (`CNO` if that is freed).
    pub fn modify_cno(&'static self, cno: Option<&'static Cno<T>>) -> Result<()> {
        let new = match cno {
            Some(cno) => Some((cno, cno.head.claim(Subtype::InvalidHandleCno)?)),
            None => None,
        };
        let (old, told) = {
            let mut inner = self.inner.lock();
            if !self.head.alive() {
                return Err(dead());
            }
            let old = std::mem::replace(&mut inner.cno, new);
            if let Some((cno, _)) = &old {
                cno.detach(self, false);
            }
            match cno {
                Some(cno) => cno.attach(self),
                None => self.unwatch(&mut inner),
            }
            (old, self.listen(&mut inner))
        };
        drop(old);
        told.deliver();
        Ok(())
    }

    /// dat_evd_enable: events trigger the CNO. No effect on waiters.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn enable(&'static self) -> Result<()> {
        self.call(Call::Enable)
    }

    /// dat_evd_disable: events do not trigger the CNO. No effect on waiters.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn disable(&'static self) -> Result<()> {
        self.call(Call::Disable)
    }

    /// dat_evd_set_unwaitable: dat_evd_wait is refused, also to the thread that is in it.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn set_unwaitable(&'static self) -> Result<()> {
        self.call(Call::SetUnwaitable)
    }

    /// dat_evd_clear_unwaitable.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn clear_unwaitable(&'static self) -> Result<()> {
        self.call(Call::ClearUnwaitable)
    }

    fn call(&'static self, call: Call) -> Result<()> {
        let told = {
            let mut inner = self.inner.lock();
            if !self.head.alive() {
                return Err(dead());
            }
            let (state, effect) = inner.state.step(call)?;
            inner.state = state;
            match effect {
                Effect::None => Told::Nobody,
                Effect::Listen => self.listen(&mut inner),
                Effect::RefuseWaiter => {
                    if let Some(waiting) = &mut inner.waiting {
                        waiting.refused = true;
                    }
                    inner.parker.clone().map_or(Told::Nobody, Told::Waiter)
                }
            }
        };
        told.deliver();
        Ok(())
    }

    /// dat_evd_dequeue. The empty case of an EVD without a completion queue is one load and one
    /// comparison.
    ///
    /// # Errors
    /// `DAT_QUEUE_EMPTY` (without the class bit if the EVD has a completion queue); `DAT_INVALID_STATE`
    /// (`EVD_WAITER`) while a thread waits; `DAT_INVALID_HANDLE`.
    #[inline(always)]
    pub fn dequeue(&'static self, sink: &mut impl EventSink) -> Result<()> {
        if self.head.word.load(Ordering::Acquire) == ALIVE {
            return Err(EMPTY);
        }
        self.dequeue_any(sink)
    }

    #[inline]
    fn dequeue_any(&'static self, sink: &mut impl EventSink) -> Result<()> {
        let mut inner = self.inner.lock();
        let word = self.head.word.load(Ordering::Relaxed);
        if word & ALIVE == 0 {
            return Err(dead());
        }
        if word & WAITED != 0 {
            inner.state.step(Call::Dequeue)?;
        }
        if word & QUEUED != 0 && inner.queue.pop(sink) {
            self.left(&inner);
            return Ok(());
        }
        if inner.queue.take(sink) {
            return Ok(());
        }
        Err(if word & HAS_CQ == 0 { EMPTY } else { EMPTY_CQ })
    }

    /// dat_evd_resize: keeps every event.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 2); `DAT_INVALID_STATE` if more events are queued;
    /// `DAT_INSUFFICIENT_RESOURCES`; `DAT_INVALID_HANDLE`.
    pub fn resize(&'static self, qlen: u32) -> Result<()> {
        if !self.head.alive() {
            return Err(dead());
        }
        check_qlen(Ia::<T>::of(&self.head), qlen)?;
        let told = {
            let mut inner = self.inner.lock();
            if !self.head.alive() {
                return Err(dead());
            }
            let told = self.take_in(&mut inner);
            if inner.queue.len() > qlen as usize {
                drop(inner);
                told.deliver();
                return Err(Error::of(ErrorKind::InvalidState));
            }
            let resized = match inner.queue.cq.clone() {
                Some(cq) if qlen > inner.cq_depth => T::resize_cq(&cq, qlen).map(|()| {
                    inner.cq_depth = qlen;
                }),
                _ => Ok(()),
            };
            if resized.is_ok() {
                inner.qlen = qlen;
                inner.queue.reserve(qlen);
            }
            resized.map(|()| told)?
        };
        told.deliver();
        Ok(())
    }

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
                let _ = self.settle(&mut inner, notify);
                return Err(Error::of(ErrorKind::QueueFull));
            }
            inner.queue.push(Event::Software(pointer));
            self.settle(&mut inner, true)
        };
        told.deliver();
        Ok(())
    }

    /// dat_evd_free: its events are lost, a waiter returns `DAT_ABORT`.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`; `DAT_INVALID_STATE` (`EVD_IN_USE`) while event streams feed it.
    pub fn free(&'static self) -> Result<()> {
        self.head
            .retire(Subtype::NoSubtype, Subtype::InvalidStateEvdInUse)?;
        self.bury();
        Ok(())
    }

    /// The abrupt close's free: an asynchronous EVD goes even if another IA uses it.
    pub(crate) fn destroy(&'static self) -> Result<()> {
        {
            let inner = self.inner.lock();
            self.head.retire_claimed(
                inner.async_feeds,
                Subtype::NoSubtype,
                Subtype::InvalidStateEvdInUse,
            )?;
        }
        self.bury();
        Ok(())
    }

    /// Takes the parts out of a retired EVD.
    fn bury(&'static self) {
        let (cq, cno, parker) = {
            let mut inner = self.inner.lock();
            self.unwatch(&mut inner);
            let parker = inner.parker.take();
            let waiter = inner.waiting.take().and(parker);
            inner.state = State::default();
            (inner.queue.stop(), inner.cno.take(), waiter)
        };
        if let Some(parker) = parker {
            T::unpark(&parker);
        }
        if let Some((cno, _)) = &cno {
            cno.detach(self, true);
        }
        drop(cno);
        drop(cq);
        let arena = &T::arenas().evd;
        let index = arena.index_of(self);
        Ia::<T>::of(&self.head).leave(Kind::Evd, index);
        arena.recycle(index);
    }

    /// Lets an event stream feed this EVD. `completion` are the flags of the endpoint for this
    /// direction (they decide what notifies); empty for streams without completions.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` with `subtype` if the EVD is dead or does not take `stream`.
    pub(crate) fn feed(
        &'static self,
        stream: EvdFlags,
        completion: CompletionFlags,
        subtype: Subtype,
    ) -> Result<Feed<T>> {
        let mut inner = self.inner.lock();
        let claim = self.head.claim(subtype)?;
        if !inner.flags.contains(stream) {
            return Err(Error::handle(subtype));
        }
        inner.count(stream, completion, u32::wrapping_add);
        Ok(Feed {
            evd: self,
            generation: self.head.generation.load(Ordering::Acquire),
            stream,
            completion,
            depth: 0,
            claim: Some(claim),
        })
    }

    /// Queues an event, after the completions that are there already, and tells whoever is to be told.
    /// No room for an event that is no completion: `DAT_ASYNC_ERROR_EVD_OVERFLOW` instead. The caller
    /// holds no lock that an agent's calls could need; see [`crate::order`].
    pub(crate) fn post(&'static self, event: Event) {
        let told = {
            let mut inner = self.inner.lock();
            if !self.head.alive() {
                return;
            }
            let notify = inner.queue.drain();
            let full = inner.queue.len() >= inner.qlen as usize;
            if full && !matches!(event, Event::Dto(_)) {
                let told = self.settle(&mut inner, notify);
                drop(inner);
                told.deliver();
                self.overflow(&event);
                return;
            }
            inner.queue.push(event);
            self.settle(&mut inner, true)
        };
        told.deliver();
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

    /// The completion queue; `None` for an EVD without DTO and RMR bind streams, or a freed one.
    pub(crate) fn cq(&self) -> Option<Arc<T::Cq>> {
        self.inner.lock().queue.cq.clone()
    }

    /// Drains the completion queue and decides who hears of it.
    fn take_in(&'static self, inner: &mut Inner<T>) -> Told<T> {
        let notify = inner.queue.drain();
        self.settle(inner, notify)
    }

    /// After events were queued, with a notification among them or not: who is to be told?
    fn settle(&'static self, inner: &mut Inner<T>, notify: bool) -> Told<T> {
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
    fn listen(&'static self, inner: &mut Inner<T>) -> Told<T> {
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

    fn unwatch(&self, inner: &mut Inner<T>) {
        if std::mem::take(&mut inner.watched) {
            if let Some(cq) = &inner.queue.cq {
                if let Err(error) = T::watch_cq(cq, false) {
                    tracing::debug!(%error, "a completion queue is still watched");
                }
            }
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
