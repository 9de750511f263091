//! Event dispatchers (dat_evd_create and the other `dat_evd_*` pages): queues of events, with a completion queue of
//! the transport where streams of DTO or RMR bind completions feed them.
//!
//! [`state`] decides what is allowed; `queue` keeps the events in order; `post` queues events and wakes the waiter or
//! triggers the CNO; `dequeue` and `wait` hand events out; `poll_yield` yields the processor between polls; `feed`
//! are the streams; `request_watch` serves graceful disconnects; `early` keeps the receives of endpoints that are not
//! connected yet. This file creates, queries, modifies and frees the object.

mod dequeue;
mod early;
mod feed;
mod poll_yield;
mod post;
mod queue;
mod quick_polls;
mod request_watch;
pub mod state;
mod wait;
pub mod word;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dat_arena::BriefMutex;

use self::poll_yield::PollYield;
use self::post::Wakeup;
use self::queue::Queue;
use self::quick_polls::QuickPolls;
use self::state::{Effect, Input, StateCell};
use self::wait::Waiting;
use self::word::{IDLE, POLL_CQ};
use crate::cno::Cno;
use crate::counters::{Counted, EvdCounter, EvdCounters, Which};
use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::event::RawHandle;
use crate::flags::EvdFlags;
use crate::head::{Head, debug_by_head, raw};
use crate::ia::{Ia, Kind};
use crate::transport::Transport;
use crate::use_count::Claim;

pub use self::dequeue::{EMPTY, EMPTY_CQ, EventSink, Polled};
pub(crate) use self::feed::Feed;
pub(crate) use self::poll_yield::ExpectedEvent;
pub(crate) use self::post::{Enqueued, cq_overflow, cq_ready};
pub(crate) use self::request_watch::RequestWatch;
pub use self::wait::WaitError;

/// Minimum depth of a completion queue: consumers size EVDs by the events that they expect at a time, not by the
/// number of completions that their endpoints can have outstanding.
const MIN_CQ_DEPTH: u32 = 256;

/// Flag in [`Evd::silent`]: the completion queue may hold receives that are kept until their endpoint is connected.
const ATTEMPTS: u64 = 1 << 61;
/// Flag in [`Evd::silent`]: the completion queue may hold completions of an endpoint that was freed or reset.
const ORPHANS: u64 = 1 << 62;
/// Flag in [`Evd::silent`]: the EVD is unwaitable, dat_evd_wait is refused.
const UNWAITABLE: u64 = 1 << 63;

/// Streams of the specification.
const ALL_STREAMS: EvdFlags = EvdFlags::SOFTWARE
    .union(EvdFlags::CR)
    .union(EvdFlags::QUEUED)
    .union(EvdFlags::CONNECTION)
    .union(EvdFlags::ASYNC);

/// Returns `DAT_INVALID_HANDLE` for a freed EVD. The caller adds the argument.
const fn dead() -> Error {
    Error::of(ErrorKind::InvalidHandle)
}

/// Result of dat_evd_query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EvdInfo {
    /// Handle of the IA.
    pub ia: RawHandle,
    /// Minimum number of events that the queue can hold.
    pub qlen: u32,
    /// `DAT_EVD_STATE` bits: enabled or disabled, waitable or unwaitable, configuration.
    pub state: u32,
    /// Handle of the CNO, or 0.
    pub cno: RawHandle,
    /// Streams that the EVD may take.
    pub flags: EvdFlags,
}

/// Event dispatcher. All methods may be called from any thread.
#[repr(C)]
pub struct Evd<T: Transport> {
    /// Table, liveness and dequeue state ([`word`]), generation, use count.
    pub head: Head,
    /// Number of requests posted whose completion gives no event, with the flags [`ATTEMPTS`], [`ORPHANS`] and
    /// [`UNWAITABLE`]. If it equals the number of these completions that the queue took, each completion left gives an
    /// event, and waiting is allowed: that is the condition of the fast paths of dat_evd_wait.
    silent: AtomicU64,
    inner: BriefMutex<Inner<T>>,
}

struct Inner<T: Transport> {
    state: StateCell,
    qlen: u32,
    flags: EvdFlags,
    queue: Queue<T>,
    waiting: Option<Waiting>,
    poll_yield: PollYield,
    quick_polls: QuickPolls,
    /// Parker of the waiter, made for the first wait.
    parker: Option<Arc<T::Parker>>,
    cno: Option<(&'static Cno<T>, Claim)>,
    /// True if the transport will report the next completion ([`Transport::watch_cq`]).
    watched: bool,
    /// True if an event was lost and reported since there was room.
    overflowed: bool,
    /// Number of graceful disconnects that wait for a completion here.
    request_watches: u32,
    /// Number of streams whose endpoint has `DAT_COMPLETION_UNSIGNALLED_FLAG`; it decides the [`state::Config`].
    unsignalled_feeds: u32,
    /// Number of streams whose endpoint has `DAT_COMPLETION_SOLICITED_WAIT_FLAG`; it decides the [`state::Config`].
    solicited_feeds: u32,
    /// Number of feeds that need no completion queue; these may come from other IAs.
    cqless_feeds: u32,
    /// True if no consumer has the EVD: its events are dropped.
    internal: bool,
    /// Maximum number of outstanding completions of the endpoints, and depth of the completion queue.
    cq_reserved: u32,
    cq_depth: u32,
    counters: EvdCounters,
}

debug_by_head!(Evd);

impl<T: Transport> Default for Evd<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            silent: AtomicU64::new(0),
            inner: BriefMutex::new(Inner {
                state: StateCell::new(),
                qlen: 0,
                flags: EvdFlags::empty(),
                queue: Queue::default(),
                waiting: None,
                poll_yield: PollYield::default(),
                quick_polls: QuickPolls::default(),
                parker: None,
                cno: None,
                watched: false,
                overflowed: false,
                request_watches: 0,
                unsignalled_feeds: 0,
                solicited_feeds: 0,
                cqless_feeds: 0,
                internal: false,
                cq_reserved: 0,
                cq_depth: 0,
                counters: EvdCounters::default(),
            }),
        }
    }
}

impl<T: Transport> Inner<T> {
    /// Begins another life with the state of a new EVD. The parker is kept, and there is no waiter.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`; the queue is then empty and has `cq`.
    fn start(
        &mut self,
        qlen: u32,
        flags: EvdFlags,
        cq_depth: u32,
        cno: Option<(&'static Cno<T>, Claim)>,
        cq: Option<Arc<T::Cq>>,
    ) -> Result<()> {
        // The state machine never refuses a reset.
        let _ = self.state.apply(Input::Reset);
        self.qlen = qlen;
        self.flags = flags;
        self.poll_yield = PollYield::default();
        self.quick_polls = QuickPolls::default();
        self.cno = cno;
        self.watched = false;
        self.overflowed = false;
        self.request_watches = 0;
        self.unsignalled_feeds = 0;
        self.solicited_feeds = 0;
        self.cqless_feeds = 0;
        self.internal = false;
        self.cq_reserved = 0;
        self.cq_depth = cq_depth;
        self.counters = EvdCounters::default();
        self.queue.start(qlen, cq)
    }
}

/// Claims a CNO for an EVD of `ia`. One of another IA is refused, because the claim would keep that IA from closing.
fn claim_cno<T: Transport>(ia: &'static Ia<T>, cno: &'static Cno<T>) -> Result<Claim> {
    let claim = cno.head.claim(Subtype::InvalidHandleCno)?;
    if std::ptr::eq(Ia::<T>::of(&cno.head), ia) {
        Ok(claim)
    } else {
        Err(Error::handle(Subtype::InvalidHandleCno))
    }
}

/// Checks the queue length that a consumer requests as argument 2.
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
    /// Creates an EVD that is enabled, waitable and empty (dat_evd_create).
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 2: no length; 4: no stream, or unknown ones); `DAT_INSUFFICIENT_RESOURCES`;
    /// `DAT_INVALID_HANDLE` (IA closed, CNO freed).
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
        let depth = qlen.max(MIN_CQ_DEPTH.min(ia.attributes()?.max_evd_qlen));
        let arena = &T::arenas().evd;
        let (index, evd) = arena
            .alloc()
            .ok_or(Error::resource(Subtype::ResourceMemory))?;
        let cq = if flags.intersects(EvdFlags::QUEUED) {
            let cq = T::create_cq(&adapter, depth, evd.head.next_token(index));
            Some(Arc::new(cq.inspect_err(|_| arena.recycle(index))?))
        } else {
            None
        };
        let word = if cq.is_some() { POLL_CQ } else { IDLE };
        let started = {
            let mut inner = evd.inner.lock();
            evd.silent.store(0, Ordering::Relaxed);
            if let Some((cno, _)) = &claim {
                cno.attach(evd);
            }
            inner.start(qlen, flags, depth, claim, cq)
        };
        // From here on an abrupt close of the IA may free the EVD.
        started
            .and_then(|()| ia.add_member(Kind::Evd, index, &evd.head, word))
            .inspect_err(|_| {
                let (cq, cno) = {
                    let mut inner = evd.inner.lock();
                    (inner.queue.stop(), inner.cno.take())
                };
                if let Some((cno, _)) = &cno {
                    cno.detach(evd);
                }
                drop(cno);
                drop(cq);
                arena.recycle(index);
            })?;
        let wakeup = {
            let mut inner = evd.inner.lock();
            evd.arm_cq(&mut inner)
        };
        wakeup.deliver();
        Ok(evd)
    }

    /// Creates an EVD of core's own, for `depth` completions that no consumer wants an event of.
    ///
    /// # Errors
    /// Those of [`Evd::create`].
    pub(crate) fn create_internal(ia: &'static Ia<T>, depth: u32) -> Result<&'static Self> {
        // A longer completion queue is made by `hold_completions`.
        let qlen = depth.clamp(1, ia.attributes()?.max_evd_qlen.max(1));
        let evd = Self::create(ia, qlen, None, EvdFlags::DTO)?;
        evd.inner.lock().internal = true;
        Ok(evd)
    }

    /// Returns attributes and state (dat_evd_query).
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
            state: inner.state.get().bits(),
            cno: inner.cno.as_ref().map_or(0, |(cno, _)| raw(*cno)),
            flags: inner.flags,
        })
    }

    /// Sets the CNO, or removes it (dat_evd_modify_cno).
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` (`CNO` if that is freed).
    pub fn modify_cno(&'static self, cno: Option<&'static Cno<T>>) -> Result<()> {
        let new = match cno {
            Some(cno) => Some((cno, claim_cno(Ia::of(&self.head), cno)?)),
            None => None,
        };
        let (old, notified, wakeup) = {
            let mut inner = self.inner.lock();
            if !self.head.alive() {
                return Err(dead());
            }
            let old = std::mem::replace(&mut inner.cno, new);
            let notified = old.as_ref().is_some_and(|(cno, _)| cno.detach(self));
            match cno {
                Some(cno) => cno.attach(self),
                None => self.unwatch(&mut inner),
            }
            (old, notified, self.arm_cq(&mut inner))
        };
        drop(old);
        let notifies = matches!(wakeup, Wakeup::Cno(..));
        wakeup.deliver();
        // The notification moves with the EVD.
        if notified
            && !notifies
            && let Some(cno) = cno
        {
            Wakeup::Cno(cno, self).deliver();
        }
        Ok(())
    }

    /// Returns the CNO, unless the EVD is freed.
    pub(crate) fn cno(&'static self) -> Option<&'static Cno<T>> {
        let inner = self.inner.lock();
        let cno = inner.cno.as_ref().map(|(cno, _)| *cno);
        cno.filter(|_| self.head.alive())
    }

    /// Lets events trigger the CNO (dat_evd_enable). No effect on waiters.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn enable(&'static self) -> Result<()> {
        self.apply(Input::Enable)
    }

    /// Stops events from triggering the CNO (dat_evd_disable). No effect on waiters.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn disable(&'static self) -> Result<()> {
        self.apply(Input::Disable)
    }

    /// Makes dat_evd_wait fail, also for a thread that is in it (dat_evd_set_unwaitable).
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn set_unwaitable(&'static self) -> Result<()> {
        self.apply(Input::SetUnwaitable)
    }

    /// Allows dat_evd_wait again (dat_evd_clear_unwaitable).
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn clear_unwaitable(&'static self) -> Result<()> {
        self.apply(Input::ClearUnwaitable)
    }

    /// Returns the counters (dat_ib_query_counters) and resets those that `reset` names.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn counters(&'static self, reset: Option<Which>) -> Result<Counted> {
        let mut inner = self.inner.lock();
        if !self.head.alive() {
            return Err(dead());
        }
        let mut counters = inner.counters;
        counters.polls = inner.queue.polls;
        let values = counters.values().to_vec();
        if let Some(which) = reset {
            counters.reset(which);
            inner.queue.polls = counters.polls;
            inner.counters = counters;
        }
        Ok(Counted {
            names: EvdCounter::ALL.iter().map(|c| c.name()).collect(),
            values,
        })
    }

    fn apply(&'static self, input: Input) -> Result<()> {
        let wakeup = {
            let mut inner = self.inner.lock();
            if !self.head.alive() {
                return Err(dead());
            }
            let effect = inner.state.apply(input)?;
            if inner.state.get().waitable {
                self.silent.fetch_and(!UNWAITABLE, Ordering::Release);
            } else {
                self.silent.fetch_or(UNWAITABLE, Ordering::Release);
            }
            match effect {
                Effect::None => Wakeup::None,
                Effect::ArmCno => self.arm_cq(&mut inner),
                Effect::RefuseWaiter => {
                    if let Some(waiting) = &mut inner.waiting {
                        waiting.refused = true;
                    }
                    inner.parker.clone().map_or(Wakeup::None, Wakeup::Waiter)
                }
            }
        };
        wakeup.deliver();
        Ok(())
    }

    /// Changes the queue's length and keeps every event (dat_evd_resize).
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 2); `DAT_INVALID_STATE` if more events are queued, or a thread waits for more
    /// (`EVD_WAITER`); `DAT_INSUFFICIENT_RESOURCES`; `DAT_INVALID_HANDLE`.
    pub fn resize(&'static self, qlen: u32) -> Result<()> {
        if !self.head.alive() {
            return Err(dead());
        }
        check_qlen(Ia::<T>::of(&self.head), qlen)?;
        let (resized, wakeup) = {
            let mut inner = self.inner.lock();
            if !self.head.alive() {
                return Err(dead());
            }
            // A thread that waits for more events than the queue can hold would wait for ever.
            let waiter = inner.waiting.as_ref();
            if waiter.is_some_and(|waiter| waiter.threshold > qlen as usize) {
                return Err(Error::state(Subtype::InvalidStateEvdWaiter));
            }
            let wakeup = self.take_completions(&mut inner);
            if inner.queue.len() > qlen as usize {
                drop(inner);
                wakeup.deliver();
                return Err(Error::of(ErrorKind::InvalidState));
            }
            let resized = inner.queue.reserve(qlen).and_then(|()| {
                inner.grow_cq(qlen)?;
                inner.qlen = qlen;
                Ok(())
            });
            (resized, wakeup)
        };
        wakeup.deliver();
        resized
    }

    /// Makes the completion queue hold at least `depth` completions. For an EVD without feeds: these reserve their own room.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`.
    pub(crate) fn hold_completions(&'static self, depth: u32) -> Result<()> {
        self.inner.lock().grow_cq(depth)
    }

    /// Frees the EVD (dat_evd_free): its events are lost, and a waiter returns `DAT_ABORT`.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`; `DAT_INVALID_STATE` (`EVD_IN_USE`) while event streams feed it.
    pub fn free(&'static self) -> Result<()> {
        self.head
            .retire(Subtype::NoSubtype, Subtype::InvalidStateEvdInUse)?;
        self.release_parts();
        Ok(())
    }

    /// Frees the EVD in an abrupt close: the IA's own streams have ended, and those of other IAs find a dead EVD.
    pub(crate) fn destroy(&'static self) -> Result<()> {
        {
            let inner = self.inner.lock();
            self.head.retire_claimed(
                inner.cqless_feeds,
                Subtype::NoSubtype,
                Subtype::InvalidStateEvdInUse,
            )?;
        }
        self.release_parts();
        Ok(())
    }

    /// Removes the parts of a retired EVD and recycles it.
    fn release_parts(&'static self) {
        let (cq, cno, parker) = {
            let mut inner = self.inner.lock();
            self.unwatch(&mut inner);
            let parker = inner.parker.take();
            let waiter = inner.waiting.take().and(parker);
            let _ = inner.state.apply(Input::Reset);
            // The events are lost, but the slots of an SRQ's receives must be free again.
            inner.queue.drain_ready();
            (inner.queue.stop(), inner.cno.take(), waiter)
        };
        // The claim goes here.
        let abandoned = cno.and_then(|(cno, _claim)| Some((cno, cno.detach_freed(self)?)));
        drop(cq);
        let arena = &T::arenas().evd;
        let index = arena.index_of(self);
        Ia::<T>::of(&self.head).remove_member(Kind::Evd, index);
        arena.recycle(index);
        // Last: a thread that learns of the free may then free the CNO and close the IA.
        if let Some(parker) = parker {
            T::unpark(&parker);
        }
        if let Some((cno, abandoned)) = abandoned {
            cno.dismiss(abandoned);
        }
    }

    /// Counts a request that is about to be posted, whose completion will arrive here and give no event. Until it is
    /// taken, dat_evd_wait has no fast path, because the number of completions is not the number of events.
    pub(crate) fn expect_silent(&self) {
        self.silent.fetch_add(1, Ordering::Release);
    }

    /// Undoes [`Evd::expect_silent`] for a request that the transport refused.
    pub(crate) fn undo_expect_silent(&self) {
        self.silent.fetch_sub(1, Ordering::Release);
    }

    /// Excludes the fast paths of dat_evd_wait: completions of an endpoint that is freed or reset may arrive, and give no
    /// event.
    pub(crate) fn expect_orphans(&self) {
        self.silent.fetch_or(ORPHANS, Ordering::Release);
    }

    /// Returns the completion queue; `None` for an EVD without DTO and RMR bind streams, or a freed one.
    pub(crate) fn cq(&self) -> Option<Arc<T::Cq>> {
        self.inner.lock().queue.cq.clone()
    }
}

impl<T: Transport> Inner<T> {
    /// Makes the completion queue, if there is one, at least `depth` deep.
    fn grow_cq(&mut self, depth: u32) -> Result<()> {
        if let Some(cq) = &self.queue.cq
            && depth > self.cq_depth
        {
            T::resize_cq(cq, depth)?;
            self.cq_depth = depth;
        }
        Ok(())
    }
}
