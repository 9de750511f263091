//! The descriptors that a thread sleeps on while it watches an adapter. They are used with and without the hub's lock.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use dat_arena::Mutex;
use dat_os::eventfd::EventFd;
use dat_os::sleep::{Slept, on_readable};
use softrxe_port::listener::Listener;
use softrxe_port::poll_set::PollSet;
use softrxe_port::socket::Socket;

/// Descriptors of an adapter.
#[derive(Debug)]
pub(crate) struct Descriptors {
    /// The socket that this engine sends from: UDP port 4791 or one of its own. Peers that are engines of this crate send to it.
    socket: Arc<Socket>,
    /// All other descriptors on which something arrives. The socket is not among them: an epoll set would cost time for each
    /// datagram, even while no thread sleeps.
    others: PollSet,
    /// Connections to other processes of the host that depend on this one, or on which it depends. They are part of `others`, except
    /// during back-off.
    liveness: PollSet,
    /// Listeners whose descriptors are part of `liveness`.
    listeners: Mutex<Vec<Arc<Listener>>>,
}

impl Descriptors {
    /// Collects the descriptors of `socket`, and of nothing else yet.
    ///
    /// # Errors
    /// As `epoll_create1` and `epoll_ctl`.
    pub(crate) fn new(socket: Arc<Socket>) -> io::Result<Self> {
        let (others, liveness) = (PollSet::new()?, PollSet::new()?);
        others.add(liveness.as_raw_fd())?;
        Ok(Self {
            socket,
            others,
            liveness,
            listeners: Mutex::default(),
        })
    }

    /// Adds a descriptor that packets arrive on.
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub(crate) fn add(&self, fd: RawFd) -> io::Result<()> {
        self.others.add(fd)
    }

    /// Removes a descriptor that [`add`](Self::add) added.
    pub(crate) fn remove(&self, fd: RawFd) {
        self.others.remove(fd);
    }

    /// Stops watching the liveness of other processes.
    pub(crate) fn suspend_liveness(&self) {
        self.others.remove(self.liveness.as_raw_fd());
    }

    /// Undoes [`suspend_liveness`](Self::suspend_liveness).
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub(crate) fn resume_liveness(&self) -> io::Result<()> {
        self.others.add(self.liveness.as_raw_fd())
    }

    /// Returns the set of liveness connections.
    pub(crate) const fn liveness(&self) -> &PollSet {
        &self.liveness
    }

    /// Adds a listener, whose descriptor the caller adds to [`liveness`](Self::liveness).
    pub(crate) fn add_listener(&self, listener: &Arc<Listener>) {
        self.listeners.lock().push(Arc::clone(listener));
    }

    /// Accepts connections, and closes those of other users, without the hub's lock: any user can connect. Returns true if a
    /// process connected.
    pub(crate) fn accept(&self) -> bool {
        let listeners = self.listeners.lock().clone();
        let accept = |came, listener: &Arc<Listener>| listener.accept() || came;
        listeners.iter().fold(false, accept)
    }

    /// Returns whether a process of the host has connected or ended.
    pub(crate) fn liveness_changed(&self) -> bool {
        self.liveness.is_readable()
    }

    /// Sleeps until something arrives or `wake` is rung.
    pub(crate) fn sleep_or_wake(&self, wake: &EventFd, limit: Option<Duration>) -> Slept {
        let fds = [
            self.socket.as_raw_fd(),
            self.others.as_raw_fd(),
            wake.as_raw_fd(),
        ];
        on_readable(fds, limit)
    }

    /// Sleeps until something arrives, for `limit` at most, beside the thread that watches.
    pub(crate) fn sleep(&self, limit: Duration) {
        if self.socket.begin_pause() {
            let fds = [self.socket.as_raw_fd(), self.others.as_raw_fd()];
            let _ = on_readable(fds, Some(limit));
        }
        self.socket.end_pause();
    }
}
