//! Signal masks of the library's own threads, and of a thread that grows a file (pthread_sigmask(3)); signals to other processes (kill(2)).

use std::io;
use std::thread::{Builder, JoinHandle};

/// Signals that an instruction of the thread itself raises. They stay unblocked: the consumer may handle them, for instance to
/// track its memory with mprotect(2).
const SYNCHRONOUS: [libc::c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
];

/// The mask of the calling thread, which is restored at the end, also by a panic.
struct Masked(libc::sigset_t);

impl Masked {
    /// Blocks the signals of `set`.
    fn block(set: &libc::sigset_t) -> Self {
        // SAFETY: the call reads `set` and fills `was`. It concerns this thread only.
        unsafe {
            let mut was = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, set, &raw mut was);
            Self(was)
        }
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: the call reads a set that `block` filled. It does not change errno.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

/// Starts a thread of the library, in which all signals are blocked but those that its own instructions raise. The kernel delivers a signal
/// for the process to any thread that does not block it, and such signals are for the consumer's threads. The thread inherits the mask,
/// so it takes no signal before `body` begins either.
///
/// # Errors
/// Those of [`Builder::spawn`].
pub fn spawn<T: Send + 'static>(
    builder: Builder,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    if cfg!(miri) {
        // Miri implements neither signals nor these functions.
        return builder.spawn(body);
    }
    // SAFETY: sigfillset initialises the set before it is used.
    let set = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        for signal in SYNCHRONOUS {
            libc::sigdelset(&raw mut set, signal);
        }
        set
    };
    let _masked = Masked::block(&set);
    builder.spawn(body)
}

/// Sends `signal` to the process `pid` (kill(2)). If there is none, or it belongs to another user, nothing happens.
pub fn send(pid: u32, signal: i32) {
    // 0 and -1 are groups of processes.
    if let Some(pid) = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0) {
        // SAFETY: the call takes numbers.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Calls `grow`, which makes a file longer. Beyond RLIMIT_FSIZE it gets `EFBIG`, and SIGXFSZ does not end the process, as it does by
/// default.
pub fn while_growing<R>(grow: impl FnOnce() -> R) -> R {
    if cfg!(miri) {
        return grow();
    }
    // SAFETY: sigemptyset initialises the sets before they are used; the calls concern this thread only.
    unsafe {
        let mut set = std::mem::zeroed();
        let mut pending = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGXFSZ);
        libc::sigpending(&raw mut pending);
        let others = libc::sigismember(&raw const pending, libc::SIGXFSZ) == 1;
        let masked = Masked::block(&set);
        let result = grow();
        let error = std::io::Error::last_os_error();
        if !others {
            let at_once = std::mem::zeroed();
            libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const at_once);
        }
        drop(masked);
        // The caller reads it.
        *libc::__errno_location() = error.raw_os_error().unwrap_or_default();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::status_of_child;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no signals")]
    fn a_file_beyond_the_limit_is_an_error_and_no_signal() {
        // SAFETY: the child changes its limit and ends.
        let status = unsafe {
            status_of_child(|| {
                let limit = libc::rlimit {
                    rlim_cur: 100,
                    rlim_max: 100,
                };
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
                let fd = libc::memfd_create(c"x".as_ptr(), 0);
                let code = while_growing(|| libc::ftruncate(fd, 4096));
                let error = *libc::__errno_location();
                let mut pending = std::mem::zeroed();
                libc::sigpending(&raw mut pending);
                let left = libc::sigismember(&raw const pending, libc::SIGXFSZ);
                (code, error, left) == (-1, libc::EFBIG, 0)
            })
        };
        assert_eq!(status, 0, "exit status of the child, or its signal");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no signals")]
    fn only_signals_of_own_instructions_stay_unblocked() {
        fn blocked() -> [libc::c_int; 4] {
            // SAFETY: the call fills the set.
            unsafe {
                let mut set = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
                [libc::SIGTERM, libc::SIGALRM, libc::SIGSEGV, libc::SIGBUS]
                    .map(|signal| libc::sigismember(&raw const set, signal))
            }
        }
        let before = blocked();
        let thread = spawn(Builder::new(), blocked).unwrap();
        assert_eq!(blocked(), before, "of the caller");
        assert_eq!(thread.join().unwrap(), [1, 1, 0, 0]);
    }
}
