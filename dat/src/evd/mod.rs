//! Event dispatchers.

mod late;
mod looks;
mod poll;
mod wait;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_abi::types::{DAT_HANDLE_NULL, DatEvdParam, event_number};
use dat_abi::v2_0::types::DatEvent;

use crate::cno::{Cno, Woken};
use crate::error::{Kind, Result};
use crate::event::{Event, Filled};
use crate::hot::Hot;
use crate::ia::Ia;
use crate::ids::{Entry, Recent};
use crate::sys::{Handle, call, count, free, query};
use crate::{Error, Streams, limits};
use late::Late;
use looks::Waits;

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
