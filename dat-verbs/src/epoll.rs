//! The descriptors that the event thread waits for, and the keys of those that every adapter has.

use std::io;
use std::os::fd::RawFd;

use dat_os::poll_set::{Event, PollSet, Watch};

/// Keys below this are reserved for the fixed descriptors and not in the adapter's table.
pub(crate) const FIRST_KEY: u64 = 16;
pub(crate) const WAKE: u64 = 0;
pub(crate) const CM: u64 = 1;
pub(crate) const ASYNC: u64 = 2;
pub(crate) const TIMER: u64 = 3;

/// The set of descriptors that the event thread waits for. Errors are errno values.
pub(crate) struct Epoll(PollSet);

/// Returns the errno of a failed system call.
fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

impl Epoll {
    pub(crate) fn new() -> Result<Self, i32> {
        PollSet::new().map(Self).map_err(|e| errno(&e))
    }

    /// Watches `fd` for input until [`Epoll::remove`].
    pub(crate) fn add(&self, fd: RawFd, key: u64) -> Result<(), i32> {
        let added = self.0.add(fd, key, Watch::Readable);
        added.map_err(|e| errno(&e))
    }

    /// Reports each change of `fd` once (edge-triggered) until it is closed: readable, and with `write` also writable.
    pub(crate) fn add_edge(&self, fd: RawFd, key: u64, write: bool) -> Result<(), i32> {
        let watch = if write {
            Watch::ReadWriteEdges
        } else {
            Watch::ReadEdges
        };
        self.0.add(fd, key, watch).map_err(|e| errno(&e))
    }

    /// Registers the adapter's timer.
    pub(crate) fn add_timer(&self, fd: RawFd) -> Result<(), i32> {
        self.add(fd, TIMER)
    }

    /// Watches `fd` for one event; `known` is true if it was watched before.
    pub(crate) fn once(&self, fd: RawFd, key: u64, known: bool) -> Result<(), i32> {
        let armed = if known {
            self.0.rearm(fd, key, Watch::ReadableOnce)
        } else {
            self.0.add(fd, key, Watch::ReadableOnce)
        };
        armed.map_err(|e| errno(&e))
    }

    /// Stops watching `fd`.
    pub(crate) fn remove(&self, fd: RawFd) {
        self.0.remove(fd);
    }

    /// Registers the three descriptors that every adapter has.
    pub(crate) fn add_fixed(&self, wake: RawFd, cm: RawFd, device: RawFd) -> Result<(), i32> {
        self.add(wake, WAKE)?;
        self.add(cm, CM)?;
        self.add(device, ASYNC)
    }

    /// Waits for events and returns them.
    pub(crate) fn wait<'a>(&self, into: &'a mut [Event]) -> &'a [Event] {
        self.0.wait(into, None)
    }
}
