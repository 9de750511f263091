//! The epoll descriptor of the event thread, and the keys of the descriptors that every adapter has.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::sys;

/// Keys below this are reserved for the fixed descriptors and not in the adapter's table.
pub(crate) const FIRST_KEY: u64 = 16;
pub(crate) const WAKE: u64 = 0;
pub(crate) const CM: u64 = 1;
pub(crate) const ASYNC: u64 = 2;
pub(crate) const TIMER: u64 = 3;

/// An epoll descriptor.
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(crate) fn new() -> Result<Self, i32> {
        // SAFETY: no pointers are involved.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(sys::errno());
        }
        // SAFETY: `fd` was just created and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn control(&self, op: i32, fd: RawFd, events: i32, key: u64) -> Result<(), i32> {
        let mut event = libc::epoll_event {
            events: events.cast_unsigned(),
            u64: key,
        };
        // SAFETY: `event` is valid for the call.
        match unsafe { libc::epoll_ctl(self.0.as_raw_fd(), op, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(sys::errno()),
        }
    }

    /// Watches `fd` for input until [`Epoll::remove`].
    pub(crate) fn add(&self, fd: RawFd, key: u64) -> Result<(), i32> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, key)
    }

    /// Reports each change of `fd` once (edge-triggered) until it is closed: readable, and with `write` also writable.
    pub(crate) fn add_edge(&self, fd: RawFd, key: u64, write: bool) -> Result<(), i32> {
        let mut events = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET;
        if write {
            events |= libc::EPOLLOUT;
        }
        self.control(libc::EPOLL_CTL_ADD, fd, events, key)
    }

    /// Registers the adapter's timer.
    pub(crate) fn add_timer(&self, fd: RawFd) -> Result<(), i32> {
        self.add(fd, TIMER)
    }

    /// Watches `fd` for one event; `known` is true if it was watched before.
    pub(crate) fn once(&self, fd: RawFd, key: u64, known: bool) -> Result<(), i32> {
        let op = if known {
            libc::EPOLL_CTL_MOD
        } else {
            libc::EPOLL_CTL_ADD
        };
        self.control(op, fd, libc::EPOLLIN | libc::EPOLLONESHOT, key)
    }

    /// Stops watching `fd`.
    pub(crate) fn remove(&self, fd: RawFd) {
        // It fails if the descriptor was not watched, which is the wanted state.
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0).ok();
    }

    /// Registers the three descriptors that every adapter has.
    pub(crate) fn add_fixed(&self, wake: RawFd, cm: RawFd, device: RawFd) -> Result<(), i32> {
        self.add(wake, WAKE)?;
        self.add(cm, CM)?;
        self.add(device, ASYNC)
    }

    /// Waits for events and returns them.
    pub(crate) fn wait<'a>(&self, into: &'a mut [libc::epoll_event]) -> &'a [libc::epoll_event] {
        // SAFETY: `into` is valid for its length.
        let n = unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), into.as_mut_ptr(), into.len() as i32, -1)
        };
        &into[..usize::try_from(n).unwrap_or(0)]
    }
}
