//! Closes descriptors of connections in forked children: sockets of connections and of service points, and the event channels of
//! librdmacm.
//!
//! While a child has a copy, the kernel keeps what it is for. Peers would not notice the end of the parent, and would connect to
//! its service points without an answer. A descriptor that is open, but not tracked yet, at the moment of the fork stays with the child.

use std::os::fd::RawFd;
use std::sync::Once;

use dat_os::fork::Tracked;

static TRACKED: Tracked = Tracked::new();

/// Has children close `fd`, until [`untrack`].
pub(crate) fn track(fd: RawFd) {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the function stays mapped, because providers are not unmapped; it allocates nothing and takes no lock.
        let watched = unsafe { dat_os::fork::at_fork(None, None, Some(close_all)) };
        if let Err(error) = watched {
            tracing::warn!(%error, "pthread_atfork failed: forked children keep sockets open, which hides the end of this process from its peers");
        }
    });
    TRACKED.insert(fd);
}

/// Lets children keep `fd`, which is about to be closed.
pub(crate) fn untrack(fd: RawFd) {
    TRACKED.remove(fd);
}

/// Runs in the child before fork(2) returns. Takes no lock and no memory.
extern "C" fn close_all() {
    // SAFETY: this is a child in fork. The descriptors' owners are objects of the parent, which are never dropped in the child: its handles
    // are invalid there.
    unsafe { TRACKED.close_all() };
}
