//! Consumer notification objects (dat_cno_create, dat_cno_wait ...): one place to wait for many EVDs.
//!
//! An EVD that has something is *pending* on its CNO until a waiter (or dat_cno_trigger) takes it. Completions
//! come to light only when the transport is asked to announce them: a CNO *listens*, and has its EVDs ask,
//! while a thread waits on it or a proxy is set; so programs that only poll pay nothing.

use std::collections::VecDeque;
use std::fmt;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::evd::Evd;
use crate::event::RawHandle;
use crate::head::{Head, debug_by_head, raw};
use crate::ia::{Ia, Kind};
use crate::transport::{Parked, Transport};

/// An OS wait proxy agent. It is called once, with the handle of the EVD that has an event (0: the IA
/// closes), by a thread that holds no lock of this library; then it is forgotten (dat_cno_create).
pub struct Agent {
    /// What to call.
    pub call: Box<dyn Fn(RawHandle) + Send + Sync>,
    /// `instance_data`, for dat_cno_query.
    pub instance_data: usize,
    /// `proxy_agent_func`, for dat_cno_query.
    pub function: usize,
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agent({:#x}, {:#x})", self.instance_data, self.function)
    }
}

/// Who else is told when a CNO is triggered (`DAT_PROXY_TYPE`).
#[derive(Debug, Default)]
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
    Agent {
        /// `instance_data`.
        instance_data: usize,
        /// `proxy_agent_func`.
        function: usize,
    },
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
    /// Threads in dat_cno_wait (not in `DAT_CNO_PARAM`).
    pub waiters: usize,
}

/// A consumer notification object. All methods may be called from any thread.
#[repr(C)]
pub struct Cno<T: Transport> {
    /// Table, liveness, generation, ledger.
    pub head: Head,
    /// See [`Cno::listens`].
    listens: AtomicBool,
    inner: Mutex<Inner<T>>,
}

struct Inner<T: Transport> {
    evds: Vec<&'static Evd<T>>,
    pending: VecDeque<RawHandle>,
    proxy: Proxy,
    waiters: Vec<Arc<T::Parker>>,
    /// Waiters that came before it changed return a null handle.
    dismissed: u64,
    /// Kept for the next waiter.
    spare: Option<Arc<T::Parker>>,
}

enum Proxy {
    None,
    Agent(Agent),
    Fd(Bell),
}

/// A descriptor that is readable while it rings.
struct Bell {
    consumer: UnixStream,
    ours: UnixStream,
    rings: bool,
}

impl Bell {
    fn new() -> Result<Self> {
        let pair = || {
            let (consumer, ours) = UnixStream::pair()?;
            consumer.set_nonblocking(true)?;
            ours.set_nonblocking(true)?;
            Ok::<_, std::io::Error>((consumer, ours))
        };
        let (consumer, ours) = pair().map_err(|error| {
            tracing::error!(%error, "no descriptors for a CNO; raise the limit of open files");
            Error::resource(Subtype::ResourceDevice)
        })?;
        Ok(Self {
            consumer,
            ours,
            rings: false,
        })
    }

    /// One byte is in the pair while it rings, so neither call blocks or fails.
    fn ring(&mut self, on: bool) {
        if self.rings != on {
            // The hot calls, too, come here.
            let done = dat_cancel::defer(|| {
                if on {
                    self.ours.write(&[1])
                } else {
                    self.consumer.read(&mut [0])
                }
            });
            if let Err(error) = done {
                // The consumer read the byte itself.
                tracing::debug!(%error, on, "the descriptor of a CNO was touched");
            }
            self.rings = on;
        }
    }
}

debug_by_head!(Cno);

impl<T: Transport> Default for Cno<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            listens: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                evds: Vec::new(),
                pending: VecDeque::new(),
                proxy: Proxy::None,
                waiters: Vec::new(),
                dismissed: 0,
                spare: None,
            }),
        }
    }
}

const DEAD: Error = Error::handle(Subtype::InvalidHandleCno);
const EMPTY: Error = Error::of(ErrorKind::QueueEmpty).without_class();

impl<T: Transport> Cno<T> {
    /// dat_cno_create, dat_cno_fd_create.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` (IA closed), `DAT_INSUFFICIENT_RESOURCES`.
    pub fn create(ia: &'static Ia<T>, proxy: CnoProxy) -> Result<&'static Self> {
        let proxy = match proxy {
            CnoProxy::None => Proxy::None,
            CnoProxy::Agent(agent) => Proxy::Agent(agent),
            CnoProxy::Fd => Proxy::Fd(Bell::new()?),
        };
        let arena = &T::arenas().cno;
        let (index, cno) = arena
            .alloc()
            .ok_or(Error::resource(Subtype::ResourceMemory))?;
        {
            let mut inner = cno.inner.lock();
            inner.proxy = proxy;
            cno.note(&inner);
        }
        ia.adopt(Kind::Cno, index, &cno.head, 0).inspect_err(|_| {
            cno.inner.lock().proxy = Proxy::None;
            arena.recycle(index);
        })?;
        Ok(cno)
    }

    /// The descriptor of a [`CnoProxy::Fd`]. It is the CNO's: the consumer polls it and no more.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`; `DAT_INVALID_PARAMETER` (argument 1) if it has none.
    pub fn fd(&'static self) -> Result<RawFd> {
        match self.info()?.proxy {
            ProxyInfo::Fd(fd) => Ok(fd),
            _ => Err(Error::arg(1)),
        }
    }

    /// dat_cno_modify_agent: `None` takes the agent away.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`; `DAT_INVALID_PARAMETER` (argument 2) for a CNO with a descriptor.
    pub fn modify_agent(&'static self, agent: Option<Agent>) -> Result<()> {
        let (old, evds) = {
            let mut inner = self.inner.lock();
            if !self.head.alive() {
                return Err(DEAD);
            }
            if matches!(inner.proxy, Proxy::Fd(_)) {
                return Err(Error::arg(2));
            }
            let new = agent.map_or(Proxy::None, Proxy::Agent);
            let old = std::mem::replace(&mut inner.proxy, new);
            self.note(&inner);
            (old, inner.evds.clone())
        };
        drop(old);
        for evd in evds {
            evd.listen_for_cno();
        }
        Ok(())
    }

    /// dat_cno_wait: the handle of one EVD that was triggered since it was last handed out; 0 when the IA is
    /// closed or the last of its EVDs freed. `timeout` `None` is `DAT_TIMEOUT_INFINITE`.
    ///
    /// # Errors
    /// `DAT_QUEUE_EMPTY` without the class bit (time over), `DAT_INTERRUPTED_CALL` (also when the thread is cancelled),
    /// `DAT_INVALID_HANDLE`.
    pub fn wait(&'static self, timeout: Option<Duration>) -> Result<RawHandle> {
        let adapter;
        let parker;
        let (life, dismissed, evds);
        {
            let mut inner = self.inner.lock();
            if !self.head.alive() {
                return Err(DEAD);
            }
            if let Some(evd) = inner.take() {
                return Ok(evd);
            }
            adapter = Ia::<T>::of(&self.head).adapter()?;
            parker = inner.spare.take().unwrap_or_default();
            life = self.head.generation.load(Ordering::Relaxed);
            dismissed = inner.dismissed;
            evds = inner.evds.clone();
            inner.waiters.push(Arc::clone(&parker));
            self.note(&inner);
        }
        for evd in evds {
            evd.listen_for_cno();
        }
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut parked = Parked::Woken;
        loop {
            {
                let mut inner = self.inner.lock();
                if self.head.generation.load(Ordering::Relaxed) != life
                    || inner.dismissed != dismissed
                {
                    // The CNO may be another one by now; `dismiss` has forgotten this waiter.
                    return Ok(0);
                }
                let over = deadline.is_some_and(|d| Instant::now() >= d);
                let interrupted = Some(Err(Error::of(ErrorKind::InterruptedCall)));
                let outcome = if parked == Parked::Cancelled {
                    // Nothing is taken: the caller does not come to see it.
                    interrupted
                } else {
                    match inner.take() {
                        Some(evd) => Some(Ok(evd)),
                        None if parked == Parked::Interrupted => interrupted,
                        None if over => Some(Err(EMPTY)),
                        None => None,
                    }
                };
                if let Some(outcome) = outcome {
                    inner.waiters.retain(|other| !Arc::ptr_eq(other, &parker));
                    inner.spare = Some(parker);
                    self.note(&inner);
                    return outcome;
                }
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let mut ready = || {
                let inner = self.inner.lock();
                !inner.pending.is_empty()
                    || inner.dismissed != dismissed
                    || self.head.generation.load(Ordering::Relaxed) != life
            };
            parked = T::park(&adapter, None, &parker, left, &mut ready);
        }
    }

    /// dat_cno_trigger (2.0): the EVD that made the descriptor readable, as [`Cno::wait`] without waiting.
    ///
    /// # Errors
    /// `DAT_QUEUE_EMPTY` without the class bit, `DAT_INVALID_HANDLE`.
    pub fn trigger(&'static self) -> Result<RawHandle> {
        self.wait(Some(Duration::ZERO))
    }

    /// dat_cno_query.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`.
    pub fn info(&'static self) -> Result<CnoInfo> {
        let inner = self.inner.lock();
        if !self.head.alive() {
            return Err(DEAD);
        }
        let proxy = match &inner.proxy {
            Proxy::None => ProxyInfo::None,
            Proxy::Agent(agent) => ProxyInfo::Agent {
                instance_data: agent.instance_data,
                function: agent.function,
            },
            Proxy::Fd(bell) => ProxyInfo::Fd(bell.consumer.as_raw_fd()),
        };
        Ok(CnoInfo {
            ia: raw(Ia::<T>::of(&self.head)),
            proxy,
            waiters: inner.waiters.len(),
        })
    }

    /// dat_cno_free.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`; `DAT_INVALID_STATE` (`CNO_IN_USE`) while an EVD uses it or a thread waits.
    pub fn free(&'static self) -> Result<()> {
        {
            let inner = self.inner.lock();
            if self.head.alive() && !inner.waiters.is_empty() {
                return Err(Error::state(Subtype::InvalidStateCnoInUse));
            }
            self.head
                .retire(Subtype::InvalidHandleCno, Subtype::InvalidStateCnoInUse)?;
        }
        self.bury();
        Ok(())
    }

    /// The abrupt close's free: waiters and the agent are told with a null handle.
    pub(crate) fn destroy(&'static self) -> Result<()> {
        self.head
            .retire(Subtype::InvalidHandleCno, Subtype::InvalidStateCnoInUse)?;
        self.bury();
        Ok(())
    }

    /// Takes the parts out of a retired CNO.
    fn bury(&'static self) {
        let (proxy, waiters) = {
            let mut inner = self.inner.lock();
            inner.pending.clear();
            inner.spare = None;
            let proxy = std::mem::replace(&mut inner.proxy, Proxy::None);
            let waiters = inner.dismiss();
            self.note(&inner);
            (proxy, waiters)
        };
        for parker in waiters {
            T::unpark(&parker);
        }
        let ia = Ia::<T>::of(&self.head);
        if let Proxy::Agent(agent) = proxy
            && !ia.head.alive()
        {
            (agent.call)(0);
        }
        let arena = &T::arenas().cno;
        let index = arena.index_of(self);
        ia.leave(Kind::Cno, index);
        arena.recycle(index);
    }

    /// An EVD has something: it becomes pending, and everybody is told. Called without locks.
    pub(crate) fn notify(&'static self, evd: RawHandle) {
        let (waiters, agent) = {
            let mut inner = self.inner.lock();
            // The EVD was freed or given another CNO meanwhile: nobody waits for it here.
            if !self.head.alive() || !inner.evds.iter().any(|e| raw(*e) == evd) {
                return;
            }
            if !inner.pending.contains(&evd) {
                inner.pending.push_back(evd);
            }
            let mut agent = None;
            match &mut inner.proxy {
                Proxy::None => {}
                Proxy::Fd(bell) => bell.ring(true),
                proxy @ Proxy::Agent(_) => agent = Some(std::mem::replace(proxy, Proxy::None)),
            }
            self.note(&inner);
            (inner.waiters.clone(), agent)
        };
        for parker in &waiters {
            T::unpark(parker);
        }
        if let Some(Proxy::Agent(agent)) = agent {
            (agent.call)(evd);
        }
    }

    /// Whether anybody wants to hear of completions at once: a waiter, an agent, or whoever polls the
    /// descriptor.
    pub(crate) fn listens(&self) -> bool {
        self.listens.load(Ordering::Acquire)
    }

    /// The EVD has this CNO from now on. Called under the EVD's lock.
    pub(crate) fn attach(&self, evd: &'static Evd<T>) {
        self.inner.lock().evds.push(evd);
    }

    /// The EVD has it no more. When it was the last one and was freed, waiters are let go. Called without
    /// the CNO's lock.
    pub(crate) fn detach(&self, evd: &'static Evd<T>, freed: bool) {
        let waiters = {
            let mut inner = self.inner.lock();
            inner.evds.retain(|e| !std::ptr::eq(*e, evd));
            inner.pending.retain(|e| *e != raw(evd));
            inner.settle_bell();
            if freed && inner.evds.is_empty() {
                let waiters = inner.dismiss();
                self.note(&inner);
                waiters
            } else {
                Vec::new()
            }
        };
        for parker in waiters {
            T::unpark(&parker);
        }
    }

    /// Keeps `listens` true to the rest.
    fn note(&self, inner: &Inner<T>) {
        let listens = !inner.waiters.is_empty() || !matches!(inner.proxy, Proxy::None);
        self.listens.store(listens, Ordering::Release);
    }
}

impl<T: Transport> Inner<T> {
    /// The first pending EVD.
    fn take(&mut self) -> Option<RawHandle> {
        let evd = self.pending.pop_front();
        self.settle_bell();
        evd
    }

    fn settle_bell(&mut self) {
        let pending = !self.pending.is_empty();
        if let Proxy::Fd(bell) = &mut self.proxy {
            bell.ring(pending);
        }
    }

    /// Forgets the waiters, who will return a null handle when they are woken.
    fn dismiss(&mut self) -> Vec<Arc<T::Parker>> {
        self.dismissed += 1;
        std::mem::take(&mut self.waiters)
    }
}
