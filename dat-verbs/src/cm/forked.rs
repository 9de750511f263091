//! Closes descriptors of connections in forked children: sockets of connections and of service points, and the event channels of
//! librdmacm.
//!
//! While a child has a copy, the kernel keeps what it is for. Peers would not notice the end of the parent, and would connect to
//! its service points without an answer. A descriptor that is open, but not tracked yet, at the moment of the fork stays with the child.

use std::os::fd::RawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// One bit for each descriptor that children close. Children keep descriptors beyond this range.
static TRACKED: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// Returns the word and the bit of a descriptor.
fn bit_of(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((TRACKED.get(fd / 64)?, 1 << (fd % 64)))
}

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
    if let Some((word, bit)) = bit_of(fd) {
        word.fetch_or(bit, Ordering::AcqRel);
    }
}

/// Ends that, before `fd` is closed.
pub(crate) fn untrack(fd: RawFd) {
    if let Some((word, bit)) = bit_of(fd) {
        word.fetch_and(!bit, Ordering::AcqRel);
    }
}

/// Runs in the child before fork(2) returns. Takes no lock and no memory.
extern "C" fn close_all() {
    for (number, word) in TRACKED.iter().enumerate() {
        let mut bits = word.swap(0, Ordering::AcqRel);
        while bits != 0 {
            let fd = number * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            // SAFETY: this is the child's copy. Its owner is an object of the parent, which is never dropped in the child: its
            // handles are invalid there.
            unsafe { libc::close(fd as RawFd) };
        }
    }
}
