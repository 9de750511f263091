//! How threads share the lock of an adapter.
//!
//! The thread that gets the lock fetches the state behind it into its own caches, which takes as long as several posts. So threads that call in
//! loops should not take turns with each call. A thread that finds the lock held looks again after longer and longer pauses, and the holder
//! makes several calls meanwhile. Then the thread sleeps until the lock is given to it. A poll without a completion to take does not even wait,
//! see [`poll_turns`](super::poll_turns).

use std::sync::atomic::{AtomicU32, Ordering};

use dat_arena::{BiasedGuard, BiasedMutex};

use super::poll_turns::{AfterPoll, PollTurns};

/// First pause, in turns of the processor's instruction for such loops, which takes 10 to 40 ns.
const FIRST: u32 = 32;
/// Longest pause: up to 10 us.
const LONGEST: u32 = 256;
/// Looks before the thread sleeps. The holder may have lost its processor, or may make a system call.
const LOOKS: u32 = 10;

/// A mutex that several threads use in loops. While one thread alone does, it costs no locked instruction.
#[derive(Debug)]
pub(crate) struct SharedLock<T> {
    value: BiasedMutex<T>,
    /// Threads that wait for the lock because of a call that programs make in loops.
    waiting: AtomicU32,
    /// Polls that received, wrapping. Changed under the lock only.
    received: AtomicU32,
}

impl<T> SharedLock<T> {
    /// Creates an unlocked one.
    pub(crate) const fn new(value: T) -> Self {
        Self {
            value: BiasedMutex::new(value),
            waiting: AtomicU32::new(0),
            received: AtomicU32::new(0),
        }
    }

    /// Takes the lock for a call that is not made in loops.
    #[inline]
    pub(crate) fn lock(&self) -> BiasedGuard<'_, T> {
        self.value.lock()
    }

    /// Takes the lock if no thread has it.
    pub(crate) fn try_lock(&self) -> Option<BiasedGuard<'_, T>> {
        self.value.try_lock()
    }

    /// Returns whether the calling thread has the lock, and has used it alone so far.
    pub(crate) fn is_owner_inside(&self) -> bool {
        self.value.is_owner_inside()
    }

    /// Takes the lock for a call that programs make in loops.
    #[inline]
    pub(crate) fn lock_patiently(&self) -> BiasedGuard<'_, T> {
        match self.value.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// Takes the lock for a poll of the completion queue with these `turns`, unless the queue is empty and other threads use the lock:
    /// `None`, and `after` is what the poll is to do.
    #[inline]
    pub(crate) fn lock_to_poll(
        &self,
        turns: &PollTurns,
        after: &mut AfterPoll,
    ) -> Option<BiasedGuard<'_, T>> {
        if turns.begins_at_the_lock()
            && self.waiting.load(Ordering::Relaxed) == 0
            && let Some(guard) = self.value.try_lock()
        {
            return Some(guard);
        }
        self.take_turns(turns, after)
    }

    /// Records that a poll receives. The caller holds the lock.
    #[inline]
    pub(crate) fn poll_receives(&self) {
        // No other thread writes, so no locked instruction is needed.
        let received = self.receptions().wrapping_add(1);
        self.received.store(received, Ordering::Relaxed);
    }

    /// Returns the number of polls that have received, modulo 2^32. It does not take the lock.
    pub(crate) fn receptions(&self) -> u32 {
        self.received.load(Ordering::Relaxed)
    }

    #[cold]
    #[inline(never)]
    fn take_turns(&self, turns: &PollTurns, after: &mut AfterPoll) -> Option<BiasedGuard<'_, T>> {
        match turns.step(|| self.receptions()) {
            Ok(()) => Some(self.lock_patiently()),
            Err(instead) => {
                *after = instead;
                None
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> BiasedGuard<'_, T> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = self.look().unwrap_or_else(|| self.value.lock());
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    fn look(&self) -> Option<BiasedGuard<'_, T>> {
        let mut pause = FIRST;
        for _ in 0..LOOKS {
            for _ in 0..pause {
                std::hint::spin_loop();
            }
            if let Some(guard) = self.value.try_lock() {
                return Some(guard);
            }
            pause = (2 * pause).min(LONGEST);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use softrxe_proto::Occupancy;

    use super::*;

    #[test]
    fn a_poll_does_not_wait_for_the_lock() {
        let (lock, turns) = (SharedLock::new(0_u32), PollTurns::new(Occupancy::default()));
        assert!(lock.lock_to_poll(&turns, &mut AfterPoll::Return).is_some());
        let held = lock.lock();
        assert!(lock.lock_to_poll(&turns, &mut AfterPoll::Return).is_none());
        drop(held);
        // Another thread was there, so some polls step back although the lock is free. No other poll receives, so one of them takes it.
        let back = (0..)
            .take_while(|_| lock.lock_to_poll(&turns, &mut AfterPoll::Return).is_none())
            .count();
        assert!((1..100).contains(&back), "{back}");
        assert!(lock.lock_to_poll(&turns, &mut AfterPoll::Return).is_some());
    }

    #[test]
    fn polls_leave_the_lock_to_a_thread_that_waits_for_it() {
        let (lock, turns) = (SharedLock::new(0_u32), PollTurns::new(Occupancy::default()));
        std::thread::scope(|scope| {
            let held = lock.lock();
            let waiter = scope.spawn(|| *lock.lock_patiently() += 1);
            while lock.waiting.load(Ordering::Relaxed) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(lock.lock_to_poll(&turns, &mut AfterPoll::Return).is_none());
            drop(held);
            waiter.join().unwrap();
        });
        assert_eq!(lock.waiting.load(Ordering::Relaxed), 0);
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn one_thread_at_a_time_holds_the_lock() {
        const ROUNDS: u32 = 2000;
        let lock = SharedLock::new(0_u32);
        std::thread::scope(|scope| {
            for n in 0..4 {
                let lock = &lock;
                scope.spawn(move || {
                    let turns = PollTurns::new(Occupancy::default());
                    let mut done = 0;
                    while done < ROUNDS {
                        let guard = if n % 2 == 0 {
                            Some(lock.lock_patiently())
                        } else {
                            lock.lock_to_poll(&turns, &mut AfterPoll::Return)
                        };
                        let Some(mut guard) = guard else { continue };
                        let seen = *guard;
                        lock.poll_receives();
                        *guard = seen + 1;
                        done += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 4 * ROUNDS);
    }
}
