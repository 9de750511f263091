//! Event dispatchers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dat_abi::ret::DAT_SUCCESS;
use dat_abi::types::{DAT_HANDLE_NULL, DatEvdParam, event_number};
use dat_abi::v2_0::types::DatEvent;

use crate::cno::{Cno, Woken};
use crate::error::{Code, Kind, Result};
use crate::event::{Completion, Event, Filled};
use crate::hot::{Hot, quick};
use crate::ia::Ia;
use crate::ids::{Entry, EpId, Recent};
use crate::post_error::PollError;
use crate::sys::{self, Handle, call, count, free, query};
use crate::{Error, Streams, limits};

/// An event dispatcher: a queue of events. Clones are the same queue.
///
/// ```
/// use udapl::{Event, Ia, Streams};
///
/// # fn main() -> Result<(), udapl::Error> {
/// let ia = Ia::open("softrxe-lo")?;
/// let evd = ia.create_evd(16, Streams::SOFTWARE | Streams::DTO | Streams::CONNECTION)?;
/// evd.post(7)?; // e.g. by another thread
/// while let Some(event) = evd.poll()? {
///     match event {
///         Event::Completion(done) => println!("post {} is complete: {:?}", done.cookie, done.status),
///         Event::Ended { ep, how } => println!("connection of {ep}: {how:?}"),
///         Event::Software(value) => assert_eq!(value, 7),
///         other => println!("{other:?}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Evd {
    // What a poll needs is here, and not behind another pointer.
    handle: Handle,
    hot: &'static Hot,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    handle: Handle,
    /// The asynchronous dispatcher belongs to the adapter, which frees it.
    is_owned: bool,
    /// The CNO. Threads that set one at the same time leave all theirs here, since only the provider knows the last one.
    cnos: Mutex<Vec<Cno>>,
    recent: Recent,
    late: Late,
    waits: Waits,
    ia: Ia,
}

impl Inner {
    fn cnos(&self) -> MutexGuard<'_, Vec<Cno>> {
        self.cnos.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rejects the requests that are left in the dispatcher, which is being dropped. One of a reserved service point keeps its endpoint, which may use this
    /// dispatcher.
    fn reject_requests(&self) {
        let mut event = Filled::uninit();
        while call!(self.handle, evd_dequeue(event.zero())).is_ok() {
            drop(Event::of(&self.ia, &self.recent, &event.whole()));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.is_owned {
            if call!(self.handle, evd_free()).is_err() {
                self.reject_requests();
                let limbo = self.ia.limbo();
                limbo.free(self.handle, |handle| call!(handle, evd_free()));
            }
        } else if !self.cnos().is_empty() {
            // The adapter's dispatcher remains; the CNO goes.
            free!(self.handle, evd_modify_cno(DAT_HANDLE_NULL));
        }
        self.late.forget();
    }
}

/// Endpoints that were freed while events of theirs may be in the queue. Their handles are not given to new endpoints until the queue
/// was seen empty.
#[derive(Debug, Default)]
struct Late {
    is_any: AtomicBool,
    entries: Mutex<Vec<&'static Entry>>,
}

impl Late {
    #[inline]
    fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    fn take(&self) -> Vec<&'static Entry> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *entries)
    }

    fn put(&self, more: impl IntoIterator<Item = &'static Entry>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in more {
            if entries.len() == entries.capacity() {
                forget_repeated(&mut entries);
            }
            entries.push(entry);
        }
        self.is_any.store(true, Ordering::Release);
    }

    fn forget(&self) {
        self.take().into_iter().for_each(Entry::remove_late);
    }
}

/// Leaves each entry once. The queue of a busy program may never be empty, and the provider uses handles again.
#[cold]
fn forget_repeated(entries: &mut Vec<&'static Entry>) {
    entries.sort_unstable_by_key(|entry| std::ptr::from_ref(*entry).addr());
    entries.dedup_by(|one, other| {
        let repeated = std::ptr::eq(*one, *other);
        if repeated {
            one.remove_late();
        }
        repeated
    });
}

/// Whether a wait may begin with a dequeue. That costs less than dat_evd_wait, a cancellation point, around which pthread_cancel has to
/// be deferred. But while a thread waits, or waits are forbidden, a wait is an error and must take no event.
#[derive(Debug)]
struct Waits {
    /// The asynchronous dispatcher may have several values of this crate, which do not know of each other.
    is_only: bool,
    /// A thread is in dat_evd_wait.
    is_waited: AtomicBool,
    /// Waits are forbidden, or this is not the only value.
    is_forbidden: AtomicBool,
}

impl Waits {
    const fn new(is_only: bool) -> Self {
        Self {
            is_only,
            is_waited: AtomicBool::new(false),
            is_forbidden: AtomicBool::new(!is_only),
        }
    }

    #[inline]
    fn may_look(&self) -> bool {
        !self.is_waited.load(Ordering::Relaxed) && !self.is_forbidden.load(Ordering::Relaxed)
    }

    /// Records that a thread waits. Whether two threads see each other that begin at the same time does not matter: either may be the
    /// first, and have its event before the other one waits.
    #[inline]
    fn begin(&self) {
        self.is_waited.store(true, Ordering::Relaxed);
    }

    /// Records that a wait returned `code`. One that was refused leaves the thread that waits.
    #[inline]
    fn end(&self, code: u32) {
        if !sys::says_state(code) {
            self.is_waited.store(false, Ordering::Relaxed);
        }
    }
}

/// What a provider knows of a dispatcher (dat_evd_query).
///
/// ```
/// # use udapl::{Ia, Streams};
/// # fn main() -> Result<(), udapl::Error> {
/// # let ia = Ia::open("softrxe-lo")?;
/// let evd = ia.create_evd(16, Streams::SOFTWARE)?;
/// evd.resize(100)?;
/// let info = evd.info()?;
/// assert!(info.queue >= 100 && info.streams == Streams::SOFTWARE && info.is_waitable);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EvdInfo {
    /// Number of events that it holds.
    pub queue: u32,
    /// Streams that it takes.
    pub streams: Streams,
    /// Whether it notifies its CNO.
    pub is_enabled: bool,
    /// Whether threads may wait on it.
    pub is_waitable: bool,
}

/// Explains why a dispatcher was refused.
#[cold]
fn refused(ia: &Ia, qlen: u32, streams: Streams, error: Error) -> Error {
    let most = ia
        .attributes()
        .map_or(u32::MAX, |known| known.max_evd_queue);
    let kinds = Streams::all().iter().count() as u32;
    let asked = streams.iter().count() as u32;
    limits::explained(error, &[("events", qlen, most), ("streams", asked, kinds)])
}

impl Evd {
    pub(crate) fn create(ia: &Ia, qlen: u32, streams: Streams, cno: Option<&Cno>) -> Result<Self> {
        let mut handle = DAT_HANDLE_NULL;
        let notified = cno.map_or(DAT_HANDLE_NULL, |cno| cno.handle().0);
        call!(
            ia.handle(),
            evd_create(
                count(qlen as usize),
                notified,
                streams.bits(),
                &raw mut handle
            )
        )
        .map_err(|error| refused(ia, qlen, streams, error))?;
        Ok(Self::own(ia, Handle(handle), true, cno.cloned()))
    }

    pub(crate) fn own(ia: &Ia, handle: Handle, is_owned: bool, cno: Option<Cno>) -> Self {
        Self {
            handle,
            hot: Hot::of(handle),
            inner: Arc::new(Inner {
                handle,
                is_owned,
                cnos: Mutex::new(cno.into_iter().collect()),
                recent: Recent::default(),
                late: Late::default(),
                waits: Waits::new(is_owned),
                ia: ia.clone(),
            }),
        }
    }

    #[inline]
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the adapter.
    #[must_use]
    pub fn ia(&self) -> &Ia {
        &self.inner.ia
    }

    /// Remembers that an endpoint that was freed may have events here.
    pub(crate) fn add_late(&self, entry: &'static Entry) {
        entry.add_late();
        self.inner.late.put([entry]);
    }

    /// Takes the next event, if there is one (dat_evd_dequeue).
    ///
    /// # Errors
    /// [`Error::Call`]. An empty queue is `Ok(None)`.
    #[inline(always)]
    pub fn poll(&self) -> Result<Option<Event>> {
        let mut event = Filled::uninit();
        let code = quick!(self.hot, self.handle(), evd_dequeue(event.zero()));
        // Each way out builds its result where the caller wants it: a result that is moved costs as much as the call.
        if code == DAT_SUCCESS && event.number() == event_number::DTO_COMPLETION {
            return Ok(Some(Event::Completion(self.usual_completion(&event, 0))));
        }
        if code != DAT_SUCCESS && self.is_settled(code) {
            return Ok(None);
        }
        self.poll_rare(code, &mut event)
    }

    /// The rest of a poll: an event that is no completion of a post, or an empty queue on which something depends.
    #[cold]
    #[inline(never)]
    fn poll_rare(&self, code: u32, event: &mut Filled) -> Result<Option<Event>> {
        if code != DAT_SUCCESS {
            match self.poll_again(code, event.zero()) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(code) => return Err(Error::of("dat_evd_dequeue", code)),
            }
        }
        Ok(Some(self.event(&event.whole())))
    }

    /// Takes the next completion, if there is one (dat_evd_dequeue). It costs less than [`Evd::poll`], and is for a dispatcher that
    /// takes completions only.
    ///
    /// ```
    /// use udapl::Access;
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let (pz, (client, sent), (server, received)) = pair()?;
    /// // `client` is a connected endpoint; its completions arrive in `sent`.
    /// let message = pz.allocate(64, Access::LOCAL_READ)?;
    /// # let room = pz.allocate(64, Access::LOCAL_WRITE)?;
    /// # server.post_recv(&[room.slice(0..64)], 2)?;
    /// client.post_send(&[message.slice(0..10)], 7)?;
    /// let done = loop {
    ///     if let Some(done) = sent.poll_completion()? {
    ///         break done.result()?; // an error if the operation failed
    ///     }
    /// };
    /// assert_eq!((done.cookie, done.ep), (7, client.id()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`PollError::Disconnected`] if the event is the end of a connection; [`PollError::Unexpected`] for any other event;
    /// [`PollError::Refused`]. The completion of an operation that failed is no error: see [`Completion::result`].
    #[inline(always)]
    pub fn poll_completion(&self) -> Result<Option<Completion>, PollError> {
        let mut event = Filled::uninit();
        let code = quick!(self.hot, self.handle(), evd_dequeue(event.clear()));
        if code != DAT_SUCCESS {
            if self.is_settled(code) {
                return Ok(None);
            }
            match self.poll_again(code, event.clear()) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(code) => return Err(PollError::Refused { code }),
            }
        }
        self.completion(&mut event).map(Some)
    }

    /// Converts a completion that was taken.
    #[inline(always)]
    fn completion(&self, event: &mut Filled) -> Result<Completion, PollError> {
        let mut immediate = 0;
        if event.number() != event_number::DTO_COMPLETION {
            immediate = self.rare_completion(event)?;
        }
        Ok(self.usual_completion(event, immediate))
    }

    /// Converts a completion of a post that was taken, and counts it.
    #[inline(always)]
    fn usual_completion(&self, event: &Filled, immediate: u32) -> Completion {
        let dto = event.completion();
        let (handle, operation) = (dto.ep_handle, dto.operation);
        let ep = match self.inner.recent.complete_same(handle, operation) {
            Some(ep) => ep,
            None => self.other_endpoint(handle, operation),
        };
        Completion::of(&dto, ep, immediate)
    }

    #[cold]
    #[inline(never)]
    fn other_endpoint(&self, handle: usize, operation: u32) -> EpId {
        self.inner.recent.find(handle, operation)
    }

    /// Makes a usual completion of one of an extension or of a bind, and returns its immediate data.
    #[cold]
    #[inline(never)]
    fn rare_completion(&self, event: &mut Filled) -> Result<u32, PollError> {
        if let Some(immediate) = event.make_completion() {
            return Ok(immediate);
        }
        // A connection request is rejected when it is dropped.
        match self.event(&event.whole()) {
            Event::Ended { how, .. } => Err(PollError::Disconnected { how }),
            _ => Err(PollError::Unexpected {
                number: event.number(),
            }),
        }
    }

    /// Converts an event that was taken.
    #[inline]
    fn event(&self, event: &DatEvent) -> Event {
        Event::of(&self.inner.ia, &self.inner.recent, event)
    }

    /// Returns true for the return code of an empty queue on which nothing else depends.
    #[inline]
    fn is_settled(&self, code: u32) -> bool {
        let inner = &*self.inner;
        sys::says_empty(code) && !inner.ia.limbo().is_any() && !inner.late.is_any()
    }

    /// A dequeue failed with `code`: looks once more if something depends on an empty queue. Returns whether `event` has an event.
    #[cold]
    #[inline(never)]
    fn poll_again(&self, code: u32, event: *mut DatEvent) -> std::result::Result<bool, Code> {
        let Some(failed) = Code::from_code(code) else {
            return Ok(true);
        };
        if !sys::says_empty(code) {
            return Err(failed);
        }
        self.inner.ia.limbo().collect();
        if !self.inner.late.is_any() {
            return Ok(false);
        }
        let code = self.dequeue_late(event);
        if sys::says_empty(code) {
            return Ok(false);
        }
        Code::from_code(code).map_or(Ok(true), Err)
    }

    /// Takes the next event. If there is none, the endpoints that were freed before have no events here any more. Returns the
    /// provider's code.
    fn dequeue_late(&self, event: *mut DatEvent) -> u32 {
        let late = self.inner.late.take();
        let code = quick!(self.hot, self.handle(), evd_dequeue(event));
        if sys::says_empty(code) {
            late.into_iter().for_each(Entry::remove_late);
        } else {
            self.inner.late.put(late);
        }
        code
    }

    /// The same for a wait that found no event. A program that only waits has no other look at an empty queue.
    #[cold]
    #[inline(never)]
    fn look_for_late(&self, event: *mut DatEvent) -> u32 {
        if self.inner.waits.may_look() {
            self.dequeue_late(event)
        } else {
            sys::ABSENT.code()
        }
    }

    /// Waits for the next event (dat_evd_wait; an event that is there is taken by dat_evd_dequeue). Only one thread may wait at a time.
    /// `Duration::MAX` is no limit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::{Error, Ia, Streams};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let ia = Ia::open("softrxe-lo")?;
    /// let evd = ia.create_evd(16, Streams::SOFTWARE)?;
    /// match evd.wait(Duration::from_millis(1)) {
    ///     Ok(event) => println!("{event:?}"),
    ///     Err(Error::TimedOut { .. }) => println!("nothing happened yet"),
    ///     Err(Error::Interrupted { .. }) => println!("a signal; wait again"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Interrupted`], [`Error::State`] if another thread waits or waiting is forbidden, [`Error::Call`].
    #[inline]
    pub fn wait(&self, timeout: Duration) -> Result<Event> {
        let (mut event, mut more) = (Filled::uninit(), 0);
        let mut code = self.look(event.zero());
        if code != DAT_SUCCESS && self.inner.late.is_any() {
            code = self.look_for_late(event.zero());
        }
        if code != DAT_SUCCESS {
            code = self.wait_into(1, timeout, event.zero(), &mut more);
        }
        if code == DAT_SUCCESS && event.number() == event_number::DTO_COMPLETION {
            return Ok(Event::Completion(self.usual_completion(&event, 0)));
        }
        self.waited_event(code, &event)
    }

    /// The rest of a wait: it failed, or the event is no completion of a post.
    #[cold]
    #[inline(never)]
    fn waited_event(&self, code: u32, event: &Filled) -> Result<Event> {
        sys::done("dat_evd_wait", code)?;
        Ok(self.event(&event.whole()))
    }

    /// Waits until `threshold` events are there, and returns the first one and the number of the others.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use udapl::{Event, Ia, Streams};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let ia = Ia::open("softrxe-lo")?;
    /// # let evd = ia.create_evd(16, Streams::SOFTWARE)?;
    /// for value in 0..3 {
    ///     evd.post(value)?;
    /// }
    /// let (first, more) = evd.wait_for(3, Duration::from_secs(60))?;
    /// assert!(matches!(first, Event::Software(0)));
    /// assert_eq!(more, 2); // two are left for `poll`
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Evd::wait`]. If the limit expires while fewer events are there, these stay.
    pub fn wait_for(&self, threshold: u32, timeout: Duration) -> Result<(Event, u32)> {
        let (mut event, mut more) = (Filled::uninit(), 0);
        let code = self.wait_into(threshold, timeout, event.zero(), &mut more);
        if code == DAT_SUCCESS && event.number() == event_number::DTO_COMPLETION {
            let event = Event::Completion(self.usual_completion(&event, 0));
            return Ok((event, u32::try_from(more).unwrap_or(0)));
        }
        sys::done("dat_evd_wait", code)?;
        Ok((self.event(&event.whole()), u32::try_from(more).unwrap_or(0)))
    }

    /// Waits until `threshold` events are there; fills `event` with the first one and `more` with the number of the others. Returns the
    /// provider's code, and no `Result`: that would be moved, with room for an error.
    #[inline(always)]
    fn wait_into(
        &self,
        threshold: u32,
        timeout: Duration,
        event: *mut DatEvent,
        more: &mut i32,
    ) -> u32 {
        self.inner.ia.limbo().collect();
        self.inner.waits.begin();
        let code = match sys::one_piece(timeout) {
            Some(limit) => self.wait_once(limit, threshold, event, more),
            None => self.wait_often(threshold, timeout, event, more),
        };
        self.inner.waits.end(code);
        code
    }

    /// Takes an event that is there already, for a wait that may do so. Returns the provider's code, or one of no success.
    #[inline(always)]
    fn look(&self, event: *mut DatEvent) -> u32 {
        if self.inner.waits.may_look() {
            quick!(self.hot, self.handle(), evd_dequeue(event))
        } else {
            sys::ABSENT.code()
        }
    }

    #[inline(always)]
    fn wait_once(&self, limit: u32, threshold: u32, event: *mut DatEvent, more: &mut i32) -> u32 {
        let (threshold, more) = (count(threshold as usize), &raw mut *more);
        let wait = || {
            quick!(
                self.hot,
                self.handle(),
                evd_wait(limit, threshold, event, more)
            )
        };
        // `pthread_cancel` would unwind frames that own values, so a cancellation is deferred.
        dat_os::cancel::defer(wait)
    }

    #[cold]
    #[inline(never)]
    fn wait_often(
        &self,
        threshold: u32,
        timeout: Duration,
        event: *mut DatEvent,
        more: &mut i32,
    ) -> u32 {
        sys::wait_in_pieces(timeout, &mut |limit| {
            self.wait_once(limit, threshold, event, more)
        })
    }

    /// Waits for a successful completion, as [`Evd::wait`] does for any event.
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::Access;
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let (pz, (client, sent), (server, received)) = pair()?;
    /// // `client` is a connected endpoint; its completions arrive in `sent`.
    /// let message = pz.allocate(64, Access::LOCAL_READ)?;
    /// # let room = pz.allocate(64, Access::LOCAL_WRITE)?;
    /// # server.post_recv(&[room.slice(0..64)], 2)?;
    /// client.post_send(&[message.slice(0..10)], 1)?;
    /// let done = sent.wait_completion(Duration::from_secs(60))?;
    /// assert_eq!((done.cookie, done.ep), (1, client.id()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Failed`] if the operation failed; [`Error::Disconnected`] if the event is the end of a connection;
    /// [`Error::Unexpected`] for any other event; the errors of [`Evd::wait`].
    #[inline(always)]
    pub fn wait_completion(&self, timeout: Duration) -> Result<Completion> {
        let (mut event, mut more) = (Filled::uninit(), 0);
        let mut code = self.look(event.clear());
        if code != DAT_SUCCESS && self.inner.late.is_any() {
            code = self.look_for_late(event.clear());
        }
        if code != DAT_SUCCESS {
            code = self.wait_into(1, timeout, event.clear(), &mut more);
        }
        if code == DAT_SUCCESS && event.number() == event_number::DTO_COMPLETION {
            return self.usual_completion(&event, 0).result();
        }
        self.waited(code, &mut event)
    }

    /// The rest of a wait for a completion: it failed, or the event is no completion of a post.
    #[cold]
    #[inline(never)]
    fn waited(&self, code: u32, event: &mut Filled) -> Result<Completion> {
        sys::done("dat_evd_wait", code)?;
        self.completion(event)?.result()
    }

    /// Posts a software event (dat_evd_post_se).
    ///
    /// # Errors
    /// [`Error::QueueFull`]; [`Error::WrongStreams`] if the dispatcher does not take `Streams::SOFTWARE`; [`Error::Call`].
    pub fn post(&self, value: usize) -> Result<()> {
        let mut event = DatEvent {
            event_number: event_number::SOFTWARE,
            ..DatEvent::default()
        };
        event.event_data.software_event_data.pointer = value;
        let posted = call!(self.handle(), evd_post_se(&raw const event));
        posted.map_err(|error| match error {
            // Its only argument is the event, which is one.
            Error::Call { call, code } if code.kind() == Some(Kind::InvalidParameter) => {
                let needs = Streams::SOFTWARE;
                Error::WrongStreams { call, needs }
            }
            other => other,
        })
    }

    /// Changes the number of events that the dispatcher holds to at least `qlen` (dat_evd_resize). Events stay.
    ///
    /// # Errors
    /// [`Error::State`] if more events are queued; [`Error::Resources`]; [`Error::Call`].
    pub fn resize(&self, qlen: u32) -> Result<()> {
        call!(self.handle(), evd_resize(count(qlen as usize)))
    }

    /// Queries the dispatcher (dat_evd_query).
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn info(&self) -> Result<EvdInfo> {
        let param: DatEvdParam = query!(self.handle(), evd_query(0x1f));
        Ok(EvdInfo {
            queue: u32::try_from(param.evd_qlen).unwrap_or(0),
            streams: Streams::from_bits_retain(param.evd_flags),
            is_enabled: param.evd_state & 0x1 != 0,
            is_waitable: param.evd_state & 0x4 != 0,
        })
    }

    /// Lets events notify the CNO (dat_evd_enable), or stops that (dat_evd_disable).
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn enable(&self, enable: bool) -> Result<()> {
        if enable {
            call!(self.handle(), evd_enable())
        } else {
            call!(self.handle(), evd_disable())
        }
    }

    /// Allows waits (dat_evd_clear_unwaitable), or refuses them and ends the present one (dat_evd_set_unwaitable).
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::{Error, Ia, Streams};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let ia = Ia::open("softrxe-lo")?;
    /// let evd = ia.create_evd(16, Streams::SOFTWARE)?;
    /// let waiter = evd.clone();
    /// let waiter = std::thread::spawn(move || waiter.wait(Duration::MAX));
    /// evd.set_waitable(false)?; // at the end of the program, say
    /// let ended = waiter.join().expect("it does not panic");
    /// assert!(matches!(ended, Err(Error::Interrupted { .. } | Error::State { .. })), "{ended:?}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn set_waitable(&self, waitable: bool) -> Result<()> {
        let waits = &self.inner.waits;
        if waitable {
            call!(self.handle(), evd_clear_unwaitable())?;
            waits.is_forbidden.store(!waits.is_only, Ordering::Relaxed);
            return Ok(());
        }
        // Before the call, which ends a wait: its thread may wait again at once. A look less costs little if the call fails.
        waits.is_forbidden.store(true, Ordering::Relaxed);
        call!(self.handle(), evd_set_unwaitable())
    }

    /// Replaces the CNO that events notify (dat_evd_modify_cno).
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::{Ia, Streams};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let ia = Ia::open("softrxe-lo")?;
    /// let evd = ia.create_evd(16, Streams::SOFTWARE)?;
    /// let cno = ia.create_cno()?;
    /// evd.set_cno(Some(&cno))?;
    /// evd.post(7)?;
    /// assert!(cno.wait(Duration::from_secs(60))?.is(&evd));
    /// evd.set_cno(None)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn set_cno(&self, cno: Option<&Cno>) -> Result<()> {
        let handle = cno.map_or(DAT_HANDLE_NULL, |cno| cno.handle().0);
        // No lock is held here: an event that waits calls the agent of the CNO, which may set another one.
        let replaced = std::mem::take(&mut *self.inner.cnos());
        let result = call!(self.handle(), evd_modify_cno(handle));
        if result.is_ok() {
            self.inner.cnos().extend(cno.cloned());
            drop(replaced);
        } else {
            self.inner.cnos().extend(replaced);
        }
        result
    }
}

impl Ia {
    /// Creates an event dispatcher for at least `qlen` events of `streams` (dat_evd_create).
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::Resources`], [`Error::Call`].
    pub fn create_evd(&self, qlen: u32, streams: Streams) -> Result<Evd> {
        Evd::create(self, qlen, streams, None)
    }

    /// Returns the dispatcher of asynchronous errors: an event that was dropped because a queue was full, a broken endpoint, a low
    /// watermark. An endpoint on an SRQ has an `AsyncEvent::EpBroken` after each of its connections, which is no error. It is made with the
    /// adapter; a program that does not look there does not hear of them.
    ///
    /// [`Srq::set_low_watermark`](crate::Srq::set_low_watermark) has another example.
    ///
    /// ```
    /// use udapl::{Event, Ia};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// let ia = Ia::open("softrxe-lo")?;
    /// // Once in a while, or by a thread that waits there:
    /// while let Some(event) = ia.async_evd().poll()? {
    ///     if let Event::Async { number, ep, reason } = event {
    ///         eprintln!("{number:?} of endpoint {ep}, reason {reason}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn async_evd(&self) -> Evd {
        Evd::own(self, self.async_handle(), false, None)
    }

    /// Creates an event dispatcher whose events notify `cno`.
    ///
    /// Example: [`Cno`].
    ///
    /// # Errors
    /// As [`Ia::create_evd`].
    pub fn create_evd_on(&self, cno: &Cno, qlen: u32, streams: Streams) -> Result<Evd> {
        Evd::create(self, qlen, streams, Some(cno))
    }
}

impl Woken {
    /// Returns whether it is `evd`.
    #[must_use]
    pub fn is(self, evd: &Evd) -> bool {
        self.0 == evd.handle().0
    }
}
