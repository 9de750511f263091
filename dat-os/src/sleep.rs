//! The system calls in which a thread sleeps: on a futex or on descriptors.
//!
//! A signal handler ends each of them. Inside a [`point`](crate::cancel::point) `pthread_cancel` ends them too; elsewhere a
//! cancellation request stays pending.

use std::ffi::{c_long, c_short};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use crate::cancel::{STAGE, Stage};

/// How a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slept {
    /// The awaited event may have happened.
    Woken,
    /// The timeout has expired.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
    /// The thread is cancelled. The wait must return as soon as it can and consume nothing; every later sleep of the same wait
    /// returns this value too.
    Cancelled,
}

/// Maximum length of one futex system call. The call always gets a timeout, because the kernel restarts a futex wait without
/// one after a signal handler with `SA_RESTART`, and the signal would not end the sleep.
const LONGEST: Duration = Duration::from_secs(3600);

/// Sleeps while `word` is `value`, until [`wake`] is called for `word` or `timeout` expires; `None` means no limit. May return
/// early. Threads of other processes cannot wake it.
#[must_use]
pub fn on_word(word: &AtomicU32, value: u32, timeout: Option<Duration>) -> Slept {
    let time = timespec(timeout.unwrap_or(LONGEST).min(LONGEST));
    let slept = call(&Call {
        word: word.as_ptr(),
        value,
        set: ptr::null_mut(),
        count: 0,
        time: &raw const time,
    });
    let is = |errno| slept == Some(-c_long::from(errno));
    match slept {
        None => Slept::Cancelled,
        Some(_) if is(libc::EINTR) => Slept::Interrupted,
        Some(_) if is(libc::ETIMEDOUT) && timeout.is_some_and(|t| t <= LONGEST) => Slept::TimedOut,
        Some(_) => Slept::Woken,
    }
}

/// Wakes up to `sleepers` threads that sleep on `word`.
pub fn wake(word: &AtomicU32, sleepers: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is valid for the call. `syscall` is not a cancellation point.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, sleepers) };
}

/// Sleeps until a descriptor of `set` is ready or `timeout` expires (`ppoll`); `None` means no limit. With a timeout of 0 it does
/// not sleep, and is not a cancellation point.
#[must_use]
pub fn on_descriptors(set: &mut [libc::pollfd], timeout: Option<Duration>) -> Slept {
    // The kernel writes the remaining time there.
    let mut time = timeout.map(timespec);
    let request = Call {
        word: ptr::null_mut(),
        value: 0,
        set: set.as_mut_ptr(),
        count: set.len() as libc::nfds_t,
        time: time.as_mut().map_or(ptr::null(), |t| ptr::from_mut(t)),
    };
    let slept = if timeout == Some(Duration::ZERO) {
        Some(call_direct(&request))
    } else {
        call(&request)
    };
    match slept {
        None => Slept::Cancelled,
        Some(0) => Slept::TimedOut,
        Some(1..) => Slept::Woken,
        Some(_) => Slept::Interrupted,
    }
}

/// Sleeps until one of `fds` is readable or hung up, or `timeout` expires; `None` means no limit.
#[must_use]
pub fn on_readable<const N: usize>(fds: [RawFd; N], timeout: Option<Duration>) -> Slept {
    let mut set = fds.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    on_descriptors(&mut set, timeout)
}

/// Waits until `fd` has one of the poll(2) `events`, an error or a hang-up; returns false if `timeout` expires first. It is never
/// a cancellation point, so the caller may hold locks.
#[must_use]
pub fn without_cancellation(fd: RawFd, events: c_short, timeout: Duration) -> bool {
    let mut entry = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    // The kernel writes the remaining time there.
    let mut time = timespec(timeout);
    let ready = call_direct(&Call {
        word: ptr::null_mut(),
        value: 0,
        set: &raw mut entry,
        count: 1,
        time: &raw mut time,
    });
    ready > 0
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Mirrors `struct dat_os_call` of sleep.c.
#[repr(C)]
struct Call {
    word: *mut u32,
    value: u32,
    set: *mut libc::pollfd,
    count: libc::nfds_t,
    time: *const libc::timespec,
}

/// Makes the system call and returns its result or a negative errno; returns `None` if the thread is cancelled.
fn call(call: &Call) -> Option<c_long> {
    match STAGE.get() {
        Stage::Deferred => Some(call_direct(call)),
        Stage::Armed => {
            let result = call_cancellable(call);
            if result.is_none() {
                STAGE.set(Stage::Caught);
            }
            result
        }
        Stage::Caught => None,
    }
}

/// Makes the system call through `syscall`, which is not a cancellation point.
fn call_direct(call: &Call) -> c_long {
    // SAFETY: the callers in this file fill in pointers that outlive the call.
    let result = unsafe {
        if call.word.is_null() {
            let mask = ptr::null::<libc::sigset_t>();
            libc::syscall(libc::SYS_ppoll, call.set, call.count, call.time, mask, 0)
        } else {
            let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            libc::syscall(libc::SYS_futex, call.word, operation, call.value, call.time)
        }
    };
    if result < 0 {
        let error = std::io::Error::last_os_error();
        -c_long::from(error.raw_os_error().unwrap_or(0))
    } else {
        result
    }
}

#[cfg(all(target_env = "gnu", not(miri)))]
fn call_cancellable(call: &Call) -> Option<c_long> {
    unsafe extern "C" {
        /// Makes the call; defined in sleep.c. glibc's forced unwinding is caught in this C function.
        fn dat_os_sleep(call: *const Call, result: *mut c_long) -> std::ffi::c_int;
    }
    let mut result = 0;
    // SAFETY: as in `call_direct`; `result` is valid for the write.
    let caught = unsafe { dat_os_sleep(call, &raw mut result) };
    (caught == 0).then_some(result)
}

#[cfg(not(all(target_env = "gnu", not(miri))))]
fn call_cancellable(call: &Call) -> Option<c_long> {
    Some(call_direct(call))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::eventfd::EventFd;

    #[test]
    fn a_descriptor_that_becomes_readable_ends_each_kind_of_sleep() {
        let event = EventFd::new().unwrap();
        let fd = event.as_raw_fd();
        let short = Duration::from_millis(1);
        assert_eq!(on_readable([fd], Some(short)), Slept::TimedOut);
        assert!(!without_cancellation(fd, libc::POLLIN, short));
        std::thread::scope(|scope| {
            scope.spawn(|| event.signal());
            assert_eq!(on_readable([-1, fd], None), Slept::Woken);
        });
        assert!(without_cancellation(
            fd,
            libc::POLLIN,
            Duration::from_secs(20)
        ));
    }

    #[test]
    fn a_futex_sleep_ends_when_woken_changed_or_timed_out() {
        let word = AtomicU32::new(1);
        let short = Some(Duration::from_millis(1));
        assert_eq!(on_word(&word, 0, None), Slept::Woken);
        assert_eq!(on_word(&word, 1, short), Slept::TimedOut);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                word.store(0, std::sync::atomic::Ordering::Release);
                wake(&word, i32::MAX);
            });
            while word.load(std::sync::atomic::Ordering::Acquire) == 1 {
                let _ = on_word(&word, 1, None);
            }
        });
    }
}
