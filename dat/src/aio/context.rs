//! A context: an adapter whose events are given to futures.

use std::any::Any;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::task::{Context as TaskContext, Poll};
use std::thread;
use std::time::{Duration, Instant};

use dat_os::schedule::processors;

use super::linger::{Linger, Turns};
use super::pool::Pool;
use super::state::{State, Todo};
use super::watchers::{Ticket, Watchers, wake};
use crate::error::{Error, Result};
use crate::{Evd, Event, Ia, NotifyFd, Pz, Streams};

/// Events that the dispatcher holds at first; it grows with the connections.
const EVENTS: u32 = 256;

/// An adapter, a protection zone, and the dispatcher whose events wake futures. Clones are the same context.
///
/// ```
/// use udapl::Access;
/// use udapl::aio::{Context, Options};
///
/// # fn main() -> Result<(), udapl::Error> {
/// let context = Context::open("softrxe-lo")?;
/// let listener = context.listen(None, Options::default())?;
/// println!("peers connect to {} {}", context.address(), listener.conn_qual());
/// let pool = context.pool(16, 4096)?; // buffers for its operations
/// let opened = context.pz().allocate(4096, Access::ALL)?; // memory for its peers
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Context {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// One thread at a time dequeues, so that events keep their order.
    turn: Mutex<()>,
    /// Capacity of the dispatcher, and what the connections need.
    capacity: Mutex<(u32, u32)>,
    pub(super) evd: Evd,
    errors: Evd,
    pub(super) pz: Pz,
    pub(super) ia: Ia,
    notify: NotifyFd,
    /// Events that were dequeued, to see whether a poll found some.
    dequeued: AtomicU64,
    linger: Linger,
    /// Number of times that events woke futures.
    wakes: AtomicU64,
    pub(super) turns: Turns,
    address: IpAddr,
    /// Dropped with the context: what tells the thread or the task to end.
    watcher: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// How long a future polls before it waits.
const LINGER: Duration = Duration::from_micros(10);
/// Polls for which the clock is read once: a poll takes as long as a few readings.
const POLLS_OF_A_READING: u32 = 4;

/// Whether asynchronous errors are dequeued, too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Errors {
    Always,
    /// After another event: a provider may not notify errors.
    WithEvents,
    /// The next of the other calls finds them.
    Never,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a future that gives up, among the tasks that `watchers` finds. Its waker is dropped without the lock.
    pub(super) fn forget(
        &self,
        ticket: &Ticket,
        watchers: impl FnOnce(&mut State) -> Option<&mut Watchers>,
    ) {
        if ticket.is_used() {
            let mut state = self.state();
            let left = watchers(&mut state).and_then(|watchers| watchers.leave(ticket));
            drop(state);
            drop(left);
        }
    }

    /// Dequeues all events, unless another thread does. An asynchronous error alone is left to [`drive`](Self::drive), as it makes the
    /// descriptor readable.
    pub(super) fn poll_events(&self) -> Result<()> {
        self.try_dequeue(Errors::WithEvents)
    }

    fn try_dequeue(&self, errors: Errors) -> Result<()> {
        match self.turn.try_lock() {
            Ok(turn) => self.dequeue(turn, errors),
            Err(TryLockError::Poisoned(turn)) => self.dequeue(turn.into_inner(), errors),
            Err(TryLockError::WouldBlock) => Ok(()),
        }
    }

    /// Dequeues all events, after a notification.
    pub(super) fn drive(&self) -> Result<()> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        while self.notify.take()? {}
        let watchers: Vec<_> = self.state().event_watchers.drain().collect();
        let result = self.dequeue(turn, Errors::Always);
        // Without a lock: an executor may run the task at once.
        watchers.into_iter().for_each(wake);
        result
    }

    /// Dequeues all events, and asynchronous errors where `errors` says so.
    fn dequeue(&self, turn: MutexGuard<'_, ()>, errors: Errors) -> Result<()> {
        let mut with_errors = errors == Errors::Always;
        let mut todo = Todo::default();
        let result = loop {
            let event = match self.evd.poll() {
                Ok(None) if with_errors => self.errors.poll(),
                other => other,
            };
            match event {
                Ok(None) => break Ok(()),
                Ok(Some(event)) => {
                    with_errors |= errors == Errors::WithEvents;
                    self.dequeued.fetch_add(1, Ordering::Relaxed);
                    self.state().event(event, &mut todo);
                }
                Err(error) => break Err(error),
            }
        };
        drop(turn);
        if todo.is_empty() {
            return result;
        }
        if let Some((first, others)) = todo.wake.split_first() {
            // Several futures of one task run together.
            let several = others.iter().any(|other| !other.will_wake(first));
            self.linger.woke(several);
            self.wakes.fetch_add(1, Ordering::Relaxed);
        }
        finish(todo);
        result
    }

    /// Polls for a moment, until `look` finds the event that a future waits for: most replies take less time than a way through the runtime.
    /// Ends when events woke other futures, and does not begin while several tasks are to run. Many events wake none, such as the completion of
    /// a send that is awaited later.
    pub(super) fn linger<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        if !self.linger.is_due() {
            return None;
        }
        let wakes = || self.wakes.load(Ordering::Relaxed);
        let (begin, wakes_before) = (Instant::now(), wakes());
        let mut before = self.dequeued();
        for polls in 0_u32.. {
            if polls.is_multiple_of(POLLS_OF_A_READING) && begin.elapsed() >= LINGER {
                break;
            }
            // An error is there again with the next poll.
            if self.try_dequeue(Errors::Never).is_err() {
                break;
            }
            let now = self.dequeued();
            if now == before {
                continue;
            }
            before = now;
            let found = look(&mut self.state());
            if found.is_some() {
                self.linger.ended(true);
                return found;
            }
            if wakes() != wakes_before {
                break;
            }
        }
        self.linger.ended(false);
        None
    }

    /// Returns the number of events that were dequeued so far.
    pub(super) fn dequeued(&self) -> u64 {
        self.dequeued.load(Ordering::Relaxed)
    }

    /// Makes room for the events of a connection.
    pub(super) fn reserve(&self, events: u32) -> Result<()> {
        let mut capacity = self.capacity.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = capacity.1.saturating_add(events);
        if needed > capacity.0 {
            let twice = needed.max(capacity.0.saturating_mul(2));
            capacity.0 = match self.evd.resize(twice) {
                Ok(()) => twice,
                Err(_) => self.evd.resize(needed).map(|()| needed)?,
            };
        }
        capacity.1 = needed;
        Ok(())
    }

    pub(super) fn release(&self, events: u32) {
        let mut capacity = self.capacity.lock().unwrap_or_else(PoisonError::into_inner);
        capacity.1 = capacity.1.saturating_sub(events);
    }
}

/// A wait for an asynchronous error.
struct ErrorWait<'a> {
    shared: &'a Shared,
    ticket: Ticket,
}

impl ErrorWait<'_> {
    fn poll(&mut self, context: &TaskContext<'_>) -> Poll<Event> {
        let mut state = self.shared.state();
        if let Some(event) = state.errors.pop_front() {
            return Poll::Ready(event);
        }
        let watchers = &mut state.error_watchers;
        let former = watchers.watch(&mut self.ticket, context.waker());
        drop(state);
        drop(former);
        Poll::Pending
    }
}

impl Drop for ErrorWait<'_> {
    fn drop(&mut self) {
        self.shared
            .forget(&self.ticket, |state| Some(&mut state.error_watchers));
    }
}

/// Wakes and drops without a lock.
pub(super) fn finish(todo: Todo) {
    drop(todo.drop);
    todo.wake.into_iter().for_each(wake);
}

/// Sleeps until the descriptor is readable, and drives the context; ends with it.
fn watch(shared: &Weak<Shared>, notify: &NotifyFd, end: &UnixStream) {
    loop {
        let readable = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut descriptors = [readable(notify.as_raw_fd()), readable(end.as_raw_fd())];
        // SAFETY: two descriptors, which live.
        unsafe { libc::poll(descriptors.as_mut_ptr(), 2, -1) };
        if descriptors[1].revents != 0 {
            return;
        }
        let Some(shared) = shared.upgrade() else {
            return;
        };
        if let Err(error) = shared.drive() {
            tracing::error!(%error, "events of an adapter cannot be dequeued; its futures stay pending");
            return;
        }
    }
}

impl Context {
    /// Opens an adapter, with a thread that wakes futures.
    ///
    /// # Errors
    /// As [`Ia::open`]; [`Error::System`] if no thread can be started.
    pub fn open(name: &str) -> Result<Self> {
        let failed = |source| Error::System {
            what: "start the thread that waits for events",
            source,
        };
        let (ours, of_thread) = UnixStream::pair().map_err(failed)?;
        let context = Self::open_manual(name)?;
        context.ends_with(ours);
        let (shared, notify) = (
            Arc::downgrade(&context.shared),
            context.shared.notify.clone(),
        );
        thread::Builder::new()
            .name("udapl events".into())
            .spawn(move || watch(&shared, &notify, &of_thread))
            .map_err(failed)?;
        Ok(context)
    }

    /// Opens an adapter without a thread: the program calls [`Context::drive`] whenever the descriptor ([`AsFd`]) is readable.
    ///
    /// ```
    /// use tokio::io::unix::AsyncFd;
    /// use udapl::aio::Context;
    /// # use udapl::{Event, Streams};
    /// # use std::os::fd::AsFd;
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    /// # runtime.expect("a runtime").block_on(async {
    /// let context = Context::open_manual("softrxe-lo")?;
    /// let descriptor = context.as_fd().try_clone_to_owned().expect("a descriptor");
    /// let watched = AsyncFd::new(descriptor).expect("the runtime watches it");
    /// # let mut events = context.events(8, Streams::SOFTWARE)?;
    /// # let worker = events.evd().clone();
    /// # std::thread::spawn(move || worker.post(7));
    /// let driven = context.clone();
    /// let driver = tokio::spawn(async move {
    ///     loop {
    ///         driven.drive()?;
    ///         let mut guard = watched.readable().await.expect("the runtime runs");
    ///         driven.drive()?;
    ///         guard.clear_ready();
    ///     }
    /// #   Ok::<(), udapl::Error>(())
    /// });
    /// # assert!(matches!(events.next().await?, Event::Software(7)));
    /// # driver.abort();
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Ia::open`].
    pub fn open_manual(name: &str) -> Result<Self> {
        let ia = Ia::open(name)?;
        let address = ia.attributes()?.address;
        let pz = ia.create_pz()?;
        let notify = ia.create_notify_fd()?;
        let streams = Streams::DTO | Streams::CONNECTION | Streams::CR | Streams::RMR_BIND;
        let evd = ia.create_evd_on(notify.cno(), EVENTS, streams)?;
        let errors = ia.async_evd();
        // A provider may not allow it; errors are then seen with the next event.
        let _ = errors.set_cno(Some(notify.cno()));
        let shared = Shared {
            state: Mutex::default(),
            turn: Mutex::default(),
            capacity: Mutex::new((EVENTS, 0)),
            evd,
            errors,
            pz,
            ia,
            notify,
            dequeued: AtomicU64::new(0),
            linger: Linger::new(processors()),
            wakes: AtomicU64::new(0),
            turns: Turns::default(),
            address,
            watcher: OnceLock::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Dequeues all events and wakes the futures that wait for them. Call it when the descriptor is readable.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn drive(&self) -> Result<()> {
        self.shared.drive()
    }

    /// Drops `watcher` with the context.
    pub(super) fn ends_with(&self, watcher: impl Any + Send + Sync) {
        let _ = self.shared.watcher.set(Box::new(watcher));
    }

    /// Returns the descriptor.
    pub(super) fn notify(&self) -> &NotifyFd {
        &self.shared.notify
    }

    /// Returns the adapter.
    #[must_use]
    pub fn ia(&self) -> &Ia {
        &self.shared.ia
    }

    /// Returns the protection zone, from which memory for operations is allocated.
    #[must_use]
    pub fn pz(&self) -> &Pz {
        &self.shared.pz
    }

    /// Returns the address to which peers connect.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.shared.address
    }

    /// Makes a pool of registered buffers.
    ///
    /// # Errors
    /// As [`Pool::new`].
    pub fn pool(&self, count: usize, size: usize) -> Result<Pool> {
        Pool::new(&self.shared.pz, count, size)
    }

    /// Returns the next asynchronous error of the adapter. What the adapter reports of an endpoint of
    /// [`SharedReceives`](super::SharedReceives) at the end of its connection is none.
    ///
    /// ```
    /// use udapl::aio::{Context, block_on};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # udapl::aio::block_on(async {
    /// let context = Context::open("softrxe-lo")?;
    /// let watched = context.clone();
    /// // A thread or a task that reports what no operation reports, such as events that were lost.
    /// std::thread::spawn(move || {
    ///     block_on(async {
    ///         loop {
    ///             eprintln!("the adapter reports {:?}", watched.next_error().await);
    ///         }
    ///     })
    /// });
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn next_error(&self) -> Event {
        let mut wait = ErrorWait {
            shared: &self.shared,
            ticket: Ticket::default(),
        };
        std::future::poll_fn(|context| wait.poll(context)).await
    }

    /// Returns the number of operations for which memory is kept, which grows to the largest number that were outstanding at a time.
    #[must_use]
    pub fn operation_slots(&self) -> usize {
        self.shared.state().slots()
    }
}

impl AsFd for Context {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.notify.as_fd()
    }
}
