//! Thread cancellation (`pthread_cancel`): a wait of the API is a cancellation point, and no other call is one.
//!
//! glibc cancels a thread by unwinding its stack from the system call in which it sleeps. The Rust frames between that call and
//! the program hold locks, own memory and catch panics, so such an unwinding must not reach them. Therefore:
//!
//! * Every call of the API runs with cancellation disabled ([`defer`]). Calls on the fast path call no libc function that is a
//!   cancellation point, so they need no `defer`.
//! * A wait is a [`point`]. It acts on a pending request before it begins.
//! * The system call in which a wait sleeps ([`crate::sleep`]) runs with cancellation enabled, if the program has it enabled. A
//!   request ends the system call and is caught there. The call returns [`Slept::Cancelled`](crate::sleep::Slept::Cancelled), and
//!   each frame above returns and releases what it holds. Then [`point`] ends the thread as `pthread_cancel` would have done:
//!   the program's cleanup handlers run, and `pthread_join` returns `PTHREAD_CANCELED`.
//!
//! The program observes deferred cancellation in dat_evd_wait and dat_cno_wait. Asynchronous cancellation
//! (`PTHREAD_CANCEL_ASYNCHRONOUS`) is not supported: POSIX allows such a thread to call three functions, and none of them is in
//! this API. With a C library other than glibc no call is a cancellation point.

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;

/// How the sleeps of a thread treat a cancellation request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The request stays pending: the thread is in no [`point`], or the program has disabled cancellation.
    Deferred,
    /// The next sleep catches the request.
    Armed,
    /// A sleep has caught a request; later sleeps return at once.
    Caught,
}

thread_local! {
    pub(crate) static STAGE: Cell<Stage> = const { Cell::new(Stage::Deferred) };
}

#[cfg(all(target_env = "gnu", not(miri)))]
mod c {
    use std::ffi::{c_int, c_void};

    pub(super) const ENABLE: c_int = 0;
    pub(super) const DISABLE: c_int = 1;
    /// `PTHREAD_CANCELED`.
    pub(super) const CANCELED: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

    unsafe extern "C" {
        pub(super) fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    }

    // Both functions may unwind.
    unsafe extern "C-unwind" {
        pub(super) fn pthread_testcancel();
        pub(super) fn pthread_exit(value: *mut c_void) -> !;
    }
}

/// Sets the thread's cancellation state and returns the previous state.
#[inline]
fn set_state(state: c_int) -> c_int {
    #[cfg(all(target_env = "gnu", not(miri)))]
    {
        let mut old = c::DISABLE;
        // SAFETY: `old` is valid for the write. Enabling unwinds only threads with asynchronous cancellation, which are not supported.
        unsafe { c::pthread_setcancelstate(state, &raw mut old) };
        old
    }
    #[cfg(not(all(target_env = "gnu", not(miri))))]
    state
}

#[cfg(not(all(target_env = "gnu", not(miri))))]
mod c {
    pub(super) const ENABLE: std::ffi::c_int = 0;
    pub(super) const DISABLE: std::ffi::c_int = 1;
}

/// A guard that disables cancellation of the calling thread; dropping it restores the previous state.
#[derive(Debug)]
pub struct Deferred {
    before: c_int,
    /// The cancellation state belongs to the thread, so the guard must not move to another one.
    not_send: PhantomData<*const ()>,
}

impl Deferred {
    /// Disables cancellation of the calling thread.
    #[must_use]
    #[inline]
    pub fn new() -> Self {
        Self {
            before: set_state(c::DISABLE),
            not_send: PhantomData,
        }
    }
}

impl Default for Deferred {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Deferred {
    #[inline]
    fn drop(&mut self) {
        if self.before != c::DISABLE {
            set_state(self.before);
        }
    }
}

/// Runs `body` with cancellation disabled, so that no call in it is a cancellation point.
#[inline(always)]
pub fn defer<R>(body: impl FnOnce() -> R) -> R {
    let _deferred = Deferred::new();
    body()
}

/// Runs the body of a wait as a cancellation point. The body must not panic. It runs with cancellation disabled, except for the
/// system calls of [`crate::sleep`]. If the thread is cancelled, this function does not return: it unwinds the frames above it.
///
/// # Safety
/// Every frame between this function and the program's code may be unwound by force: it has no value with a destructor, and its
/// function is declared `extern "C-unwind"`. The bounds `R: Copy` and `F: Copy` make this function itself obey the rule.
#[inline(always)]
pub unsafe fn point<R: Copy, F: FnOnce() -> R + Copy>(body: F) -> R {
    // SAFETY: the frames above are the caller's promise, and this one has no destructors.
    #[cfg(all(target_env = "gnu", not(miri)))]
    unsafe {
        c::pthread_testcancel();
    }
    let before = set_state(c::DISABLE);
    let stage = if before == c::ENABLE {
        Stage::Armed
    } else {
        Stage::Deferred
    };
    let outer = STAGE.replace(stage);
    let result = body();
    let stage = STAGE.replace(outer);
    #[cfg(all(target_env = "gnu", not(miri)))]
    if stage == Stage::Caught {
        // SAFETY: as for pthread_testcancel above.
        unsafe { c::pthread_exit(c::CANCELED) }
    }
    #[cfg(not(all(target_env = "gnu", not(miri))))]
    let _ = stage;
    if before == c::ENABLE {
        set_state(c::ENABLE);
    }
    result
}

#[cfg(test)]
mod tests;
