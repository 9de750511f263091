//! Sleeping on descriptors, and being woken.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use dat_os::sleep::Slept;

/// A descriptor that another thread makes readable.
#[derive(Debug)]
pub struct Wake {
    fd: OwnedFd,
}

impl Wake {
    /// Not yet rung.
    ///
    /// # Errors
    /// As `eventfd`: out of descriptors.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a plain system call; the descriptor is checked and owned at once.
        unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                Err(io::Error::last_os_error())
            } else {
                Ok(Self {
                    fd: OwnedFd::from_raw_fd(fd),
                })
            }
        }
    }

    /// Makes the descriptor readable until [`Wake::clear`].
    pub fn ring(&self) {
        let one = 1u64;
        // Not libc's function, at which a thread may be cancelled: the hot calls come here, with locks.
        // SAFETY: eight readable bytes. The only failure is a full counter, which is readable too.
        let _ = unsafe {
            libc::syscall(
                libc::SYS_write,
                self.fd.as_raw_fd(),
                &raw const one,
                8_usize,
            )
        };
    }

    /// Takes back all rings so far.
    pub fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: as in `ring`; eight writable bytes. An empty counter is an error without consequence.
        let _ =
            unsafe { libc::syscall(libc::SYS_read, self.fd.as_raw_fd(), &raw mut count, 8_usize) };
    }
}

impl AsRawFd for Wake {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Waits until one of `fds` is readable (or hung up), or `timeout` is over; `None`: no limit. In a consumer's wait `pthread_cancel`
/// ends it.
#[must_use]
pub fn sleep<const N: usize>(fds: [RawFd; N], timeout: Option<Duration>) -> Slept {
    let mut polled = fds.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    dat_os::sleep::on_descriptors(&mut polled, timeout)
}

/// Processors of this machine. Not only those that this process may use: one that is bound to a single processor can still wait
/// for a peer that runs on another.
#[must_use]
pub fn processors() -> usize {
    // SAFETY: a plain library call.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1)
}

/// Descriptors that [`PollSet::ready`] names at a time.
const SOME: usize = 256;

/// Many descriptors as one that is readable when any of them is.
#[derive(Debug)]
pub struct PollSet {
    fd: OwnedFd,
}

impl PollSet {
    /// Empty.
    ///
    /// # Errors
    /// As `epoll_create1`.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a plain system call; the descriptor is checked and owned at once.
        unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                Err(io::Error::last_os_error())
            } else {
                Ok(Self {
                    fd: OwnedFd::from_raw_fd(fd),
                })
            }
        }
    }

    /// Adds `fd`. Closing it takes it out again only where nobody has a copy: not a forked child.
    ///
    /// # Errors
    /// As `epoll_ctl`.
    pub fn add(&self, fd: RawFd) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: fd as u64,
        };
        // SAFETY: `event` lives until the return.
        let done = unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event)
        };
        if done == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Takes `fd` out; before it is closed, or nobody can any more.
    pub fn remove(&self, fd: RawFd) {
        // SAFETY: no event is needed for this. Where `fd` is not in there is nothing to do.
        let _ = unsafe {
            libc::epoll_ctl(
                self.fd.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd,
                std::ptr::null_mut(),
            )
        };
    }

    /// Returns true if a descriptor in it is readable or hung up.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        sleep([self.fd.as_raw_fd()], Some(Duration::ZERO)) == Slept::Woken
    }

    /// Descriptors in it that are readable or hung up, some of them where there are very many: the rest keeps the bundle readable.
    pub fn ready(&self) -> Vec<RawFd> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; SOME];
        // SAFETY: `events` has SOME entries and lives until the return; a timeout of 0 does not wait.
        let count = unsafe {
            libc::epoll_wait(
                self.fd.as_raw_fd(),
                events.as_mut_ptr(),
                SOME as libc::c_int,
                0,
            )
        };
        let count = usize::try_from(count).unwrap_or(0);
        let named = events[..count].iter();
        named.map(|event| event.u64 as RawFd).collect()
    }
}

impl AsRawFd for PollSet {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_ends_a_sleep_also_through_a_bundle_and_stays_until_cleared() {
        let (wake, bundle) = (Wake::new().unwrap(), PollSet::new().unwrap());
        bundle.add(wake.as_raw_fd()).unwrap();
        let soon = Some(Duration::from_millis(1));
        assert_eq!(
            sleep([wake.as_raw_fd(), bundle.as_raw_fd()], soon),
            Slept::TimedOut
        );
        std::thread::scope(|scope| {
            scope.spawn(|| wake.ring());
            assert_eq!(sleep([bundle.as_raw_fd()], None), Slept::Woken);
        });
        assert_eq!(sleep([wake.as_raw_fd()], soon), Slept::Woken);
        wake.clear();
        assert_eq!(sleep([wake.as_raw_fd()], soon), Slept::TimedOut);
    }
}
