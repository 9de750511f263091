//! Event dispatchers (dat_evd_create and the other `dat_evd_*` pages): queues of events, with a completion
//! queue of the transport below where DTO or RMR bind completions feed them.

pub mod state;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::cno::Cno;
use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::event::{Dto, Event, RawHandle};
use crate::flags::{CompletionFlags, EvdFlags};
use crate::head::{Head, debug_by_head};
use crate::ia::Ia;
use crate::ledger::Claim;
use crate::transport::{Token, Transport};

/// Takes one event where the consumer wants it. Called at most once, and only on success.
pub trait EventSink {
    /// A completion.
    fn dto(&mut self, dto: &Dto);
    /// Any other event. [`Event::Dto`] comes here too when it was queued before.
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
    inner: Mutex<Option<Arc<T::Cq>>>,
}

debug_by_head!(Evd);

impl<T: Transport> Default for Evd<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            inner: Mutex::new(None),
        }
    }
}

/// An event stream that feeds an EVD. While it exists the EVD is not freed; dropping it ends the stream.
#[derive(Debug)]
pub(crate) struct Feed<T: Transport> {
    evd: &'static Evd<T>,
    completion: CompletionFlags,
    _claim: Claim,
}

impl<T: Transport> Feed<T> {
    /// The EVD.
    pub(crate) fn evd(&self) -> &'static Evd<T> {
        self.evd
    }
}

impl<T: Transport> Drop for Feed<T> {
    fn drop(&mut self) {
        let _ = self.completion;
    }
}

impl<T: Transport> Evd<T> {
    /// dat_evd_create.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`, `DAT_INVALID_PARAMETER`, `DAT_INSUFFICIENT_RESOURCES`.
    pub fn create(
        ia: &'static Ia<T>,
        qlen: u32,
        cno: Option<&'static Cno<T>>,
        flags: EvdFlags,
    ) -> Result<&'static Self> {
        let _ = (ia, qlen, cno, flags);
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_evd_query.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn info(&'static self) -> Result<EvdInfo> {
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_evd_modify_cno.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn modify_cno(&'static self, cno: Option<&'static Cno<T>>) -> Result<()> {
        let _ = cno;
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_evd_enable.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn enable(&'static self) -> Result<()> {
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_evd_disable.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn disable(&'static self) -> Result<()> {
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_evd_set_unwaitable.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn set_unwaitable(&'static self) -> Result<()> {
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_evd_clear_unwaitable.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn clear_unwaitable(&'static self) -> Result<()> {
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_evd_wait. Returns how many events are left. `timeout` `None` is `DAT_TIMEOUT_INFINITE`.
    ///
    /// # Errors
    /// [`WaitError`]'s code.
    pub fn wait(
        &'static self,
        timeout: Option<Duration>,
        threshold: u32,
        sink: &mut impl EventSink,
    ) -> Result<u32, WaitError> {
        let _ = (timeout, threshold, sink);
        Err(WaitError {
            error: Error::of(ErrorKind::NotImplemented),
            nmore: 0,
        })
    }

    /// dat_evd_dequeue.
    ///
    /// # Errors
    /// `DAT_QUEUE_EMPTY`, `DAT_INVALID_STATE`, `DAT_INVALID_HANDLE`.
    #[inline]
    pub fn dequeue(&'static self, sink: &mut impl EventSink) -> Result<()> {
        let _ = sink;
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_evd_resize.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE`, `DAT_INVALID_PARAMETER`, `DAT_INSUFFICIENT_RESOURCES`.
    pub fn resize(&'static self, qlen: u32) -> Result<()> {
        let _ = qlen;
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_evd_post_se.
    ///
    /// # Errors
    /// `DAT_QUEUE_FULL`, `DAT_INVALID_PARAMETER`.
    pub fn post_se(&'static self, pointer: usize) -> Result<()> {
        let _ = pointer;
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_evd_free.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`, `DAT_INVALID_STATE`.
    pub fn free(&'static self) -> Result<()> {
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// The abrupt close's free: waiters return `DAT_ABORT`.
    pub(crate) fn destroy(&'static self) -> Result<()> {
        Err(Error::of(ErrorKind::NotImplemented))
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
        let _ = stream;
        Ok(Feed {
            evd: self,
            completion,
            _claim: self.head.claim(subtype)?,
        })
    }

    /// Queues an event, after the completions that are there already, and tells whoever is to be told.
    /// No room for an event that is no completion: `DAT_ASYNC_ERROR_EVD_OVERFLOW` instead. The caller
    /// holds no lock that an agent's calls could need; see [`crate::order`].
    pub(crate) fn post(&'static self, event: Event) {
        tracing::debug!(?event, "posted");
    }

    /// Takes all completions out of the completion queue into the event queue, through
    /// [`crate::ep::dto::complete`].
    pub(crate) fn drain(&'static self) {}

    /// The completion queue; `None` for an EVD without DTO and RMR bind streams, or a freed one.
    pub(crate) fn cq(&self) -> Option<Arc<T::Cq>> {
        self.inner.lock().clone()
    }
}

/// Why dat_evd_wait failed, and what its `nmore` says then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{error}; {nmore} events are queued")]
pub struct WaitError {
    /// The return code.
    pub error: Error,
    /// Events on the queue; meaningful with `DAT_TIMEOUT_EXPIRED` and `DAT_INTERRUPTED_CALL`.
    pub nmore: u32,
}

/// For [`crate::upcall::Upcalls::cq_ready`]: completions came to a watched queue.
pub(crate) fn cq_ready<T: Transport>(evd: Token) {
    tracing::debug!(?evd, "notified");
}

/// For [`crate::transport::Fault::CqOverflow`]...: completions of this EVD were lost.
pub(crate) fn cq_overflow<T: Transport>(evd: Token) {
    tracing::debug!(?evd, "overflow");
}
