//! Consumer notification objects (dat_cno_create, dat_cno_wait ...): a thread waits for many EVDs at one object.
//!
//! An EVD that has an event is *pending* on its CNO until a waiter (or dat_cno_trigger) takes it. A transport reports completions
//! only on request. A CNO needs reports, and its EVDs request them, while a thread waits on it or a proxy is set; programs that
//! only poll cause none.

mod agent;

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat_arena::Mutex;
use dat_os::eventfd::EventFd;

use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::evd::Evd;
use crate::event::RawHandle;
use crate::head::{Head, debug_by_head, raw};
use crate::ia::{Ia, Kind};
use crate::transport::{Parked, Transport};

pub use agent::Agent;

/// What is notified, besides waiters, when a CNO is triggered (`DAT_PROXY_TYPE`).
#[derive(Debug, Default)]
pub enum CnoProxy {
    /// No proxy.
    #[default]
    None,
    /// A function of the consumer.
    Agent(Agent),
    /// A file descriptor, readable while an EVD is pending.
    Fd,
}

/// The proxy (`DAT_PROXY_TYPE`) that dat_cno_query returns.
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

/// The attributes that dat_cno_query returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CnoInfo {
    /// The IA's handle.
    pub ia: RawHandle,
    /// The CNO's proxy.
    pub proxy: ProxyInfo,
    /// Number of threads in dat_cno_wait; not part of `DAT_CNO_PARAM`.
    pub waiters: usize,
}

/// A consumer notification object. All methods may be called from any thread.
#[repr(C)]
pub struct Cno<T: Transport> {
    /// Function table, liveness, generation and use count.
    pub head: Head,
    /// The result of [`Cno::listens`], kept up to date by [`Cno::update_listens`].
    listens: AtomicBool,
    inner: Mutex<Inner<T>>,
}

struct Inner<T: Transport> {
    evds: Vec<&'static Evd<T>>,
    pending: VecDeque<RawHandle>,
    proxy: Proxy,
    /// EVD for which the timer thread will call the agent.
    agent_due: Option<RawHandle>,
    /// An agent was set at some time.
    had_agent: bool,
    /// EVDs that got events since the agent was called.
    since_agent: Vec<RawHandle>,
    waiters: Vec<Arc<T::Parker>>,
    /// Count of dismissals: a waiter that entered before the last one returns a null handle.
    dismissed: u64,
    /// A parker that the next waiter reuses.
    spare: Option<Arc<T::Parker>>,
}

enum Proxy {
    None,
    Agent(Agent),
    Fd(Descriptor),
}

/// The descriptor of a [`CnoProxy::Fd`].
struct Descriptor {
    event: EventFd,
    readable: bool,
}

impl Descriptor {
    fn new() -> Result<Self> {
        let event = EventFd::new().map_err(|error| {
            tracing::error!(%error, "no descriptor for a CNO; raise the limit of open files");
            Error::resource(Subtype::ResourceDevice)
        })?;
        Ok(Self {
            event,
            readable: false,
        })
    }

    fn set_readable(&mut self, readable: bool) {
        if self.readable != readable {
            if readable {
                self.event.signal();
            } else {
                self.event.clear();
            }
            self.readable = readable;
        }
    }
}

/// A CNO whose last EVD is being freed.
#[derive(Clone, Copy)]
#[must_use = "threads wait for it"]
pub(crate) struct Abandoned {
    generation: u32,
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
                agent_due: None,
                had_agent: false,
                since_agent: Vec::new(),
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
    /// Creates a CNO (dat_cno_create, dat_cno_fd_create).
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` (IA closed), `DAT_INSUFFICIENT_RESOURCES`.
    pub fn create(ia: &'static Ia<T>, proxy: CnoProxy) -> Result<&'static Self> {
        let proxy = match proxy {
            CnoProxy::None => Proxy::None,
            CnoProxy::Agent(agent) => Proxy::Agent(agent),
            CnoProxy::Fd => Proxy::Fd(Descriptor::new()?),
        };
        let arena = &T::arenas().cno;
        let (index, cno) = arena
            .alloc()
            .ok_or(Error::resource(Subtype::ResourceMemory))?;
        {
            let mut inner = cno.inner.lock();
            inner.had_agent = matches!(proxy, Proxy::Agent(_));
            inner.proxy = proxy;
            cno.update_listens(&inner);
        }
        ia.add_member(Kind::Cno, index, &cno.head, 0)
            .inspect_err(|_| {
                cno.inner.lock().proxy = Proxy::None;
                arena.recycle(index);
            })?;
        Ok(cno)
    }

    /// Returns the descriptor of a [`CnoProxy::Fd`]. The CNO owns it; the consumer may only poll it.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`; `DAT_INVALID_PARAMETER` (argument 1) if the CNO has none.
    pub fn fd(&'static self) -> Result<RawFd> {
        match self.info()?.proxy {
            ProxyInfo::Fd(fd) => Ok(fd),
            _ => Err(Error::arg(1)),
        }
    }

    /// Replaces the agent, or removes it if `agent` is `None` (dat_cno_modify_agent). A new one is called at once if an EVD got an event since
    /// the last one was called, and still has one.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE`; `DAT_INVALID_PARAMETER` (argument 2) for a CNO with a descriptor.
    pub fn modify_agent(&'static self, agent: Option<Agent>) -> Result<()> {
        let (old, evds, since) = {
            let mut inner = self.inner.lock();
            if !self.head.alive() {
                return Err(DEAD);
            }
            if matches!(inner.proxy, Proxy::Fd(_)) {
                return Err(Error::arg(2));
            }
            let since = match agent {
                Some(_) => std::mem::take(&mut inner.since_agent),
                None => Vec::new(),
            };
            inner.had_agent |= agent.is_some();
            let new = agent.map_or(Proxy::None, Proxy::Agent);
            let old = std::mem::replace(&mut inner.proxy, new);
            self.update_listens(&inner);
            (old, inner.evds.clone(), since)
        };
        drop(old);
        for evd in evds {
            evd.arm_for_cno(since.contains(&raw(evd)));
        }
        Ok(())
    }

    /// Waits for a pending EVD and returns its handle (dat_cno_wait). Returns 0 when the IA is closed or the last EVD of the CNO is
    /// freed. A `timeout` of `None` is `DAT_TIMEOUT_INFINITE`.
    ///
    /// # Errors
    /// `DAT_QUEUE_EMPTY` without the class bit (timeout), `DAT_INTERRUPTED_CALL` (also when the thread is cancelled),
    /// `DAT_INVALID_HANDLE`.
    pub fn wait(&'static self, timeout: Option<Duration>) -> Result<RawHandle> {
        let adapter;
        let parker;
        let (generation, dismissed, evds);
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
            generation = self.head.generation.load(Ordering::Relaxed);
            dismissed = inner.dismissed;
            evds = inner.evds.clone();
            inner.waiters.push(Arc::clone(&parker));
            self.update_listens(&inner);
        }
        for evd in evds {
            evd.arm_for_cno(false);
        }
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut parked = Parked::Woken;
        loop {
            {
                let mut inner = self.inner.lock();
                if self.head.generation.load(Ordering::Relaxed) != generation
                    || inner.dismissed != dismissed
                {
                    // The memory may hold another CNO by now; `dismiss` has removed this waiter.
                    return Ok(0);
                }
                let expired = deadline.is_some_and(|d| Instant::now() >= d);
                let interrupted = Some(Err(Error::of(ErrorKind::InterruptedCall)));
                let outcome = if parked == Parked::Cancelled {
                    // Take nothing: the cancelled thread would not see it.
                    interrupted
                } else {
                    match inner.take() {
                        Some(evd) => Some(Ok(evd)),
                        None if parked == Parked::Interrupted => interrupted,
                        None if expired => Some(Err(EMPTY)),
                        None => None,
                    }
                };
                if let Some(outcome) = outcome {
                    inner.waiters.retain(|other| !Arc::ptr_eq(other, &parker));
                    inner.spare = Some(parker);
                    self.update_listens(&inner);
                    return outcome;
                }
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let mut ready = || {
                let inner = self.inner.lock();
                !inner.pending.is_empty()
                    || inner.dismissed != dismissed
                    || self.head.generation.load(Ordering::Relaxed) != generation
            };
            parked = T::park(&adapter, None, &parker, left, &mut ready);
        }
    }

    /// Returns a pending EVD like [`Cno::wait`], without waiting (dat_cno_trigger of 2.0).
    ///
    /// # Errors
    /// `DAT_QUEUE_EMPTY` without the class bit, `DAT_INVALID_HANDLE`.
    pub fn trigger(&'static self) -> Result<RawHandle> {
        self.wait(Some(Duration::ZERO))
    }

    /// Returns the CNO's attributes (dat_cno_query).
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
            Proxy::Fd(descriptor) => ProxyInfo::Fd(descriptor.event.as_raw_fd()),
        };
        Ok(CnoInfo {
            ia: raw(Ia::<T>::of(&self.head)),
            proxy,
            waiters: inner.waiters.len(),
        })
    }

    /// Frees the CNO (dat_cno_free).
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
        self.release();
        Ok(())
    }

    /// Frees the CNO in an abrupt close of the IA: waiters return a null handle, and the agent is called with one.
    pub(crate) fn destroy(&'static self) -> Result<()> {
        self.head
            .retire(Subtype::InvalidHandleCno, Subtype::InvalidStateCnoInUse)?;
        self.release();
        Ok(())
    }

    /// Drops the parts of a retired CNO, wakes its waiters, and recycles its memory.
    fn release(&'static self) {
        let (proxy, waiters) = {
            let mut inner = self.inner.lock();
            // Their room, too: thousands of freed CNOs wait until their memory is used again.
            inner.evds = Vec::new();
            inner.pending = VecDeque::new();
            inner.agent_due = None;
            inner.since_agent = Vec::new();
            inner.spare = None;
            let proxy = std::mem::replace(&mut inner.proxy, Proxy::None);
            let waiters = inner.dismiss();
            self.update_listens(&inner);
            (proxy, waiters)
        };
        for parker in waiters {
            T::unpark(&parker);
        }
        let ia = Ia::<T>::of(&self.head);
        if let Proxy::Agent(agent) = proxy
            && !ia.head.alive()
        {
            agent.run(0);
        }
        let arena = &T::arenas().cno;
        let index = arena.index_of(self);
        ia.remove_member(Kind::Cno, index);
        arena.recycle(index);
    }

    /// Makes `evd` pending, and notifies waiters and the proxy. Returns false if the EVD was freed or moved to another CNO meanwhile. The
    /// caller holds no locks.
    pub(crate) fn notify(&'static self, evd: &'static Evd<T>) -> bool {
        let (waiters, agent) = {
            let mut inner = self.inner.lock();
            let evd = raw(evd);
            if !self.head.alive() || !inner.has(evd) {
                return false;
            }
            if !inner.pending.contains(&evd) {
                inner.pending.push_back(evd);
            }
            let mut agent = None;
            match &mut inner.proxy {
                Proxy::None => inner.came_since_agent(evd),
                Proxy::Fd(descriptor) => descriptor.set_readable(true),
                Proxy::Agent(_) if agent::is_due_later() => {
                    self.call_later(&mut inner, evd);
                }
                proxy @ Proxy::Agent(_) => agent = Some(std::mem::replace(proxy, Proxy::None)),
            }
            self.update_listens(&inner);
            (inner.waiters.clone(), agent)
        };
        for parker in &waiters {
            T::unpark(parker);
        }
        if let Some(Proxy::Agent(agent)) = agent {
            agent.run(raw(evd));
        }
        true
    }

    /// Returns true if completions must be reported at once, because there is a waiter, an agent or a descriptor.
    pub(crate) fn listens(&self) -> bool {
        self.listens.load(Ordering::Acquire)
    }

    /// Adds `evd`. The caller holds the EVD's lock.
    pub(crate) fn attach(&self, evd: &'static Evd<T>) {
        self.inner.lock().evds.push(evd);
    }

    /// Removes `evd`, and returns whether it was pending. The caller does not hold the CNO's lock.
    pub(crate) fn detach(&self, evd: &'static Evd<T>) -> bool {
        self.inner.lock().remove(evd)
    }

    /// Removes `evd`, which is being freed. Returns what [`Cno::dismiss`] takes if it was the last EVD.
    pub(crate) fn detach_freed(&self, evd: &'static Evd<T>) -> Option<Abandoned> {
        let mut inner = self.inner.lock();
        inner.remove(evd);
        inner.evds.is_empty().then(|| Abandoned {
            generation: self.head.generation.load(Ordering::Relaxed),
        })
    }

    /// Gives the waiters and the agent a null handle after the last EVD was freed, unless another one has come (man dat_cno_wait). They may
    /// free the CNO and close the IA at once, so the caller holds no lock and no claim, and the EVD is gone.
    pub(crate) fn dismiss(&self, abandoned: Abandoned) {
        let (waiters, proxy) = {
            let mut inner = self.inner.lock();
            // The memory may hold another CNO by now.
            let generation = self.head.generation.load(Ordering::Relaxed);
            if generation != abandoned.generation || !inner.evds.is_empty() {
                return;
            }
            let proxy = match inner.proxy {
                Proxy::Agent(_) => std::mem::replace(&mut inner.proxy, Proxy::None),
                _ => Proxy::None,
            };
            let waiters = inner.dismiss();
            self.update_listens(&inner);
            (waiters, proxy)
        };
        for parker in waiters {
            T::unpark(&parker);
        }
        if let Proxy::Agent(agent) = proxy {
            agent.run(0);
        }
    }

    /// Recomputes `listens` after a change of waiters or proxy.
    fn update_listens(&self, inner: &Inner<T>) {
        let listens = !inner.waiters.is_empty() || !matches!(inner.proxy, Proxy::None);
        self.listens.store(listens, Ordering::Release);
    }
}

impl<T: Transport> Inner<T> {
    /// Returns true if the CNO is that of `evd`.
    fn has(&self, evd: RawHandle) -> bool {
        self.evds.iter().any(|own| raw(*own) == evd)
    }

    /// Removes `evd`, and returns whether it was pending.
    fn remove(&mut self, evd: &'static Evd<T>) -> bool {
        self.evds.retain(|e| !std::ptr::eq(*e, evd));
        let pending = self.pending.len();
        self.pending.retain(|e| *e != raw(evd));
        self.since_agent.retain(|e| *e != raw(evd));
        self.update_descriptor();
        self.pending.len() < pending
    }

    /// Records that `evd` got an event while no agent is set.
    fn came_since_agent(&mut self, evd: RawHandle) {
        if self.had_agent && !self.since_agent.contains(&evd) {
            self.since_agent.push(evd);
        }
    }

    /// Removes and returns the first pending EVD.
    fn take(&mut self) -> Option<RawHandle> {
        let evd = self.pending.pop_front();
        self.update_descriptor();
        evd
    }

    fn update_descriptor(&mut self) {
        let pending = !self.pending.is_empty();
        if let Proxy::Fd(descriptor) = &mut self.proxy {
            descriptor.set_readable(pending);
        }
    }

    /// Removes and returns the waiters; they return a null handle when they are woken.
    fn dismiss(&mut self) -> Vec<Arc<T::Parker>> {
        self.dismissed += 1;
        std::mem::take(&mut self.waiters)
    }
}
