//! The lock of the hot paths: one count down to take, one store to give back.
//!
//! A mutex whose holder never has to wake anybody: whoever finds it taken spins, then yields, then sleeps for ever
//! longer moments. That suits locks which are nearly always free and held for microseconds (a post, a poll): there it
//! takes half the instructions of a mutex with a queue, and one locked instruction instead of two.

use std::time::Duration;

use parking_lot::lock_api;

use crate::sync::{AtomicU64, Ordering, overwrite, sleep, spin_loop, yield_now};

/// A mutex to be held for moments only.
pub type BriefMutex<T> = lock_api::Mutex<RawBrief, T>;
/// What a locked [`BriefMutex`] gives.
pub type BriefGuard<'a, T> = lock_api::MutexGuard<'a, RawBrief, T>;

/// [`RawBrief::tries`] of a lock that nobody holds.
const FREE: u64 = 1;

/// The lock itself; see [`BriefMutex`].
#[derive(Debug)]
pub struct RawBrief {
    /// [`FREE`], or less by one and by every try that failed meanwhile.
    tries: AtomicU64,
}

// SAFETY: only whoever counts `tries` down from `FREE` has it (it does not come there by
// counting in the age of the world), and gives it back by setting that, so one thread at a time holds the lock; acquire and
// release order what it does before and after.
unsafe impl lock_api::RawMutex for RawBrief {
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "the trait wants it: each use is a lock of its own"
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
        // Whether it is 0 now: compilers make one instruction of it, and a jump.
        self.tries.fetch_sub(1, Ordering::Acquire) == FREE
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        overwrite(&self.tries, FREE, Ordering::Release);
    }
}

/// Up to which turn to spin, and then to yield, before sleeping.
const SPINS: u32 = 100;
const YIELDS: u32 = 200;
/// The first sleep and the longest: a holder that was put off its processor needs as long to come back.
const SLEEPS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

impl RawBrief {
    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut nap = SLEEPS.0;
        for turn in 0_u32.. {
            // Looking does not take the cache line away from the holder, trying does.
            if self.tries.load(Ordering::Relaxed) == FREE && lock_api::RawMutex::try_lock(self) {
                return;
            }
            match turn {
                0..SPINS => spin_loop(),
                SPINS..YIELDS => yield_now(),
                _ => {
                    sleep(nap);
                    nap = (nap * 2).min(SLEEPS.1);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Miri takes minutes for thousands.
    const TURNS: u32 = if cfg!(miri) { 20 } else { 2000 };

    #[test]
    fn one_at_a_time() {
        let counter = BriefMutex::new(0_u32);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for turn in 0..TURNS {
                        let mut held = counter.lock();
                        let seen = *held;
                        if turn % (TURNS / 4) == 0 {
                            // Long enough for the others to give up spinning.
                            std::thread::sleep(Duration::from_micros(300));
                        }
                        *held = seen + 1;
                    }
                });
            }
        });
        assert_eq!(*counter.lock(), 4 * TURNS);
    }

    #[test]
    fn a_taken_one_is_not_taken_again() {
        let lock = BriefMutex::new(());
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}
