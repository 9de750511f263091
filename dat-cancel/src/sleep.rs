//! The system calls in which a wait sleeps. Each is ended by a signal's handler, and inside a [`point`](crate::point) by
//! `pthread_cancel`; elsewhere a request for cancellation waits.

use std::ffi::c_long;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use crate::{STAGE, Stage};

/// How a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slept {
    /// What was waited for may have happened.
    Woken,
    /// The time is over.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
    /// The thread is cancelled: the wait returns as soon as it can, and takes nothing. Every later sleep of the same wait ends so too.
    Cancelled,
}

/// In one piece. Not for ever: without a time, a signal whose handler restarts calls (`SA_RESTART`) would not end it.
const LONGEST: Duration = Duration::from_secs(3600);

/// Sleeps while `word` is `value`, until [`wake`] or for `timeout` at most; `None`: no limit. May return early. Threads of other
/// processes do not wake it.
#[must_use]
pub fn on_word(word: &AtomicU32, value: u32, timeout: Option<Duration>) -> Slept {
    let time = span(timeout.unwrap_or(LONGEST).min(LONGEST));
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

/// Wakes `sleepers` of those who sleep on `word`.
pub fn wake(word: &AtomicU32, sleepers: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is valid for the call. `syscall` is no cancellation point.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, sleepers) };
}

/// Sleeps until a descriptor of `set` is ready, for `timeout` at most (`ppoll`); `None`: no limit. With a time of 0 it does not
/// sleep, and is no cancellation point.
#[must_use]
pub fn on_descriptors(set: &mut [libc::pollfd], timeout: Option<Duration>) -> Slept {
    // The kernel leaves there how much of it is left.
    let mut time = timeout.map(span);
    let how = Call {
        word: ptr::null_mut(),
        value: 0,
        set: set.as_mut_ptr(),
        count: set.len() as libc::nfds_t,
        time: time.as_mut().map_or(ptr::null(), |t| ptr::from_mut(t)),
    };
    let slept = if timeout == Some(Duration::ZERO) {
        Some(plain(&how))
    } else {
        call(&how)
    };
    match slept {
        None => Slept::Cancelled,
        Some(0) => Slept::TimedOut,
        Some(1..) => Slept::Woken,
        Some(_) => Slept::Interrupted,
    }
}

fn span(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// `struct dat_cancel_call` of sleep.c.
#[repr(C)]
struct Call {
    word: *mut u32,
    value: u32,
    set: *mut libc::pollfd,
    count: libc::nfds_t,
    time: *const libc::timespec,
}

/// A system call's result, or a negative errno; `None`: the thread is cancelled.
fn call(call: &Call) -> Option<c_long> {
    match STAGE.get() {
        Stage::Deferred => Some(plain(call)),
        Stage::Armed => {
            let result = catching(call);
            if result.is_none() {
                STAGE.set(Stage::Caught);
            }
            result
        }
        Stage::Caught => None,
    }
}

/// As `syscall` makes it: no cancellation point.
fn plain(call: &Call) -> c_long {
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

#[cfg(target_env = "gnu")]
fn catching(call: &Call) -> Option<c_long> {
    unsafe extern "C" {
        /// See sleep.c. An unwinding starts and ends in it.
        fn dat_cancel_sleep(call: *const Call, result: *mut c_long) -> std::ffi::c_int;
    }
    let mut result = 0;
    // SAFETY: as in `plain`, and there is room for the result.
    let caught = unsafe { dat_cancel_sleep(call, &raw mut result) };
    (caught == 0).then_some(result)
}

#[cfg(not(target_env = "gnu"))]
fn catching(call: &Call) -> Option<c_long> {
    Some(plain(call))
}
