//! A descriptor that one thread makes readable to wake another one (eventfd(2)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::descriptor::above_streams;

/// A non-blocking event descriptor, closed on exec.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Creates a descriptor that is not readable.
    ///
    /// # Errors
    /// The errors of `eventfd`, such as `EMFILE`.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are involved.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is new and has no other owner.
        above_streams(unsafe { OwnedFd::from_raw_fd(fd) }).map(Self)
    }

    /// Returns whether `fd` is an event descriptor. A descriptor of another kind that came from a peer may be readable for ever, or keep
    /// a thread that writes to it.
    #[must_use]
    pub fn is_one(fd: BorrowedFd<'_>) -> bool {
        // SAFETY: plain data, for which zeros are valid.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `status` has room for the result.
        let known = unsafe { libc::fstat(fd.as_raw_fd(), &raw mut status) } == 0;
        // Event descriptors have no type of file, as epoll sets, timers and others. Of these, the others refuse such a write.
        if !known || status.st_mode & libc::S_IFMT != 0 {
            return false;
        }
        let nothing = 0_u64;
        // SAFETY: `nothing` has eight readable bytes. Adding 0 changes no counter and never waits.
        let written =
            unsafe { libc::syscall(libc::SYS_write, fd.as_raw_fd(), &raw const nothing, 8_usize) };
        written == 8
    }

    /// Returns whether [`EventFd::clear`] makes this one unreadable. One of `EFD_SEMAPHORE` that came from a peer counts down by 1 only, and with a
    /// high count keeps a thread from sleeping for ever. Its maker cannot change that later. A signal that was there stays.
    #[must_use]
    pub fn is_cleared_at_once(&self) -> bool {
        let two = 2_u64;
        // SAFETY: `two` has eight readable bytes. If the counter is full, the read shows what is to be known as well.
        let _ =
            unsafe { libc::syscall(libc::SYS_write, self.as_raw_fd(), &raw const two, 8_usize) };
        let mut count = 0_u64;
        // SAFETY: `count` has eight writable bytes.
        let read =
            unsafe { libc::syscall(libc::SYS_read, self.as_raw_fd(), &raw mut count, 8_usize) };
        if count > two {
            self.signal();
        }
        read == 8 && count >= two
    }

    /// Makes the descriptor readable until [`EventFd::clear`]. It is not a cancellation point: calls on the fast path use it
    /// while they hold locks.
    pub fn signal(&self) {
        let one = 1_u64;
        // SAFETY: `one` has eight readable bytes. The only failure is a full counter, and then the descriptor is readable.
        let _ =
            unsafe { libc::syscall(libc::SYS_write, self.as_raw_fd(), &raw const one, 8_usize) };
    }

    /// Makes the descriptor unreadable. It is not a cancellation point.
    pub fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: `count` has eight writable bytes. The only failure is a counter of 0: the descriptor was not readable.
        let _ = unsafe { libc::syscall(libc::SYS_read, self.as_raw_fd(), &raw mut count, 8_usize) };
    }
}

impl From<OwnedFd> for EventFd {
    /// Takes a descriptor that another process has created. Each process that has it can change what its calls do.
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<EventFd> for OwnedFd {
    fn from(event: EventFd) -> Self {
        event.0
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sleep::{Slept, on_readable};

    #[test]
    fn descriptors_of_other_kinds_are_no_event_descriptors() {
        let event = EventFd::new().unwrap();
        assert!(EventFd::is_one(event.as_fd()));
        event.signal();
        assert!(EventFd::is_one(event.as_fd()), "also one that is readable");
        let readable = || on_readable([event.as_raw_fd()], Some(Duration::ZERO)) == Slept::Woken;
        event.clear();
        assert!(EventFd::is_one(event.as_fd()) && !readable());
        let (reader, writer) = io::pipe().unwrap();
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let null = std::fs::File::options()
            .write(true)
            .open("/dev/null")
            .unwrap();
        let folder = std::fs::File::open("/").unwrap();
        let set = crate::poll_set::PollSet::new().unwrap();
        // SAFETY: no pointers are involved.
        let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
        // SAFETY: the descriptor is new and has no other owner.
        let timer = unsafe { OwnedFd::from_raw_fd(timer) };
        let others: [BorrowedFd<'_>; 7] = [
            reader.as_fd(),
            writer.as_fd(),
            one.as_fd(),
            other.as_fd(),
            null.as_fd(),
            folder.as_fd(),
            timer.as_fd(),
        ];
        for fd in others {
            assert!(!EventFd::is_one(fd), "{fd:?}");
        }
        // SAFETY: the set is open.
        assert!(!EventFd::is_one(unsafe {
            BorrowedFd::borrow_raw(set.as_raw_fd())
        }));
    }

    #[test]
    fn a_descriptor_that_counts_down_is_recognized() {
        let event = EventFd::new().unwrap();
        let readable = || on_readable([event.as_raw_fd()], Some(Duration::ZERO)) == Slept::Woken;
        assert!(event.is_cleared_at_once() && !readable());
        event.signal();
        assert!(event.is_cleared_at_once() && readable(), "the signal stays");
        for count in [0, 1, 1000, u32::MAX] {
            let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK | libc::EFD_SEMAPHORE;
            // SAFETY: no pointers are involved; the descriptor is new and has no other owner.
            let fd = unsafe { OwnedFd::from_raw_fd(libc::eventfd(count, flags)) };
            assert!(EventFd::is_one(fd.as_fd()) && !EventFd::from(fd).is_cleared_at_once());
        }
    }

    #[test]
    fn a_signal_stays_until_it_is_cleared() {
        let event = EventFd::new().unwrap();
        let readable = || on_readable([event.as_raw_fd()], Some(Duration::ZERO)) == Slept::Woken;
        assert!(!readable());
        event.signal();
        event.signal();
        assert!(readable() && readable());
        event.clear();
        assert!(!readable());
        event.clear();
        assert!(!readable());
    }
}
