//! Interface adapters (dat_ia_open, dat_ia_query, dat_ia_close). Every other object belongs to one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat_arena::Mutex;

use crate::ah::Ah;
use crate::arenas;
use crate::attributes::AdapterAttr;
use crate::cno::Cno;
use crate::counters::{Counted, CounterType, IaCounter, IaCounters, Which};
use crate::cr::Cr;
use crate::ep::Ep;
use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::evd::{Evd, Feed};
use crate::event::{AsyncEvent, Event, RawHandle};
use crate::flags::{Close, CompletionFlags, EvdFlags};
use crate::head::{Head, debug_by_head};
use crate::ia_params::IaParams;
use crate::lmr::{COOKIE_SIZE, Lmr};
use crate::pz::Pz;
use crate::rmr::Rmr;
use crate::sp::Sp;
use crate::srq::Srq;
use crate::transport::Transport;
use crate::upcall::Upcalls;

/// Kinds of objects, in the order in which an abrupt close frees them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Kind {
    /// Service points: PSP, RSP, CSP.
    Sp,
    Cr,
    Ah,
    Ep,
    Srq,
    Rmr,
    Lmr,
    Pz,
    Evd,
    Cno,
}

impl Kind {
    /// Returns the counters of objects created and freed; `None` if there are none. The module [`crate::sp`] counts PSPs and RSPs,
    /// which have counters of their own.
    const fn counters(self) -> Option<(IaCounter, IaCounter)> {
        use IaCounter as C;
        Some(match self {
            Self::Ep => (C::EpCreate, C::EpFree),
            Self::Srq => (C::SrqCreate, C::SrqFree),
            Self::Rmr => (C::RmrCreate, C::RmrFree),
            Self::Lmr => (C::LmrCreate, C::LmrFree),
            Self::Pz => (C::PzCreate, C::PzFree),
            Self::Evd => (C::EvdCreate, C::EvdFree),
            Self::Sp | Self::Cr | Self::Ah | Self::Cno => return None,
        })
    }
}

/// Destination of an IA's asynchronous errors (`async_evd_handle` of dat_ia_open).
#[derive(Debug)]
pub enum AsyncEvd<T: Transport> {
    /// A new EVD that is freed with the IA (`DAT_HANDLE_NULL`).
    New,
    /// An EVD of another open of the same provider.
    Existing(&'static Evd<T>),
    /// No EVD: another IA receives the errors (`DAT_EVD_ASYNC_EXISTS`).
    OutOfScope,
}

impl<T: Transport> Clone for AsyncEvd<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Transport> Copy for AsyncEvd<T> {}

/// An open adapter. All methods may be called from any thread.
#[repr(C)]
pub struct Ia<T: Transport> {
    /// Function table, liveness and generation.
    pub head: Head,
    counters: IaCounters,
    /// The setting `strict=lengths` of the dat.conf entry.
    strict_lengths: AtomicBool,
    inner: Mutex<Inner<T>>,
}

struct Inner<T: Transport> {
    name: String,
    adapter: Option<Arc<T::Adapter>>,
    attributes: Option<Arc<AdapterAttr>>,
    /// All objects of the IA, in the order in which an abrupt close frees them.
    members: BTreeSet<(Kind, u32)>,
    /// LMRs by lmr_context, by which dat_rmr_bind of 1.2 and the sync calls refer to an LMR.
    lmrs: HashMap<u32, u32>,
    /// RMRs that a peer may invalidate, by rmr_context.
    windows: HashMap<u32, u32>,
    /// Shared memory by its name: its length, and the number of LMRs on it.
    shared: HashMap<[u8; COOKIE_SIZE], (u64, u32)>,
    async_feed: Option<Feed<T>>,
    /// Arena index of the asynchronous EVD that dat_ia_open created.
    own_async_evd: Option<u32>,
}

debug_by_head!(Ia);

impl<T: Transport> Default for Ia<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            counters: IaCounters::default(),
            strict_lengths: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                name: String::new(),
                adapter: None,
                attributes: None,
                members: BTreeSet::new(),
                lmrs: HashMap::new(),
                windows: HashMap::new(),
                shared: HashMap::new(),
                async_feed: None,
                own_async_evd: None,
            }),
        }
    }
}

impl<T: Transport> Inner<T> {
    /// Returns true if the asynchronous EVD that the open created has other users than this IA.
    fn lends_async_evd(&self) -> bool {
        let own = self
            .own_async_evd
            .and_then(|index| T::arenas().evd.get(index));
        own.is_some_and(|evd| evd.head.users() > u32::from(self.async_feed.is_some()))
    }
}

const DEAD: Error = Error::handle(Subtype::InvalidHandleIa);

/// Minimum length of the asynchronous EVD that an open creates. Programs request 8, but each endpoint on a shared receive queue that
/// ends causes an event, and dtestsrq ends 100 at once. A full queue drops events without a notification.
const ASYNC_QLEN: u32 = 128;

/// Spare entries per reservation in a table: other threads may insert between a thread's reservation and its insert.
const SPARE_ENTRIES: usize = 64;

/// Time for which an abrupt close waits for frees that other threads have begun.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

impl<T: Transport> Ia<T> {
    /// Opens an IA (dat_ia_open). `table` is the address of the C function table of the IA and its objects. The same name may be
    /// opened any number of times.
    ///
    /// # Errors
    /// The errors of [`Transport::open`]; `DAT_INVALID_HANDLE` (`EVD_ASYNC`) if the given EVD is not an asynchronous one;
    /// `DAT_INSUFFICIENT_RESOURCES`.
    pub fn open(
        name: &str,
        params: &IaParams,
        async_qlen: u32,
        async_evd: AsyncEvd<T>,
        table: usize,
    ) -> Result<&'static Self> {
        let arena = &T::arenas().ia;
        let (index, ia) = arena
            .alloc()
            .ok_or(Error::resource(Subtype::ResourceMemory))?;
        ia.head.begin(index, table);
        ia.start(index, name, params, async_qlen, async_evd)
            .inspect_err(|_| {
                // No other thread has the handle: free the IA as an abrupt close does.
                ia.take_down();
                arena.recycle(index);
            })?;
        Ok(ia)
    }

    fn start(
        &'static self,
        index: u32,
        name: &str,
        params: &IaParams,
        async_qlen: u32,
        async_evd: AsyncEvd<T>,
    ) -> Result<()> {
        let token = self.head.token(index);
        let strict_lengths = params.strict_lengths().map_err(|why| {
            tracing::error!("{name}: {why}");
            Error::of(ErrorKind::InvalidParameter)
        })?;
        let adapter = T::open(name, params, Upcalls::new(token))?;
        let mut attributes = T::attributes(&adapter);
        arenas::limit(&mut attributes);
        attributes
            .named
            .push(("DAT_COUNTERS".to_owned(), "TRUE".to_owned()));
        let own: Vec<_> = T::own_counters(&adapter).iter().map(|(n, _)| *n).collect();
        if !own.is_empty() {
            let own = ("DAT_PROVIDER_COUNTERS".to_owned(), own.join(" "));
            attributes.named.push(own);
        }
        self.strict_lengths.store(strict_lengths, Ordering::Relaxed);
        self.counters.begin();
        {
            let mut inner = self.inner.lock();
            name.clone_into(&mut inner.name);
            inner.adapter = Some(Arc::new(adapter));
            inner.attributes = Some(Arc::new(attributes));
        }
        self.head.publish(0);
        let evd = match async_evd {
            AsyncEvd::OutOfScope => return Ok(()),
            AsyncEvd::Existing(evd) => evd,
            AsyncEvd::New => {
                let evd = Evd::create(self, async_qlen.max(ASYNC_QLEN), None, EvdFlags::ASYNC)?;
                self.inner.lock().own_async_evd = Some(T::arenas().evd.index_of(evd));
                evd
            }
        };
        let feed = evd.feed(
            EvdFlags::ASYNC,
            CompletionFlags::empty(),
            Subtype::InvalidHandleEvdAsync,
        )?;
        self.inner.lock().async_feed = Some(feed);
        Ok(())
    }

    /// Closes the IA (dat_ia_close).
    ///
    /// A graceful close succeeds only if no object is left but the asynchronous EVD that the open created, and no other IA was opened
    /// with that. An abrupt close frees all
    /// objects in the order of their dependencies; waiters on EVDs return `DAT_ABORT`, waiters on CNOs a null handle.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` (closed already, or another thread is closing it); `DAT_INVALID_STATE` (`IA_IN_USE`).
    pub fn close(&'static self, how: Close) -> Result<()> {
        {
            let inner = self.inner.lock();
            if !self.head.alive() {
                return Err(DEAD);
            }
            let own = usize::from(inner.own_async_evd.is_some());
            let left = inner.members.len() > own || inner.lends_async_evd();
            if how == Close::Graceful && left {
                return Err(Error::state(Subtype::InvalidStateIaInUse));
            }
            // From here on no object is added; see `add_member`.
            self.head
                .retire(Subtype::InvalidHandleIa, Subtype::InvalidStateIaInUse)?;
        }
        self.take_down();
        let arena = &T::arenas().ia;
        arena.recycle(arena.index_of(self));
        Ok(())
    }

    /// Frees the remaining objects and releases the adapter. The IA is dead, so no object is added any more.
    fn take_down(&self) {
        self.head.word.store(0, Ordering::Release);
        let feed = self.inner.lock().async_feed.take();
        drop(feed);
        let begun = Instant::now();
        loop {
            let members: Vec<_> = self.inner.lock().members.iter().copied().collect();
            if members.is_empty() {
                break;
            }
            for (kind, index) in members {
                Self::destroy(kind, index);
            }
            if begun.elapsed() > CLOSE_TIMEOUT {
                let left: Vec<_> = self.inner.lock().members.iter().copied().collect();
                // Empty: they are free, and only the transport took its time.
                if !left.is_empty() {
                    tracing::error!(
                        ?left,
                        "closing an IA: objects cannot be freed; they are leaked"
                    );
                }
                break;
            }
            // Another thread is freeing the remaining objects, or objects that use them.
            std::thread::yield_now();
        }
        let mut inner = self.inner.lock();
        let adapter = inner.adapter.take();
        inner.attributes = None;
        inner.members.clear();
        inner.lmrs.clear();
        inner.windows.clear();
        inner.shared.clear();
        inner.own_async_evd = None;
        drop(inner);
        if let Some(adapter) = adapter {
            T::close(&adapter);
        }
    }

    /// Frees one object in any state, which removes it from the list. The caller tries again if the object refuses, because another
    /// thread is freeing it or another object still uses it.
    fn destroy(kind: Kind, index: u32) {
        let arenas = T::arenas();
        let tried = match kind {
            Kind::Sp => arenas.sp.get(index).map(Sp::free),
            Kind::Cr => arenas.cr.get(index).map(Cr::destroy),
            Kind::Ah => arenas.ah.get(index).map(Ah::destroy),
            Kind::Ep => arenas.ep.get(index).map(Ep::destroy),
            Kind::Srq => arenas.srq.get(index).map(Srq::free),
            Kind::Rmr => arenas.rmr.get(index).map(Rmr::free),
            Kind::Lmr => arenas.lmr.get(index).map(Lmr::free),
            Kind::Pz => arenas.pz.get(index).map(Pz::free),
            Kind::Evd => arenas.evd.get(index).map(Evd::destroy),
            Kind::Cno => arenas.cno.get(index).map(Cno::destroy),
        };
        if let Some(Err(error)) = tried {
            tracing::trace!(?kind, index, %error, "not yet freed");
        }
    }

    /// Returns the limits and the identity of the device (dat_ia_query).
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if the IA is closed.
    pub fn attributes(&self) -> Result<Arc<AdapterAttr>> {
        self.inner.lock().attributes.clone().ok_or(DEAD)
    }

    /// Returns true if a request must not be longer than its remote segment.
    pub(crate) fn strict_lengths(&self) -> bool {
        self.strict_lengths.load(Ordering::Relaxed)
    }

    /// Returns the EVD of asynchronous errors; `None` is `DAT_EVD_OUT_OF_SCOPE`.
    pub fn async_evd(&self) -> Option<&'static Evd<T>> {
        let inner = self.inner.lock();
        inner
            .async_feed
            .as_ref()
            .filter(|feed| feed.valid())
            .map(Feed::evd)
    }

    /// Returns the name that the IA was opened by.
    pub fn name(&self) -> String {
        self.inner.lock().name.clone()
    }

    /// Returns the IA that the object of `head` belongs to. It may be dead if the object is dead.
    pub(crate) fn of(head: &Head) -> &'static Self {
        let index = head.ia.load(Ordering::Relaxed);
        match T::arenas().ia.get(index) {
            Some(ia) => ia,
            // An object gets the index of an existing IA when it is created, and the memory of an IA is never unmapped.
            None => unreachable!("IA {index} was never created"),
        }
    }

    /// Returns the transport's adapter.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if the IA is closed.
    pub(crate) fn adapter(&self) -> Result<Arc<T::Adapter>> {
        self.inner.lock().adapter.clone().ok_or(DEAD)
    }

    /// Makes an object, whose fields the caller has set, a live member of this IA and publishes it with `bits` of its
    /// [`Head::word`]. From here on an abrupt close frees it.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if the IA is closed or closing.
    pub(crate) fn add_member(&self, kind: Kind, index: u32, head: &Head, bits: u64) -> Result<()> {
        let mut inner = self.inner.lock();
        if !self.head.alive() {
            return Err(DEAD);
        }
        inner.members.insert((kind, index));
        head.begin(self.head.ia.load(Ordering::Relaxed), self.head.table());
        head.publish(bits);
        if let Some((created, _)) = kind.counters() {
            self.count(created);
        }
        Ok(())
    }

    /// Removes a freed object from the list of members; a close may be waiting for that.
    pub(crate) fn remove_member(&self, kind: Kind, index: u32) {
        self.inner.lock().members.remove(&(kind, index));
        if let Some((_, freed)) = kind.counters() {
            self.count(freed);
        }
    }

    /// Returns the LMR of a local key.
    pub(crate) fn lmr(&self, lmr_context: u32) -> Option<&'static Lmr<T>> {
        let index = *self.inner.lock().lmrs.get(&lmr_context)?;
        T::arenas().lmr.get(index)
    }

    /// Registers an LMR under its key, or removes the key (`None`).
    pub(crate) fn set_lmr_index(&self, lmr_context: u32, index: Option<u32>) {
        let mut inner = self.inner.lock();
        match index {
            Some(index) => inner.lmrs.insert(lmr_context, index),
            None => inner.lmrs.remove(&lmr_context),
        };
    }

    /// Returns the RMR of a key that a peer may invalidate.
    pub(crate) fn window(&self, rmr_context: u32) -> Option<&'static Rmr<T>> {
        let index = *self.inner.lock().windows.get(&rmr_context)?;
        T::arenas().rmr.get(index)
    }

    /// Registers such an RMR under its key, or removes the key (`None`).
    pub(crate) fn set_window_index(&self, rmr_context: u32, index: Option<u32>) {
        let mut inner = self.inner.lock();
        match index {
            Some(index) => inner.windows.insert(rmr_context, index),
            None => inner.windows.remove(&rmr_context),
        };
    }

    /// Reserves room in the table of LMRs, so that [`Ia::set_lmr_index`] does not allocate.
    pub(crate) fn reserve_lmr(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        let named = inner.lmrs.try_reserve(SPARE_ENTRIES);
        named.map_err(|_| Error::resource(Subtype::ResourceMemory))
    }

    /// Reserves room in the table of RMRs, so that [`Ia::set_window_index`] does not allocate.
    pub(crate) fn reserve_window(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        let named = inner.windows.try_reserve(SPARE_ENTRIES);
        named.map_err(|_| Error::resource(Subtype::ResourceMemory))
    }

    /// Counts one more LMR on the shared memory `cookie`.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 4) if memory of that name has another length; `DAT_INSUFFICIENT_RESOURCES`.
    pub(crate) fn share(&self, cookie: &[u8; COOKIE_SIZE], length: u64) -> Result<()> {
        let mut inner = self.inner.lock();
        let room = inner.shared.try_reserve(1);
        room.map_err(|_| Error::resource(Subtype::ResourceMemory))?;
        let (known, users) = inner.shared.entry(*cookie).or_insert((length, 0));
        if *known != length {
            return Err(Error::arg(4));
        }
        *users += 1;
        Ok(())
    }

    /// Counts one LMR less on the shared memory `cookie`.
    pub(crate) fn unshare(&self, cookie: &[u8; COOKIE_SIZE]) {
        let mut inner = self.inner.lock();
        if let Some((_, users)) = inner.shared.get_mut(cookie) {
            *users -= 1;
            if *users == 0 {
                inner.shared.remove(cookie);
            }
        }
    }

    /// Adds 1 to `counter`.
    pub(crate) fn count(&self, counter: IaCounter) {
        self.counters.add(counter);
    }

    /// Returns the counters of the transport's device.
    fn device_counters(&self) -> Result<Vec<(IaCounter, u64)>> {
        Ok(T::device_counters(&*self.adapter()?))
    }

    /// Returns the counters and then resets those that `reset` selects (dat_ib_query_counters).
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if the IA is closed.
    pub fn counters(&self, reset: Option<Which>) -> Result<Counted> {
        let device = self.device_counters()?;
        let values = self.counters.values(&device).to_vec();
        if let Some(which) = reset {
            self.counters.reset(which, &device);
        }
        Ok(Counted {
            names: IaCounter::ALL.iter().map(|c| c.name()).collect(),
            values,
        })
    }

    /// Returns the transport's own counter with this index in `DAT_PROVIDER_COUNTERS`; dat_ib_query_counters has it with the number
    /// `DCNT_IA_ALL_COUNTERS` + 1 + index.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 3 of dat_extension_op) if there is none; `DAT_INVALID_HANDLE` if the IA is closed.
    pub fn own_counter(&self, index: usize) -> Result<u64> {
        let counters = T::own_counters(&*self.adapter()?);
        let counter = counters.get(index).ok_or(Error::arg(3))?;
        Ok(counter.1)
    }

    /// Sets the counters of a type to 0 and starts them (dat_ib_start_counter).
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if the IA is closed.
    pub fn start_counters(&self, of: CounterType) -> Result<()> {
        self.counters.start(of, &self.device_counters()?);
        Ok(())
    }

    /// Stops the counters of a type at their present values (dat_ib_stop_counter).
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if the IA is closed.
    pub fn stop_counters(&self, of: CounterType) -> Result<()> {
        self.counters.stop(of, &self.device_counters()?);
        Ok(())
    }

    /// Posts an asynchronous error to the IA's EVD, if it has one. Returns false if that has no room.
    pub(crate) fn post_async(&self, number: AsyncEvent, handle: RawHandle, reason: u32) -> bool {
        self.count(IaCounter::AsyncError);
        match number {
            AsyncEvent::EpBroken => self.count(IaCounter::AsyncQpError),
            AsyncEvent::EvdOverflow => self.count(IaCounter::AsyncCqError),
            _ => {}
        }
        let Some(evd) = self.async_evd() else {
            tracing::warn!(
                ia = self.name(),
                ?number,
                handle,
                reason,
                "an asynchronous error is lost, because the IA has no asynchronous EVD; open the IA with one"
            );
            return true;
        };
        evd.post(Event::Async {
            number,
            handle,
            reason,
        })
    }
}

/// Returns the IA of `token` if it is still open.
pub(crate) fn by_token<T: Transport>(token: crate::transport::Token) -> Option<&'static Ia<T>> {
    let ia = T::arenas().ia.get(token.index())?;
    (ia.head.alive() && ia.head.token(token.index()) == token).then_some(ia)
}
