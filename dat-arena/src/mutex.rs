//! A mutex that a thread may hold for longer: those that wait for it sleep in the kernel, and nowhere else.
//!
//! `parking_lot` has the threads that sleep in a table of the process, each with the address of data in its own stack area. A forked child inherits
//! the table without the threads, gives their stacks to new threads, and follows the addresses when the table grows. This mutex is one word
//! (futex(2)), so a child has nothing of threads that slept at the time of the fork.
//!
//! **Turns.** A thread that is woken takes the lock if it is free. It may find that another thread was quicker, each time. After some wake-ups
//! in vain it is *overdue*: then only overdue threads take the lock.
//!
//! **Why no thread sleeps for ever.** A thread sets [`SLEEPERS`] before it sleeps, and the kernel compares the whole word. Only a release clears
//! the bit, and it wakes one thread, or all if one is overdue: a single thread that is woken might not be allowed to take the lock then. A
//! thread that takes the lock after a sleep sets the bit again, for the others. A thread that finds the lock free, but left to overdue threads,
//! sleeps, too. A thread becomes overdue while it is awake, so at least one overdue thread is about to take the lock, and releases it later.

use crate::sync::{AtomicU32, Ordering, sleep_on, spin_loop, wake, yield_now};

/// A mutex whose waiters sleep. It has no poisoning, and a forked child may use each that no thread held.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// The guard of a locked [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// A thread holds the lock.
const LOCKED: u32 = 1;
/// Threads may sleep.
const SLEEPERS: u32 = 2;
/// One overdue thread. The bits from this one on are their number.
const OVERDUE: u32 = 4;

/// Wake-ups in vain after which a thread is overdue.
const IN_VAIN: u32 = if cfg!(all(loom, test)) { 1 } else { 8 };
/// Looks before the first sleep: so many with more and more pauses, and then with the processor yielded.
const SPINS: u32 = if cfg!(all(loom, test)) { 0 } else { 3 };
const YIELDS: u32 = if cfg!(all(loom, test)) { 0 } else { 7 };

/// The lock without its data; see [`Mutex`].
#[derive(Debug)]
pub struct RawMutex(AtomicU32);

// SAFETY: only the thread that sets `LOCKED` in a word without it holds the lock, and it releases the lock by clearing the bit, so one thread
// at a time holds it. Acquire and release order the accesses of successive holders.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "the trait requires it; each use is a new lock"
    )]
    const INIT: Self = Self(AtomicU32::new(0));

    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        if self.exchange(0, LOCKED).is_err() {
            self.wait();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & LOCKED == 0 && word < OVERDUE {
            match self.exchange(word, word | LOCKED) {
                Ok(()) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    #[inline]
    unsafe fn unlock(&self) {
        let before = self.0.fetch_and(!(LOCKED | SLEEPERS), Ordering::Release);
        if before & SLEEPERS != 0 {
            self.wake(before);
        }
    }
}

impl RawMutex {
    #[inline]
    fn exchange(&self, from: u32, to: u32) -> Result<(), u32> {
        let done = self
            .0
            .compare_exchange_weak(from, to, Ordering::Acquire, Ordering::Relaxed);
        done.map(|_| ())
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut looks = 0;
        // What this thread adds to the word when it takes the lock: after a sleep other threads may still sleep.
        let (mut adds, mut in_vain) = (LOCKED, 0);
        let mut overdue = 0;
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & LOCKED == 0 && (word < OVERDUE || overdue != 0) {
                match self.exchange(word, (word - overdue) | adds) {
                    Ok(()) => return,
                    Err(now) => word = now,
                }
                continue;
            }
            if word & SLEEPERS == 0 && looks < SPINS + YIELDS {
                looks += 1;
                if looks <= SPINS {
                    (0..1 << looks).for_each(|_| spin_loop());
                } else {
                    yield_now();
                }
                word = self.0.load(Ordering::Relaxed);
                continue;
            }
            if word & SLEEPERS == 0
                && let Err(now) = self.exchange(word, word | SLEEPERS)
            {
                word = now;
                continue;
            }
            sleep_on(&self.0, word | SLEEPERS);
            adds = LOCKED | SLEEPERS;
            word = self.0.load(Ordering::Relaxed);
            if overdue == 0 && word & LOCKED != 0 {
                in_vain += 1;
                if in_vain == IN_VAIN {
                    overdue = OVERDUE;
                    word = self.0.fetch_add(OVERDUE, Ordering::Relaxed) + OVERDUE;
                }
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn wake(&self, before: u32) {
        wake(&self.0, if before < OVERDUE { 1 } else { i32::MAX });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    /// Number of rounds; Miri would take minutes for thousands.
    const ROUNDS: u32 = if cfg!(miri) { 20 } else { 2000 };

    #[test]
    fn one_thread_at_a_time_holds_the_lock() {
        let counter = Mutex::new(0_u32);
        std::thread::scope(|scope| {
            for n in 0..4 {
                let counter = &counter;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let tried = if n == 0 { counter.try_lock() } else { None };
                        let mut held = tried.unwrap_or_else(|| counter.lock());
                        let seen = *held;
                        if round % (ROUNDS / 4) == 0 {
                            // Long enough for the others to sleep.
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
        let lock = Mutex::new(());
        let held = lock.lock();
        assert!(lock.try_lock().is_none() && lock.is_locked());
        drop(held);
        assert!(lock.try_lock().is_some() && !lock.is_locked());
    }

    /// The others release the lock for a moment only, and take it again before a thread that is woken can.
    #[cfg(not(miri))]
    #[test]
    fn a_thread_that_waits_beside_others_in_loops_has_its_turn() {
        let (lock, done) = (Mutex::new(()), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let _held = lock.lock();
                        let begin = Instant::now();
                        while begin.elapsed() < Duration::from_micros(100) {}
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(5));
            let begin = Instant::now();
            for _ in 0..50 {
                drop(lock.lock());
                std::thread::sleep(Duration::from_micros(100));
            }
            done.store(true, Ordering::Relaxed);
            // On a busy machine each turn may take some time slices.
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "{:?}",
                begin.elapsed()
            );
        });
    }

    /// `parking_lot` had this thread in its table, and the child crashed when that grew.
    #[cfg(not(miri))]
    #[test]
    fn a_child_has_nothing_of_the_threads_that_slept() {
        static WAITS: AtomicU32 = AtomicU32::new(0);
        let lock = Mutex::new(());
        std::thread::scope(|scope| {
            let held = lock.lock();
            for _ in 0..4 {
                scope.spawn(|| {
                    WAITS.fetch_add(1, Ordering::SeqCst);
                    drop(lock.lock());
                });
            }
            while WAITS.load(Ordering::SeqCst) < 4 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(20));
            // SAFETY: the child uses its own lock and ends.
            let status = unsafe {
                let pid = libc::fork();
                if pid == 0 {
                    drop(held);
                    drop(lock.lock());
                    libc::_exit(i32::from(lock.is_locked()));
                }
                assert!(pid > 0);
                let mut status = 0;
                assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
                status
            };
            assert_eq!(status, 0, "exit status of the child");
            drop(held);
        });
    }
}
