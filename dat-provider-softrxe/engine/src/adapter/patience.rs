//! How a thread waits for the lock of an adapter that other threads use as well.
//!
//! The thread that gets the lock fetches the state behind it into its own caches, which takes as long as several posts. So threads that post and poll
//! in loops should not take turns with each call. A thread that finds the lock held looks again after longer and longer pauses, and the
//! holder makes several calls meanwhile. Then the thread sleeps until the lock is given to it.

use parking_lot::{Mutex, MutexGuard};

/// First pause, in turns of the processor's instruction for such loops, which takes 10 to 40 ns.
const FIRST: u32 = 32;
/// Longest pause: up to 10 us.
const LONGEST: u32 = 256;
/// Looks before the thread sleeps. The holder may have lost its processor, or may make a system call.
const LOOKS: u32 = 10;

/// Takes `mutex`, which was held just now.
#[cold]
#[inline(never)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let mut pause = FIRST;
    for _ in 0..LOOKS {
        for _ in 0..pause {
            std::hint::spin_loop();
        }
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        pause = (2 * pause).min(LONGEST);
    }
    mutex.lock()
}
