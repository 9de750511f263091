//! Whether a wait may begin with a dequeue.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys;

/// Whether a wait may begin with a dequeue. That costs less than dat_evd_wait, a cancellation point, around which pthread_cancel has to
/// be deferred. But while a thread waits, or waits are forbidden, a wait is an error and must take no event.
#[derive(Debug)]
pub(super) struct Waits {
    /// The asynchronous dispatcher may have several values of this crate, which do not know of each other.
    pub(super) is_only: bool,
    /// A thread is in dat_evd_wait.
    is_waited: AtomicBool,
    /// Waits are forbidden, or this is not the only value.
    pub(super) is_forbidden: AtomicBool,
}

impl Waits {
    pub(super) const fn new(is_only: bool) -> Self {
        Self {
            is_only,
            is_waited: AtomicBool::new(false),
            is_forbidden: AtomicBool::new(!is_only),
        }
    }

    #[inline]
    pub(super) fn may_look(&self) -> bool {
        !self.is_waited.load(Ordering::Relaxed) && !self.is_forbidden.load(Ordering::Relaxed)
    }

    /// Records that a thread waits. Whether two threads see each other that begin at the same time does not matter: either may be the
    /// first, and have its event before the other one waits.
    #[inline]
    pub(super) fn begin(&self) {
        self.is_waited.store(true, Ordering::Relaxed);
    }

    /// Records that a wait returned `code`. One that was refused leaves the thread that waits.
    #[inline]
    pub(super) fn end(&self, code: u32) {
        if !sys::says_state(code) {
            self.is_waited.store(false, Ordering::Relaxed);
        }
    }
}
