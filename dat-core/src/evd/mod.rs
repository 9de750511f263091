//! Event dispatchers (dat_evd_create and the other `dat_evd_*` pages): queues of events, with a completion
//! queue of the transport below where DTO or RMR bind completions feed them.
//!
//! [`state`] says what is allowed, `queue` keeps the events in order, `post` brings them in and decides who is
//! told, `dequeue` takes them out, `wait` is the one waiter, `patience` is for those who poll, `feed` are the streams; here is the object:
//! create, query, modify, free.

mod dequeue;
mod feed;
mod patience;
mod post;
mod queue;
pub mod state;
mod wait;
pub mod word;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use dat_arena::BriefMutex;

use self::patience::Patience;
use self::post::Told;
use self::queue::Queue;
use self::state::{Call, Effect, State};
use self::wait::Waiting;
use self::word::{IDLE, QUIET};
use crate::cno::Cno;
use crate::counters::{Counted, EvdCounter, EvdTally, Which};
use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::event::RawHandle;
use crate::flags::EvdFlags;
use crate::head::{Head, debug_by_head, raw};
use crate::ia::{Ia, Kind};
use crate::transport::Transport;
use crate::use_count::Claim;

pub use self::dequeue::{EMPTY, EMPTY_CQ, EventSink, Polled};
pub(crate) use self::feed::Feed;
pub(crate) use self::patience::Expected;
pub(crate) use self::post::{cq_overflow, cq_ready};
pub use self::wait::WaitError;

/// A completion queue is never smaller: consumers size EVDs by what they expect at a time, not by what
/// their endpoints can produce.
const MIN_CQ_DEPTH: u32 = 256;

/// The completion queue may hold completions of which nobody hears, so they cannot be counted without a look at each.
const UNHEARD: u8 = 1;
/// dat_evd_wait is refused.
const UNWAITABLE: u8 = 2;

/// Every stream of the specification.
const ALL_STREAMS: EvdFlags = EvdFlags::SOFTWARE
    .union(EvdFlags::CR)
    .union(EvdFlags::QUEUED)
    .union(EvdFlags::CONNECTION)
    .union(EvdFlags::ASYNC);

/// `DAT_INVALID_HANDLE`: the EVD is freed. Which argument it was, the caller knows.
const fn dead() -> Error {
    Error::of(ErrorKind::InvalidHandle)
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
    /// What bars the short ways of dat_evd_wait: [`UNHEARD`] and [`UNWAITABLE`].
    bars: AtomicU8,
    inner: BriefMutex<Inner<T>>,
}

struct Inner<T: Transport> {
    state: State,
    qlen: u32,
    flags: EvdFlags,
    queue: Queue<T>,
    waiting: Option<Waiting>,
    patience: Patience,
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
            bars: AtomicU8::new(0),
            inner: BriefMutex::new(Inner {
                state: State::default(),
                qlen: 0,
                flags: EvdFlags::empty(),
                queue: Queue::default(),
                waiting: None,
                patience: Patience::default(),
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
        let word = if cq.is_some() { QUIET } else { IDLE };
        let started = {
            let mut inner = evd.inner.lock();
            inner.state = State::default();
            inner.qlen = qlen;
            inner.flags = flags;
            let started = inner.queue.start(qlen, cq);
            inner.watched = false;
            inner.patience = Patience::default();
            evd.bars.store(0, Ordering::Relaxed);
            inner.expected = 0;
            inner.cq_depth = depth;
            inner.tally = EvdTally::default();
            (inner.quiet_feeds, inner.solicited_feeds, inner.loose_feeds) = (0, 0, 0);
            started
        };
        started
            .and_then(|()| ia.adopt(Kind::Evd, index, &evd.head, word))
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
            if state.waitable {
                self.bars.fetch_and(!UNWAITABLE, Ordering::Release);
            } else {
                self.bars.fetch_or(UNWAITABLE, Ordering::Release);
            }
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
            inner.queue.reserve(qlen)?;
            let resized = match inner.queue.cq.clone() {
                Some(cq) if qlen > inner.cq_depth => T::resize_cq(&cq, qlen).map(|()| {
                    inner.cq_depth = qlen;
                }),
                _ => Ok(()),
            };
            if resized.is_ok() {
                inner.qlen = qlen;
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
        if self.bars.load(Ordering::Relaxed) & UNHEARD == 0 {
            self.bars.fetch_or(UNHEARD, Ordering::Release);
        }
    }

    /// The completion queue; `None` for an EVD without DTO and RMR bind streams, or a freed one.
    pub(crate) fn cq(&self) -> Option<Arc<T::Cq>> {
        self.inner.lock().queue.cq.clone()
    }
}
