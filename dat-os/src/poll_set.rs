//! Many descriptors that are waited for as one (epoll(7)).

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::descriptor::above_streams;

/// When a descriptor of a [`PollSet`] is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watch {
    /// Always while it is readable.
    Readable,
    /// Once when it is readable; then [`PollSet::rearm`] arms it again.
    ReadableOnce,
    /// At each change to readable, and when the peer shuts down its side.
    ReadEdges,
    /// At each change to readable or writable, and when the peer shuts down its side.
    ReadWriteEdges,
}

impl Watch {
    fn events(self) -> u32 {
        let edges = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET;
        let events = match self {
            Self::Readable => libc::EPOLLIN,
            Self::ReadableOnce => libc::EPOLLIN | libc::EPOLLONESHOT,
            Self::ReadEdges => edges,
            Self::ReadWriteEdges => edges | libc::EPOLLOUT,
        };
        events.cast_unsigned()
    }
}

/// A report about one descriptor.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Event(libc::epoll_event);

impl Event {
    /// The value of an array entry before [`PollSet::wait`] fills it.
    pub const EMPTY: Self = Self(libc::epoll_event { events: 0, u64: 0 });

    /// Returns the key that the descriptor was added with.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.0.u64
    }

    /// Returns true if the descriptor has an error, or the peer shut down or closed its side.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let ended = libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;
        self.0.events & ended.cast_unsigned() != 0
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, events) = (self.0.u64, self.0.events);
        write!(f, "Event({key}, {events:#x})")
    }
}

/// A set of descriptors. Its own descriptor is readable when one of them is ready.
#[derive(Debug)]
pub struct PollSet(OwnedFd);

impl PollSet {
    /// Creates an empty set, closed on exec.
    ///
    /// # Errors
    /// The errors of `epoll_create1`, such as `EMFILE`.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are involved.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is new and has no other owner.
        above_streams(unsafe { OwnedFd::from_raw_fd(fd) }).map(Self)
    }

    fn control(&self, operation: libc::c_int, fd: RawFd, events: u32, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: key };
        // SAFETY: `event` is valid for the call; a wrong descriptor is an error return.
        match unsafe { libc::epoll_ctl(self.as_raw_fd(), operation, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Adds `fd`; its reports have `key`. Closing `fd` removes it only if no other process has a copy of it, as a forked child
    /// may have.
    ///
    /// # Errors
    /// The errors of `epoll_ctl`, such as `ENOSPC`.
    pub fn add(&self, fd: RawFd, key: u64, watch: Watch) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, watch.events(), key)
    }

    /// Watches `fd`, which is in the set, for `watch` from now on.
    ///
    /// # Errors
    /// The errors of `epoll_ctl`.
    pub fn rearm(&self, fd: RawFd, key: u64, watch: Watch) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, watch.events(), key)
    }

    /// Removes `fd` if it is in the set. Call it before `fd` is closed.
    pub fn remove(&self, fd: RawFd) {
        // The only failure is a descriptor that is not in the set.
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    /// Waits until a descriptor is ready or `timeout` expires (`None`: no limit), and returns the reports that fit into `into`.
    /// Other reports come with the next call. A signal handler ends the wait with no report. It is not a cancellation point.
    pub fn wait<'a>(&self, into: &'a mut [Event], timeout: Option<Duration>) -> &'a [Event] {
        let limit = libc::c_int::MAX;
        let milliseconds = match timeout {
            None => -1,
            // Rounded up: a timeout that is not 0 sleeps.
            Some(time) => {
                libc::c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(limit)
            }
        };
        let room = libc::c_int::try_from(into.len()).unwrap_or(limit);
        let no_signals = std::ptr::null::<libc::sigset_t>();
        // SAFETY: `into` has room for `room` entries of the kernel's layout, and no signal mask is given.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait,
                self.as_raw_fd(),
                into.as_mut_ptr(),
                room,
                milliseconds,
                no_signals,
                8_usize,
            )
        };
        &into[..usize::try_from(count).unwrap_or(0)]
    }
}

impl AsRawFd for PollSet {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;

    fn keys(set: &PollSet, timeout: Option<Duration>) -> Vec<u64> {
        let mut events = [Event::EMPTY; 4];
        let ready = set.wait(&mut events, timeout);
        ready.iter().map(Event::key).collect()
    }

    const NOW: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn a_set_reports_each_ready_descriptor_until_it_is_removed() {
        let (set, first, second) = (
            PollSet::new().unwrap(),
            EventFd::new().unwrap(),
            EventFd::new().unwrap(),
        );
        set.add(first.as_raw_fd(), 1, Watch::Readable).unwrap();
        set.add(second.as_raw_fd(), 2, Watch::Readable).unwrap();
        assert_eq!(keys(&set, Some(Duration::from_millis(1))), []);
        std::thread::scope(|scope| {
            scope.spawn(|| first.signal());
            assert_eq!(keys(&set, None), [1]);
        });
        second.signal();
        let mut both = keys(&set, NOW);
        both.sort_unstable();
        assert_eq!(both, [1, 2]);
        set.remove(first.as_raw_fd());
        set.remove(first.as_raw_fd());
        assert_eq!(keys(&set, NOW), [2]);
        assert!(set.add(-1, 3, Watch::Readable).is_err());
    }

    #[test]
    fn a_watch_for_one_report_is_armed_again() {
        let (set, event) = (PollSet::new().unwrap(), EventFd::new().unwrap());
        let fd = event.as_raw_fd();
        set.add(fd, 7, Watch::ReadableOnce).unwrap();
        event.signal();
        assert_eq!(keys(&set, NOW), [7]);
        assert_eq!(keys(&set, NOW), []);
        set.rearm(fd, 8, Watch::ReadableOnce).unwrap();
        assert_eq!(keys(&set, NOW), [8]);
    }

    #[test]
    fn edges_are_reported_once_and_the_end_of_a_connection_is_seen() {
        let (set, (near, far)) = (
            PollSet::new().unwrap(),
            std::os::unix::net::UnixStream::pair().unwrap(),
        );
        set.add(near.as_raw_fd(), 1, Watch::ReadWriteEdges).unwrap();
        assert_eq!(keys(&set, NOW), [1], "writable");
        assert_eq!(keys(&set, NOW), []);
        drop(far);
        let mut events = [Event::EMPTY];
        let ready = set.wait(&mut events, None);
        assert!(ready[0].has_ended(), "{ready:?}");
    }
}
