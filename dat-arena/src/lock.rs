//! The lock of the fast path: one decrement takes it, one store releases it.
//!
//! The holder of this mutex never wakes a thread. A thread that finds it held spins, then yields, then sleeps for longer and longer
//! times. That suits locks which are nearly always free and are held for microseconds (a post, a poll): there it needs half the
//! instructions of a mutex with a queue of waiters, and one locked instruction instead of two.

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering, overwrite, sleep, spin_loop, yield_now};

/// A mutex that is held for microseconds only.
pub type BriefMutex<T> = lock_api::Mutex<RawBrief, T>;
/// The guard of a locked [`BriefMutex`].
pub type BriefGuard<'a, T> = lock_api::MutexGuard<'a, RawBrief, T>;

/// Value of [`RawBrief::tries`] while the lock is free.
const FREE: u64 = 1;

/// The lock without its data; see [`BriefMutex`].
#[derive(Debug)]
pub struct RawBrief {
    /// [`FREE`] while unlocked. The holder and each failed attempt subtract 1; unlocking stores [`FREE`].
    tries: AtomicU64,
}

// SAFETY: only the thread that decrements `tries` from `FREE` holds the lock, and it releases the lock by storing `FREE`, so one thread
// at a time holds it. Failed attempts would have to wrap around 64 bits to reach `FREE`. Acquire and release order the accesses of
// successive holders.
unsafe impl lock_api::RawMutex for RawBrief {
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "the trait requires it; each use is a new lock"
    )]
    const INIT: Self = Self {
        tries: AtomicU64::new(FREE),
    };

    type GuardMarker = lock_api::GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        // The comparison is with the old value 1, so the new one is 0: compilers emit one instruction and a jump.
        self.tries.fetch_sub(1, Ordering::Acquire) == FREE
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        overwrite(&self.tries, FREE, Ordering::Release);
    }
}

/// Number of the attempt up to which a waiter spins, and then yields, before it sleeps.
const SPINS: u32 = 100;
const YIELDS: u32 = 200;
/// The first and the longest sleep. A preempted holder needs about as long to continue.
const SLEEPS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// Pauses of a thread that waits for a lock whose holder wakes no thread.
pub(crate) struct Backoff {
    attempts: u32,
    sleep: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            attempts: 0,
            sleep: SLEEPS.0,
        }
    }
}

impl Backoff {
    /// Pauses once, in the end for a millisecond.
    pub(crate) fn pause(&mut self) {
        match self.attempts {
            0..SPINS => spin_loop(),
            SPINS..YIELDS => yield_now(),
            _ => {
                sleep(self.sleep);
                self.sleep = (self.sleep * 2).min(SLEEPS.1);
                return;
            }
        }
        self.attempts += 1;
    }
}

impl RawBrief {
    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut backoff = Backoff::default();
        // A load does not take the cache line from the holder, a try does.
        while self.tries.load(Ordering::Relaxed) != FREE || !lock_api::RawMutex::try_lock(self) {
            backoff.pause();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of rounds; Miri would take minutes for thousands.
    const ROUNDS: u32 = if cfg!(miri) { 20 } else { 2000 };

    #[test]
    fn one_thread_at_a_time_holds_the_lock() {
        let counter = BriefMutex::new(0_u32);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..ROUNDS {
                        let mut held = counter.lock();
                        let seen = *held;
                        if round % (ROUNDS / 4) == 0 {
                            // Long enough for the others to give up spinning.
                            std::thread::sleep(Duration::from_micros(300));
                        }
                        *held = seen + 1;
                    }
                });
            }
        });
        assert_eq!(*counter.lock(), 4 * ROUNDS);
    }

    #[test]
    fn a_held_lock_is_not_taken_again() {
        let lock = BriefMutex::new(());
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[cfg(all(target_env = "gnu", not(miri)))]
    #[test]
    fn a_thread_that_waits_for_the_lock_is_not_cancelled() {
        use std::os::unix::thread::JoinHandleExt;
        use std::sync::Arc;

        unsafe extern "C" {
            fn pthread_setcancelstate(state: i32, old: *mut i32) -> i32;
        }

        let lock = Arc::new(BriefMutex::new(0));
        let held = lock.lock();
        let waiter = std::thread::spawn({
            let lock = Arc::clone(&lock);
            move || {
                *lock.lock() += 1;
                // SAFETY: 1 is PTHREAD_CANCEL_DISABLE. The request stays pending until the thread ends.
                unsafe { pthread_setcancelstate(1, std::ptr::null_mut()) };
            }
        });
        // SAFETY: the thread is not joined yet.
        unsafe { libc::pthread_cancel(waiter.as_pthread_t()) };
        // Longer than the waiter spins and yields.
        std::thread::sleep(Duration::from_millis(50));
        drop(held);
        assert!(waiter.join().is_ok());
        assert_eq!(*lock.lock(), 1);
    }
}
