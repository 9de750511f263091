//! Consumer notification objects (dat_cno_create, dat_cno_wait ...): one place to wait for many EVDs.

use std::os::fd::RawFd;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::{Error, Kind as ErrorKind, Result};
use crate::event::RawHandle;
use crate::head::{Head, debug_by_head};
use crate::ia::Ia;
use crate::transport::Transport;

/// An OS wait proxy agent: called once, with the handle of the EVD that has an event (0: the IA closes).
pub type Agent = Box<dyn Fn(RawHandle) + Send + Sync>;

/// What else is told when a CNO is triggered (`DAT_PROXY_TYPE`).
#[derive(Default)]
pub enum CnoProxy {
    /// Nobody but the waiter.
    #[default]
    None,
    /// A function of the consumer.
    Agent(Agent),
    /// A file descriptor, readable while an EVD is pending.
    Fd,
}

/// `DAT_PROXY_TYPE` as dat_cno_query tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyInfo {
    /// `DAT_PROXY_TYPE_NONE`.
    None,
    /// `DAT_PROXY_TYPE_AGENT`.
    Agent,
    /// `DAT_PROXY_TYPE_FD`.
    Fd(RawFd),
}

/// What dat_cno_query tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CnoInfo {
    /// The IA's handle.
    pub ia: RawHandle,
    /// Its proxy.
    pub proxy: ProxyInfo,
}

/// A consumer notification object. All methods may be called from any thread.
#[repr(C)]
pub struct Cno<T: Transport> {
    /// Table, liveness, generation, ledger.
    pub head: Head,
    parker: Mutex<T::Parker>,
}

debug_by_head!(Cno);

impl<T: Transport> Default for Cno<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            parker: Mutex::default(),
        }
    }
}

impl<T: Transport> Cno<T> {
    /// dat_cno_create, dat_cno_fd_create.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`, `DAT_INSUFFICIENT_RESOURCES`.
    pub fn create(ia: &'static Ia<T>, proxy: CnoProxy) -> Result<&'static Self> {
        let _ = (ia, proxy);
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// The descriptor of a [`CnoProxy::Fd`].
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`; `DAT_INVALID_STATE` if it has none.
    pub fn fd(&'static self) -> Result<RawFd> {
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_cno_modify_agent: `None` takes the agent away.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`, `DAT_INVALID_PARAMETER` (an fd CNO).
    pub fn modify_agent(&'static self, agent: Option<Agent>) -> Result<()> {
        let _ = agent;
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_cno_wait. Returns the handle of one EVD that was triggered; 0 when the IA is closed or all of
    /// its EVDs are freed. `timeout` `None` is `DAT_TIMEOUT_INFINITE`.
    ///
    /// # Errors
    /// `DAT_QUEUE_EMPTY` without the class bit (time over), `DAT_INTERRUPTED_CALL`, `DAT_INVALID_HANDLE`.
    pub fn wait(&'static self, timeout: Option<Duration>) -> Result<RawHandle> {
        let _ = timeout;
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_cno_trigger (2.0): the EVD that made the descriptor readable, as [`Cno::wait`] without waiting.
    ///
    /// # Errors
    /// `DAT_QUEUE_EMPTY` without the class bit, `DAT_INVALID_HANDLE`.
    pub fn trigger(&'static self) -> Result<RawHandle> {
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_cno_query.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn info(&'static self) -> Result<CnoInfo> {
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// dat_cno_free.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`; `DAT_INVALID_STATE` (`CNO_IN_USE`) while an EVD uses it or a thread waits.
    pub fn free(&'static self) -> Result<()> {
        Err(Error::of(ErrorKind::NotImplemented))
    }

    /// The abrupt close's free: waiters and the agent are told with a null handle.
    pub(crate) fn destroy(&'static self) -> Result<()> {
        Err(Error::of(ErrorKind::NotImplemented))
    }
}
