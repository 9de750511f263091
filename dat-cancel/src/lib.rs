//! Thread cancellation (`pthread_cancel`): a wait of the API is a cancellation point, and no other call is one.
//!
//! glibc cancels a thread by unwinding its stack, from the system call in which it sleeps. Rust frames between that and the
//! program hold locks, own memory and catch panics: such an unwinding must not meet them. So
//!
//! * every call of the API runs with cancellation disabled ([`defer`]); the hot ones make no call of libc that is a cancellation
//!   point, which costs nothing;
//! * a wait is a [`point`]. It acts on a request that is already there before it begins;
//! * the system call in which a wait sleeps ([`sleep`]) is made with cancellation enabled, if the program has it enabled. A
//!   request ends it, and is caught there: the call returns [`Slept::Cancelled`], every frame above returns and lets go of
//!   what it holds, and the outermost one, [`point`], ends the thread as `pthread_cancel` would have: the program's cleanup
//!   handlers run, and `pthread_join` gives `PTHREAD_CANCELED`.
//!
//! The program's frames see deferred cancellation at dat_evd_wait and dat_cno_wait. Asynchronous cancellation
//! (`PTHREAD_CANCEL_ASYNCHRONOUS`) is not supported: POSIX lets such a thread call three functions, and none of them is ours.
//! With a C library other than glibc nothing is a cancellation point.

mod permit;
pub mod sleep;

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;

pub use permit::Permit;
pub use sleep::Slept;

/// What a sleep of this thread may do about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// No [`point`] is below, or the program has disabled cancellation: the request waits.
    Deferred,
    /// Catch it.
    Armed,
    /// One was caught: sleep no more.
    Caught,
}

thread_local! {
    static STAGE: Cell<Stage> = const { Cell::new(Stage::Deferred) };
}

#[cfg(target_env = "gnu")]
mod c {
    use std::ffi::{c_int, c_void};

    pub(super) const ENABLE: c_int = 0;
    pub(super) const DISABLE: c_int = 1;
    /// `PTHREAD_CANCELED`.
    pub(super) const CANCELED: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

    unsafe extern "C" {
        pub(super) fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    }

    // These two unwind.
    unsafe extern "C-unwind" {
        pub(super) fn pthread_testcancel();
        pub(super) fn pthread_exit(value: *mut c_void) -> !;
    }
}

/// Sets the state and returns the former one.
fn set_state(state: c_int) -> c_int {
    #[cfg(target_env = "gnu")]
    {
        let mut old = c::DISABLE;
        // SAFETY: `old` is valid for the write. Enabling unwinds only threads with asynchronous cancellation, which are not supported.
        unsafe { c::pthread_setcancelstate(state, &raw mut old) };
        old
    }
    #[cfg(not(target_env = "gnu"))]
    state
}

#[cfg(not(target_env = "gnu"))]
mod c {
    pub(super) const ENABLE: std::ffi::c_int = 0;
    pub(super) const DISABLE: std::ffi::c_int = 1;
}

/// Cancellation of this thread is disabled while it lives, and then as before.
#[derive(Debug)]
pub struct Deferred {
    before: c_int,
    /// The state is the thread's.
    not_send: PhantomData<*const ()>,
}

impl Deferred {
    /// Disables it.
    #[must_use]
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
    fn drop(&mut self) {
        if self.before != c::DISABLE {
            set_state(self.before);
        }
    }
}

/// Runs `body` with cancellation disabled: no call in it is a cancellation point.
pub fn defer<R>(body: impl FnOnce() -> R) -> R {
    let _deferred = Deferred::new();
    body()
}

/// Runs the body of a wait as a cancellation point. The body must not panic, and is run with cancellation disabled except in
/// [`sleep`]'s calls. Where the thread is cancelled this does not return: it unwinds the frames above.
///
/// # Safety
/// Every frame between this and the program's may be unwound by force: it has no destructors (nothing to be dropped), and its
/// function is declared `extern "C-unwind"`. `R` and `F` being `Copy` keeps this function itself to that.
#[inline(always)]
pub unsafe fn point<R: Copy, F: FnOnce() -> R + Copy>(body: F) -> R {
    // SAFETY: the frames above are the caller's promise, and this one has no destructors.
    #[cfg(target_env = "gnu")]
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
    #[cfg(target_env = "gnu")]
    if stage == Stage::Caught {
        // SAFETY: as above.
        unsafe { c::pthread_exit(c::CANCELED) }
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = stage;
    if before == c::ENABLE {
        set_state(c::ENABLE);
    }
    result
}

#[cfg(test)]
mod tests;
