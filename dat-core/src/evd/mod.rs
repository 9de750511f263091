//! Event dispatchers (dat_evd_create and the other `dat_evd_*` pages): queues of events, with a completion
//! queue of the transport below where DTO or RMR bind completions feed them.
//!
//! [`state`] says what is allowed, `queue` keeps the events in order, `post` brings them in and decides who is
//! told, `wait` is the one waiter, `feed` are the streams; here is the object: create, query, modify, dequeue,
//! free.

mod feed;
mod post;
mod queue;
pub mod state;
mod wait;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_arena::{BriefGuard, BriefMutex};

use self::post::Told;
use self::queue::Queue;
use self::state::{Call, Effect, State};
use self::wait::Waiting;
use crate::cno::Cno;
use crate::counters::{Counted, EvdCounter, EvdTally, Which};
use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::event::{Dto, Event, RawHandle};
use crate::flags::EvdFlags;
use crate::head::{ALIVE, Head, debug_by_head, raw};
use crate::ia::{Ia, Kind};
use crate::ledger::Claim;
use crate::transport::Transport;

pub(crate) use self::feed::Feed;
pub(crate) use self::post::{cq_overflow, cq_ready};
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
    /// The completion queue may hold completions of which nobody hears, so they cannot be counted without a look at each.
    unheard: AtomicBool,
    inner: BriefMutex<Inner<T>>,
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
    /// What the endpoints of the streams ask for, to find the [`state::Config`].
    quiet_feeds: u32,
    solicited_feeds: u32,
    /// Feeds that need no completion queue; they may come from other IAs.
    loose_feeds: u32,
    /// Completions that the endpoints can have outstanding, and room in the completion queue.
    expected: u32,
    cq_depth: u32,
    tally: EvdTally,
}

debug_by_head!(Evd);

impl<T: Transport> Default for Evd<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            unheard: AtomicBool::new(false),
            inner: BriefMutex::new(Inner {
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
                loose_feeds: 0,
                expected: 0,
                cq_depth: 0,
                tally: EvdTally::default(),
            }),
        }
    }
}

/// Claims a CNO for an EVD of `ia`: one of another IA would keep that from closing.
fn claim_cno<T: Transport>(ia: &'static Ia<T>, cno: &'static Cno<T>) -> Result<Claim> {
    let claim = cno.head.claim(Subtype::InvalidHandleCno)?;
    if std::ptr::eq(Ia::<T>::of(&cno.head), ia) {
        Ok(claim)
    } else {
        Err(Error::handle(Subtype::InvalidHandleCno))
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
            Some(cno) => Some((cno, claim_cno(ia, cno)?)),
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
            evd.unheard.store(false, Ordering::Relaxed);
            inner.expected = 0;
            inner.cq_depth = depth;
            inner.tally = EvdTally::default();
            (inner.quiet_feeds, inner.solicited_feeds, inner.loose_feeds) = (0, 0, 0);
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
            Some(cno) => Some((cno, claim_cno(Ia::of(&self.head), cno)?)),
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

    /// dat_ib_query_counters; those that `reset` names begin anew.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn counters(&'static self, reset: Option<Which>) -> Result<Counted> {
        let mut inner = self.inner.lock();
        if !self.head.alive() {
            return Err(dead());
        }
        let mut tally = inner.tally;
        tally.polls = inner.queue.polls;
        let values = tally.values().to_vec();
        if let Some(which) = reset {
            tally.reset(which);
            inner.queue.polls = tally.polls;
            inner.tally = tally;
        }
        Ok(Counted {
            names: EvdCounter::ALL.iter().map(|c| c.name()).collect(),
            values,
        })
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

    /// Whether there is nothing to dequeue, nor a reason to look any further: an EVD without a completion queue, in
    /// one load and one comparison.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        self.head.word.load(Ordering::Acquire) == ALIVE
    }

    /// dat_evd_dequeue.
    ///
    /// # Errors
    /// `DAT_QUEUE_EMPTY` (without the class bit if the EVD has a completion queue); `DAT_INVALID_STATE`
    /// (`EVD_WAITER`) while a thread waits; `DAT_INVALID_HANDLE`.
    #[inline]
    pub fn dequeue(&'static self, sink: impl EventSink) -> Result<()> {
        if self.is_idle() {
            return Err(EMPTY);
        }
        self.dequeue_busy(sink)
    }

    /// The same for one that is not [idle](Evd::is_idle). A completion of the usual kind goes the short way, straight
    /// from the transport to `sink`, past every call but the transport's; all else leaves it by a call at its end.
    ///
    /// # Errors
    /// As [`Evd::dequeue`].
    #[inline(always)]
    pub fn dequeue_busy(&'static self, mut sink: impl EventSink) -> Result<()> {
        let Some(mut inner) = self.inner.try_lock() else {
            return self.dequeue_again(sink);
        };
        if self.head.word.load(Ordering::Relaxed) == ALIVE | HAS_CQ {
            if inner.queue.at_hand() == 0 {
                return self.dequeue_polled(inner, sink);
            }
            if inner.queue.take_usual(&mut sink) {
                inner.tally.found += 1;
                return Ok(());
            }
        }
        self.dequeue_any(inner, sink)
    }

    /// Nothing is at hand: asks the transport.
    #[inline(never)]
    fn dequeue_polled(
        &'static self,
        mut inner: BriefGuard<'static, Inner<T>>,
        mut sink: impl EventSink,
    ) -> Result<()> {
        if !inner.queue.has_batch() {
            inner.tally.missed += 1;
            return Err(EMPTY_CQ);
        }
        if inner.queue.take_usual(&mut sink) {
            inner.tally.found += 1;
            return Ok(());
        }
        self.dequeue_any(inner, sink)
    }

    #[cold]
    #[inline(never)]
    fn dequeue_again(&'static self, sink: impl EventSink) -> Result<()> {
        self.dequeue_any(self.inner.lock(), sink)
    }

    /// The long way.
    #[inline(never)]
    fn dequeue_any(
        &'static self,
        mut inner: BriefGuard<'static, Inner<T>>,
        mut sink: impl EventSink,
    ) -> Result<()> {
        let word = self.head.word.load(Ordering::Relaxed);
        if word & ALIVE == 0 {
            // The caller has looked at the address only.
            return Err(Error::handle(Subtype::InvalidHandle1));
        }
        if word & WAITED != 0 {
            inner.state.step(Call::Dequeue)?;
        }
        let popped = inner.queue.pop(&mut sink);
        if popped {
            self.left(&inner);
        }
        if popped || inner.queue.take_any(&mut sink) {
            inner.tally.found += 1;
            return Ok(());
        }
        inner.tally.missed += 1;
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

    /// The abrupt close's free: the IA's own streams are gone, those of other IAs find a dead EVD.
    pub(crate) fn destroy(&'static self) -> Result<()> {
        {
            let inner = self.inner.lock();
            self.head.retire_claimed(
                inner.loose_feeds,
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

    /// From now on completions may come of which nobody hears: suppressed ones, or of endpoints that are gone.
    pub(crate) fn expect_unheard(&self) {
        if !self.unheard.load(Ordering::Relaxed) {
            self.unheard.store(true, Ordering::Release);
        }
    }

    /// The completion queue; `None` for an EVD without DTO and RMR bind streams, or a freed one.
    pub(crate) fn cq(&self) -> Option<Arc<T::Cq>> {
        self.inner.lock().queue.cq.clone()
    }
}
