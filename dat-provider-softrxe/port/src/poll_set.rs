//! A set of descriptors that a thread sleeps on together.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use dat_os::poll_set::{self, Event, Watch};
use dat_os::sleep::{Slept, on_readable};

/// Maximum number of descriptors that [`PollSet::ready`] returns at a time.
const BATCH: usize = 256;
/// Maximum number of descriptors of [`PollSet::for_some_ready`].
const SMALL_BATCH: usize = 16;

/// A set of descriptors that are watched for input. Its own descriptor is readable when one of them is.
#[derive(Debug)]
pub struct PollSet(poll_set::PollSet);

impl PollSet {
    /// Creates an empty set.
    ///
    /// # Errors
    /// The errors of `epoll_create1`, such as `EMFILE`.
    pub fn new() -> io::Result<Self> {
        poll_set::PollSet::new().map(Self)
    }

    /// Adds `fd`. Closing `fd` removes it only if no other process has a copy, as a forked child may have.
    ///
    /// # Errors
    /// The errors of `epoll_ctl`, such as `ENOSPC`.
    pub fn add(&self, fd: RawFd) -> io::Result<()> {
        self.0.add(fd, fd as u64, Watch::Readable)
    }

    /// Removes `fd` if it is in the set. Call it before `fd` is closed.
    pub fn remove(&self, fd: RawFd) {
        self.0.remove(fd);
    }

    /// Returns true if a descriptor of the set is readable or hung up.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        on_readable([self.as_raw_fd()], Some(Duration::ZERO)) == Slept::Woken
    }

    /// Returns descriptors of the set that are readable or hung up, at most `BATCH` of them; the set stays readable while there are more.
    #[must_use]
    pub fn ready(&self) -> Vec<RawFd> {
        let mut events = [Event::EMPTY; BATCH];
        let ready = self.0.wait(&mut events, Some(Duration::ZERO));
        ready.iter().map(|event| event.key() as RawFd).collect()
    }

    /// Calls `act` with a few descriptors of the set that are readable or hung up. Allocates nothing.
    pub fn for_some_ready(&self, mut act: impl FnMut(RawFd)) {
        let mut events = [Event::EMPTY; SMALL_BATCH];
        for event in self.0.wait(&mut events, Some(Duration::ZERO)) {
            act(event.key() as RawFd);
        }
    }
}

impl AsRawFd for PollSet {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use dat_os::eventfd::EventFd;

    use super::*;

    #[test]
    fn a_signal_ends_a_sleep_also_through_a_poll_set_and_stays_until_cleared() {
        let (wake, poll_set) = (EventFd::new().unwrap(), PollSet::new().unwrap());
        poll_set.add(wake.as_raw_fd()).unwrap();
        let soon = Some(Duration::from_millis(1));
        assert_eq!(
            on_readable([wake.as_raw_fd(), poll_set.as_raw_fd()], soon),
            Slept::TimedOut
        );
        std::thread::scope(|scope| {
            scope.spawn(|| wake.signal());
            assert_eq!(on_readable([poll_set.as_raw_fd()], None), Slept::Woken);
        });
        assert_eq!(on_readable([wake.as_raw_fd()], soon), Slept::Woken);
        wake.clear();
        assert_eq!(on_readable([wake.as_raw_fd()], soon), Slept::TimedOut);
    }
}
