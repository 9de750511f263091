//! Notification objects: one place to wait for several dispatchers.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dat_abi::types::{DAT_HANDLE_NULL, DatHandle};
use dat_abi::v2_0::types::DatCnoParam;

use crate::agents::{NO_AGENT, Registered};
use crate::error::{Code, Error, Result};
use crate::ia::Ia;
use crate::sys::{self, Handle, call, query};

/// A notification object (CNO): events of dispatchers that were created on it ([`Ia::create_evd_on`]) wake its waiter, make its
/// descriptor readable, or call its agent. Clones are the same object.
///
/// ```
/// use std::time::Duration;
/// use udapl::{Ia, Streams};
///
/// # fn main() -> Result<(), udapl::Error> {
/// let ia = Ia::open("softrxe-lo")?;
/// let cno = ia.create_cno()?;
/// let first = ia.create_evd_on(&cno, 16, Streams::SOFTWARE)?;
/// let second = ia.create_evd_on(&cno, 16, Streams::SOFTWARE)?;
/// let worker = second.clone();
/// std::thread::spawn(move || worker.post(7));
///
/// // One thread waits for both. It polls each until it is empty, and then waits again.
/// let woken = cno.wait(Duration::from_secs(60))?;
/// assert!(woken.is(&second));
/// for evd in [&first, &second] {
///     while let Some(event) = evd.poll()? {
///         println!("{event:?}");
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Cno {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    handle: Handle,
    /// The agent. Threads that set agents at the same time leave all theirs here, since only the provider knows the last one.
    agents: Mutex<Vec<Registered>>,
    ia: Ia,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let limbo = self.ia.limbo();
        limbo.free(self.handle, |handle| call!(handle, cno_free()));
    }
}

/// A CNO with a file descriptor (dat_cno_fd_create), for poll(2), epoll or an asynchronous runtime.
///
/// The descriptor is readable while a dispatcher waits to be looked at. Then call [`NotifyFd::take`] until it returns false, and
/// [`Evd::poll`](crate::Evd::poll) of each dispatcher until it returns `None`: this arms the dispatchers again. [`Cno::wait`] is not for
/// this CNO; a thread may [wait](crate::Evd::wait) for one of its dispatchers.
///
/// ```
/// use tokio::io::unix::AsyncFd;
/// use udapl::{Event, Ia, Streams};
///
/// # fn main() -> Result<(), udapl::Error> {
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
/// # runtime.expect("a runtime").block_on(async {
/// let ia = Ia::open("softrxe-lo")?;
/// let notify = ia.create_notify_fd()?;
/// let evd = ia.create_evd_on(notify.cno(), 16, Streams::SOFTWARE)?;
/// let readable = AsyncFd::new(notify.clone()).expect("the runtime watches it");
/// let worker = evd.clone();
/// std::thread::spawn(move || worker.post(7));
///
/// let event = loop {
///     if let Some(event) = evd.poll()? {
///         break event;
///     }
///     let mut guard = readable.readable().await.expect("the runtime runs");
///     while notify.take()? {}
///     guard.clear_ready();
/// };
/// assert!(matches!(event, Event::Software(7)));
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct NotifyFd {
    cno: Cno,
    fd: RawFd,
}

/// The proxy of a CNO (dat_cno_query).
///
/// ```
/// # use udapl::{Ia, Proxy};
/// # fn main() -> Result<(), udapl::Error> {
/// # let ia = Ia::open("softrxe-lo")?;
/// assert_eq!(ia.create_cno()?.proxy()?, Proxy::None);
/// assert_eq!(ia.create_notify_fd()?.cno().proxy()?, Proxy::Fd);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Proxy {
    /// None: threads wait.
    None,
    /// A function is called.
    Agent,
    /// A descriptor becomes readable.
    Fd,
}

impl Cno {
    fn own(ia: &Ia, handle: DatHandle) -> Self {
        Self {
            inner: Arc::new(Inner {
                handle: Handle(handle),
                agents: Mutex::default(),
                ia: ia.clone(),
            }),
        }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.inner.handle
    }

    /// Waits until a dispatcher has an event (dat_cno_wait) and returns which one notified. A waiter of several dispatchers polls
    /// all of them, because others may have events too.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Interrupted`], [`Error::Call`].
    pub fn wait(&self, timeout: Duration) -> Result<Woken> {
        let mut evd = DAT_HANDLE_NULL;
        let code = sys::wait(self.handle().table_address(), timeout, &mut |piece| {
            let wait = || call!(code self.handle(), cno_wait(piece, &raw mut evd));
            dat_os::cancel::defer(wait).unwrap_or_else(Code::code)
        });
        sys::done("dat_cno_wait", code)?;
        Ok(Woken(evd))
    }

    /// Returns the dispatcher that notified the CNO, without waiting (dat_cno_trigger); `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn take(&self) -> Result<Option<Woken>> {
        let mut evd = DAT_HANDLE_NULL;
        match call!(self.handle(), cno_trigger(&raw mut evd)) {
            Ok(()) => Ok(Some(Woken(evd))),
            Err(Error::Empty { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the function that the next event calls (dat_cno_modify_agent), or removes it. It is called once: at once if a dispatcher got an
    /// event since an earlier function was called, and still has one. A function that is replaced, or whose CNO is freed, is dropped; a call
    /// that has begun goes on.
    ///
    /// ```
    /// use udapl::{Ia, Streams};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let ia = Ia::open("softrxe-lo")?;
    /// let cno = ia.create_cno()?;
    /// let evd = ia.create_evd_on(&cno, 16, Streams::SOFTWARE)?;
    /// let (sender, called) = std::sync::mpsc::channel();
    /// cno.set_agent(Some(Box::new(move || {
    ///     let _ = sender.send("an event is there"); // a thread of the provider runs this: be short
    /// })))?;
    /// evd.post(7)?;
    /// assert_eq!(called.recv(), Ok("an event is there"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn set_agent(&self, function: Option<Box<dyn FnOnce() + Send>>) -> Result<()> {
        let new = function.map(Registered::new);
        // No lock is held here: the provider may call the agent before it returns, and the agent may set another one.
        let replaced = std::mem::take(&mut *self.agents());
        let proxy = new.as_ref().map_or(NO_AGENT, Registered::proxy);
        let result = call!(self.handle(), cno_modify_agent(proxy));
        if result.is_ok() {
            self.agents().extend(new);
            drop(replaced);
        } else {
            self.agents().extend(replaced);
        }
        result
    }

    fn agents(&self) -> MutexGuard<'_, Vec<Registered>> {
        let agents = &self.inner.agents;
        agents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queries the proxy (dat_cno_query).
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn proxy(&self) -> Result<Proxy> {
        // The whole structure is zero before the call.
        let param: DatCnoParam = query!(self.handle(), cno_query(0x7));
        Ok(match param.proxy_type {
            1 => Proxy::Agent,
            2 => Proxy::Fd,
            _ => Proxy::None,
        })
    }
}

/// A dispatcher that notified a CNO.
///
/// Example: [`Cno`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Woken(pub(crate) DatHandle);

impl NotifyFd {
    /// Returns the CNO, on which dispatchers are created.
    #[must_use]
    pub fn cno(&self) -> &Cno {
        &self.cno
    }

    /// Takes one notification; the descriptor is readable as long as there is one. Returns false if there was none.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn take(&self) -> Result<bool> {
        self.cno.take().map(|woken| woken.is_some())
    }
}

impl AsRawFd for NotifyFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

impl AsFd for NotifyFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the CNO owns the descriptor, and lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl Ia {
    /// Creates a CNO for threads that wait (dat_cno_create).
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn create_cno(&self) -> Result<Cno> {
        let mut handle = DAT_HANDLE_NULL;
        call!(self.handle(), cno_create(NO_AGENT, &raw mut handle))?;
        Ok(Cno::own(self, handle))
    }

    /// Creates a CNO with a file descriptor (dat_cno_fd_create).
    ///
    /// # Errors
    /// [`Error::Call`]; [`Error::Resources`] at the limit of open files.
    pub fn create_notify_fd(&self) -> Result<NotifyFd> {
        let (mut fd, mut handle) = (-1, DAT_HANDLE_NULL);
        call!(self.handle(), cno_fd_create(&raw mut fd, &raw mut handle))?;
        Ok(NotifyFd {
            cno: Cno::own(self, handle),
            fd,
        })
    }
}
