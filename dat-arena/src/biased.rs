//! A mutex that costs the thread which uses it most no locked instruction.
//!
//! A locked instruction waits until all earlier stores of its thread have reached the caches. A thread that has just written a record into memory
//! that a peer's processor holds waits long. So the thread that took the lock many times in a row becomes its *owner*: it takes and
//! releases the lock with plain stores. Another thread that wants the lock first takes a general mutex, withdraws the ownership, and makes the
//! kernel execute a barrier on all processors ([`barrier`]). That costs some microseconds, so a thread whose ownership was short
//! becomes the owner later the next time.
//!
//! **Why one thread at a time holds the lock.** Only the thread that holds `general` changes `owner`. An owner stores `inside`, and then looks
//! whether it still is the owner. A thread that withdraws the ownership stores `owner`, and then looks at `inside`. On both sides the barrier is
//! between the store and the look. So either the owner sees that it is no longer the owner, and takes `general`, or the other thread sees that
//! the owner is inside, and waits. Each thread has a slot of its own for `inside`, so one that was interrupted between its first look and its
//! store changes nothing of a later owner.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::barrier;
use crate::lock::Backoff;
use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, Mutex, MutexGuard, Ordering};

/// Slots of a lock. Slot 0 is no thread's; further threads than the others have room for never become the owner.
const SLOTS: usize = if cfg!(all(loom, test)) { 4 } else { 8 };
/// [`BiasedMutex::owner`] without an owner.
const NONE: u32 = 0;
/// Number of times in a row that a thread takes the lock before it becomes the owner: at first and at least, and at most.
const FEWEST: u32 = if cfg!(all(loom, test)) { 1 } else { 64 };
const MOST: u32 = 1 << 20;
/// An owner that took the lock that often has saved more than the withdrawal costs.
const WORTHWHILE: u32 = 1000;
/// Factor of the number above after a withdrawal by a thread that calls in a loop as well: its next calls would pay for the owner.
const SHARED: u32 = 16;

/// A mutex that is held for microseconds, by one thread nearly always.
pub struct BiasedMutex<T> {
    /// Slot of the owner.
    owner: AtomicU32,
    slots: [Slot; SLOTS],
    general: Mutex<General>,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has a guard (the module's text says why), and the value goes from thread to thread.
unsafe impl<T: Send> Send for BiasedMutex<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for BiasedMutex<T> {}

/// What one thread writes when it is the owner.
struct Slot {
    /// The thread's number, which stays once it is there; 0: no thread's.
    thread: AtomicUsize,
    /// The thread holds the lock as its owner, or looks whether it may.
    inside: AtomicBool,
    /// Number of times that the thread took the lock since it became the owner.
    entries: AtomicU32,
}

/// State of the threads that are not the owner.
struct General {
    /// Slot of an owner that had the lock when its ownership was withdrawn; [`NONE`] if it has left.
    leaving: u32,
    /// Thread that took the lock last, and how many times in a row.
    last: usize,
    in_a_row: u32,
    /// Value of `in_a_row` that makes the thread the owner.
    needed: u32,
}

/// A held [`BiasedMutex`].
pub struct BiasedGuard<'a, T> {
    mutex: &'a BiasedMutex<T>,
    way: Way<'a>,
    /// A guard stays with its thread.
    _thread: PhantomData<*const ()>,
}

/// How the lock was taken. Empty while [`BiasedGuard::unlocked`] runs.
enum Way<'a> {
    Owner(&'a Slot),
    General(MutexGuard<'a, General>),
    Unlocked,
}

/// Permits threads to become owners of [`BiasedMutex`]es, if the kernel supports it; without that they are usual mutexes. To be called
/// before the first one is used in a loop. In a process with several threads it may take some milliseconds.
pub fn permit_owners() {
    barrier::register();
}

impl Slot {
    const fn new() -> Self {
        Self {
            thread: AtomicUsize::new(0),
            inside: AtomicBool::new(false),
            entries: AtomicU32::new(0),
        }
    }
}

impl General {
    /// Records that `thread` takes the lock.
    fn count(&mut self, thread: usize) {
        self.in_a_row = if self.last == thread {
            self.in_a_row.saturating_add(1)
        } else {
            1
        };
        self.last = thread;
    }

    /// Records that an ownership ended after this number of `entries`, because of a thread that calls `in_a_loop` or not.
    fn withdrawn(&mut self, entries: u32, in_a_loop: bool) {
        self.in_a_row = 0;
        let needed = match (in_a_loop, entries) {
            (true, _) => self.needed * SHARED,
            (false, ..WORTHWHILE) => self.needed * 2,
            (false, _) => self.needed / 2,
        };
        self.needed = needed.clamp(FEWEST, MOST);
    }
}

impl<T> BiasedMutex<T> {
    /// Creates an unlocked one without an owner.
    pub const fn new(value: T) -> Self {
        Self {
            owner: AtomicU32::new(NONE),
            slots: [const { Slot::new() }; SLOTS],
            general: Mutex::new(General {
                leaving: NONE,
                last: 0,
                in_a_row: 0,
                needed: FEWEST,
            }),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock. For calls that a program does not make in a loop, and for a thread that [`try_lock`](Self::try_lock) has refused.
    #[inline]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        match self.enter() {
            Some(slot) => self.guard(Way::Owner(slot)),
            None => self.lock_generally(),
        }
    }

    /// Takes the lock if no thread holds it and no other one tries to take it. For calls that programs make in loops: where several threads
    /// do, there soon is no owner any more.
    #[inline]
    pub fn try_lock(&self) -> Option<BiasedGuard<'_, T>> {
        match self.enter() {
            Some(slot) => Some(self.guard(Way::Owner(slot))),
            None => self.try_lock_generally(),
        }
    }

    /// Returns whether the calling thread has the lock and took it as the owner: a signal handler may have interrupted it there.
    #[must_use]
    pub fn is_owner_inside(&self) -> bool {
        let here = barrier::current_thread();
        self.slots.iter().any(|slot| {
            slot.thread.load(Ordering::Relaxed) == here && slot.inside.load(Ordering::Relaxed)
        })
    }

    /// Returns whether a thread takes the lock without a locked instruction. Reads all slots, as loom's models require at first.
    #[cfg(test)]
    pub(crate) fn has_owner(&self) -> bool {
        for slot in &self.slots {
            slot.thread.load(Ordering::Relaxed);
            slot.inside.load(Ordering::Relaxed);
            slot.entries.load(Ordering::Relaxed);
        }
        self.owner.load(Ordering::Relaxed) != NONE
    }

    const fn guard<'a>(&'a self, way: Way<'a>) -> BiasedGuard<'a, T> {
        BiasedGuard {
            mutex: self,
            way,
            _thread: PhantomData,
        }
    }

    /// Returns the calling thread's slot if it is the owner, which has the lock then.
    #[inline]
    fn enter(&self) -> Option<&Slot> {
        let owner = self.owner.load(Ordering::Relaxed);
        let slot = &self.slots[owner as usize % SLOTS];
        // Slot 0 has no thread. In any other the calling thread sees its own number only if it is its own slot.
        if slot.thread.load(Ordering::Relaxed) != barrier::current_thread() {
            return None;
        }
        // A thread that takes the lock again while it has it waits for itself, as with any mutex.
        if slot.inside.load(Ordering::Relaxed) {
            return None;
        }
        slot.inside.store(true, Ordering::Relaxed);
        barrier::light();
        // No other thread can have made this one the owner meanwhile.
        if self.owner.load(Ordering::Relaxed) != owner {
            slot.inside.store(false, Ordering::Release);
            return None;
        }
        // No other thread writes it now, so no locked instruction is needed.
        let entries = slot.entries.load(Ordering::Relaxed);
        slot.entries
            .store(entries.wrapping_add(1), Ordering::Relaxed);
        Some(slot)
    }

    #[inline(never)]
    fn lock_generally(&self) -> BiasedGuard<'_, T> {
        let mut general = self.general.lock();
        let mut backoff = Backoff::default();
        while !self.owner_has_left(&mut general, false) {
            backoff.pause();
        }
        general.count(barrier::current_thread());
        self.guard(Way::General(general))
    }

    #[inline(never)]
    fn try_lock_generally(&self) -> Option<BiasedGuard<'_, T>> {
        let mut general = self.general.try_lock()?;
        if !self.owner_has_left(&mut general, true) {
            return None;
        }
        general.count(barrier::current_thread());
        Some(self.guard(Way::General(general)))
    }

    /// Withdraws the ownership for a thread that calls `in_a_loop` or not. Returns whether the last owner has released the lock.
    #[inline]
    fn owner_has_left(&self, general: &mut General, in_a_loop: bool) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != NONE {
            self.owner.store(NONE, Ordering::Relaxed);
            barrier::heavy();
            let slot = &self.slots[owner as usize % SLOTS];
            general.withdrawn(slot.entries.load(Ordering::Relaxed), in_a_loop);
            general.leaving = owner;
        }
        if general.leaving != NONE {
            let slot = &self.slots[general.leaving as usize % SLOTS];
            if slot.inside.load(Ordering::Acquire) {
                return false;
            }
            general.leaving = NONE;
        }
        true
    }

    /// Makes the thread that took the lock last, the calling one, the owner. It is inside yet.
    #[cold]
    fn make_owner(&self, general: &mut General) {
        general.in_a_row = 0;
        if !barrier::is_available() {
            return;
        }
        let usable = |slot: &Slot| [0, general.last].contains(&slot.thread.load(Ordering::Relaxed));
        let own = self.slots[1..].iter().position(usable);
        if let Some(index) = own.map(|before| before + 1) {
            let slot = &self.slots[index];
            slot.thread.store(general.last, Ordering::Relaxed);
            slot.entries.store(0, Ordering::Relaxed);
            self.owner.store(index as u32, Ordering::Relaxed);
        }
    }
}

impl<T> BiasedGuard<'_, T> {
    /// Releases the lock for the time of `act`. The guard has the lock again when this returns, also by a panic of `act`.
    pub fn unlocked<R>(&mut self, act: impl FnOnce() -> R) -> R {
        struct Relock<'g, 'a, T>(&'g mut BiasedGuard<'a, T>);
        impl<T> Drop for Relock<'_, '_, T> {
            fn drop(&mut self) {
                let mut again = self.0.mutex.lock();
                self.0.way = std::mem::replace(&mut again.way, Way::Unlocked);
            }
        }

        self.release();
        let _relock = Relock(self);
        act()
    }

    #[inline]
    fn release(&mut self) {
        match &mut self.way {
            Way::Owner(slot) => slot.inside.store(false, Ordering::Release),
            Way::General(general) => {
                if general.in_a_row >= general.needed {
                    self.mutex.make_owner(general);
                }
            }
            Way::Unlocked => return,
        }
        self.way = Way::Unlocked;
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock whenever the guard can be used: `unlocked` borrows it until the lock is taken again, also if
        // its closure panics.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> fmt::Debug for BiasedMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedMutex").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for BiasedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedGuard").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Makes the calling thread the owner.
    fn owned(mutex: &BiasedMutex<u32>) {
        permit_owners();
        for _ in 0..=SHARED * FEWEST {
            if mutex.has_owner() {
                return;
            }
            drop(mutex.lock());
        }
        if cfg!(not(miri)) {
            panic!("membarrier(2) needs Linux 4.14");
        }
    }

    /// Calls `act` in another thread.
    fn elsewhere(act: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            scope.spawn(act);
        });
    }

    #[test]
    fn the_thread_that_takes_the_lock_many_times_in_a_row_becomes_the_owner() {
        let mutex = BiasedMutex::new(0);
        owned(&mutex);
        *mutex.lock() += 1;
        elsewhere(|| *mutex.lock() += 1);
        assert!(!mutex.has_owner());
        assert_eq!(*mutex.lock(), 2);
        // Its ownership was short, so the next one comes later.
        for _ in 0..FEWEST {
            drop(mutex.lock());
        }
        assert!(!mutex.has_owner());
        owned(&mutex);
    }

    #[test]
    fn ownerships_that_pay_come_again_as_soon_as_the_first() {
        let mutex = BiasedMutex::new(0);
        for _ in 0..3 {
            owned(&mutex);
            for _ in 0..WORTHWHILE {
                drop(mutex.lock());
            }
            elsewhere(|| drop(mutex.lock()));
            assert!(!mutex.has_owner());
        }
    }

    #[test]
    fn threads_that_share_the_lock_in_loops_leave_no_owner() {
        let mutex = BiasedMutex::new(0);
        owned(&mutex);
        for _ in 0..2 * WORTHWHILE {
            drop(mutex.lock());
        }
        elsewhere(|| drop(mutex.try_lock()));
        for _ in 1..SHARED * FEWEST {
            drop(mutex.try_lock());
        }
        assert!(!mutex.has_owner());
        drop(mutex.try_lock());
        assert!(mutex.has_owner() || cfg!(miri));
    }

    #[test]
    fn a_lock_that_the_owner_has_is_not_taken_again() {
        let mutex = BiasedMutex::new(0);
        owned(&mutex);
        assert!(!mutex.is_owner_inside());
        let held = mutex.lock();
        assert!(mutex.is_owner_inside() || cfg!(miri));
        elsewhere(|| assert!(!mutex.is_owner_inside()));
        assert!(mutex.try_lock().is_none(), "by the owner itself");
        drop(held);
        assert!(!mutex.is_owner_inside());
        owned(&mutex);
        let held = mutex.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(mutex.try_lock().is_none()));
            let waiter = scope.spawn(|| *mutex.lock() += 1);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiter.is_finished());
            drop(held);
        });
        assert_eq!(*mutex.lock(), 1);
    }

    #[test]
    fn an_unlocked_guard_has_the_lock_again() {
        let mutex = BiasedMutex::new(0);
        owned(&mutex);
        let mut guard = mutex.lock();
        guard.unlocked(|| elsewhere(|| *mutex.lock() += 1));
        *guard += 1;
        assert!(mutex.try_lock().is_none());
        drop(guard);
        assert_eq!(*mutex.lock(), 2);
    }

    #[test]
    fn an_unlocked_guard_has_the_lock_again_after_a_panic() {
        use std::panic::{AssertUnwindSafe, catch_unwind};

        let mutex = BiasedMutex::new(0);
        let mut guard = mutex.lock();
        let panics = AssertUnwindSafe(|| guard.unlocked(|| panic!("in the unlocked part")));
        assert!(catch_unwind(panics).is_err());
        assert!(mutex.try_lock().is_none());
        *guard += 1;
        drop(guard);
        assert_eq!(*mutex.lock(), 1);
    }

    #[test]
    fn more_threads_than_slots_take_turns() {
        const ROUNDS: u32 = if cfg!(miri) { 10 } else { 20_000 };
        let mutex = BiasedMutex::new(0);
        permit_owners();
        std::thread::scope(|scope| {
            for n in 0..SLOTS as u32 + 3 {
                let mutex = &mutex;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let mut guard = mutex.lock();
                        let seen = *guard;
                        *guard = seen + 1;
                        drop(guard);
                        // Runs of different lengths, so that ownerships come and go.
                        if round % (50 << (n % 6)) == 0 {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        assert_eq!(*mutex.lock(), (SLOTS as u32 + 3) * ROUNDS);
    }
}
