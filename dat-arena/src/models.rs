//! Loom models of the arena and of the locks. The name of each test states what holds in every possible interleaving of the threads.
//! `make sanitize` runs them; see docs/sanitizers.md.

use std::sync::Arc;

use dat_loom::{Watched, explore, thread};

use crate::mutex::Mutex;
use crate::sync::{AtomicU32, Ordering};
use crate::{Arena, BiasedMutex, BriefMutex};

/// An object that loom observes: a read before it is published is a data race.
struct Thing(AtomicU32);

impl Default for Thing {
    fn default() -> Self {
        let thing = Self(AtomicU32::new(7));
        // Initialise loom's atomic now, as the standard library's would be.
        thing.0.store(7, Ordering::Relaxed);
        thing
    }
}

/// Creates an arena with loom's atomics. It is leaked: the mapping stays until the process ends, as it does outside the models.
fn arena(wanted: u32) -> &'static Arena<Thing> {
    let arena: &'static Arena<Thing> = Box::leak(Box::new(Arena::new(wanted)));
    assert_eq!(arena.range(), (0, 0));
    arena.for_each(|_, _| unreachable!("it is empty"));
    arena
}

/// Data that a [`BriefMutex`] protects; loom reports two accesses at a time.
struct Guarded {
    lock: BriefMutex<()>,
    data: Watched<u32>,
}

impl Guarded {
    fn new() -> Arc<Self> {
        let guarded = Arc::new(Self {
            lock: BriefMutex::new(()),
            data: Watched::new(0),
        });
        guarded.add();
        guarded
    }

    fn add(&self) {
        let _held = self.lock.lock();
        self.data.write(self.data.read() + 1);
    }

    fn try_add(&self) -> bool {
        let held = self.lock.try_lock();
        if held.is_some() {
            self.data.write(self.data.read() + 1);
        }
        held.is_some()
    }
}

#[test]
fn one_thread_at_a_time_holds_the_lock_and_sees_the_writes_of_the_previous_holder() {
    explore(3, || {
        let guarded = Guarded::new();
        let other = Arc::clone(&guarded);
        let adder = thread::spawn(move || other.add());
        guarded.add();
        adder.join().unwrap();
        assert_eq!(guarded.data.read(), 3);
    });
}

#[test]
fn failed_tries_neither_release_the_lock_nor_block_it_for_ever() {
    explore(3, || {
        let guarded = Guarded::new();
        let tries: Vec<_> = (0..2)
            .map(|_| {
                let other = Arc::clone(&guarded);
                thread::spawn(move || u32::from(other.try_add()))
            })
            .collect();
        let mut added = u32::from(guarded.try_add());
        added += tries.into_iter().map(|t| t.join().unwrap()).sum::<u32>();
        assert!(added >= 1, "one of several tries on a free lock succeeds");
        assert!(guarded.try_add(), "the lock is free again");
        assert_eq!(guarded.data.read(), added + 2);
    });
}

/// Three threads, so that one sleeps while another one is woken and a third one is quicker: a lost wake-up would be a deadlock, which loom
/// reports. A thread that has slept in vain once has the next turn.
#[test]
fn threads_that_sleep_for_the_lock_all_get_it_one_at_a_time() {
    explore(3, || {
        let guarded = Arc::new((Mutex::new(()), Watched::new(0)));
        let add = |(lock, data): &(Mutex<()>, Watched<u32>)| {
            let _held = lock.lock();
            data.write(data.read() + 1);
        };
        add(&guarded);
        let others: Vec<_> = (0..2)
            .map(|_| {
                let other = Arc::clone(&guarded);
                thread::spawn(move || add(&other))
            })
            .collect();
        add(&guarded);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(guarded.1.read(), 4);
        assert!(
            guarded.0.try_lock().is_some(),
            "nothing is left in the word"
        );
    });
}

#[test]
fn a_thread_that_tries_takes_the_lock_from_no_thread_and_hides_no_sleeper() {
    explore(3, || {
        let guarded = Arc::new((Mutex::new(()), Watched::new(0)));
        let add = |(lock, data): &(Mutex<()>, Watched<u32>), waits: bool| {
            let held = if waits {
                Some(lock.lock())
            } else {
                lock.try_lock()
            };
            let done = held.is_some();
            if done {
                data.write(data.read() + 1);
            }
            u32::from(done)
        };
        add(&guarded, true);
        let others: Vec<_> = [true, false]
            .map(|waits| {
                let other = Arc::clone(&guarded);
                thread::spawn(move || add(&other, waits))
            })
            .into();
        let mut added = 1 + add(&guarded, true);
        added += others.into_iter().map(|t| t.join().unwrap()).sum::<u32>();
        assert_eq!(guarded.1.read(), added);
        assert!(guarded.0.try_lock().is_some());
    });
}

/// Data that a [`BiasedMutex`] protects, and whose owner is the thread that made it.
struct Biased {
    lock: BiasedMutex<()>,
    data: Watched<u32>,
}

impl Biased {
    fn new() -> Arc<Self> {
        let biased = Arc::new(Self {
            lock: BiasedMutex::new(()),
            data: Watched::new(0),
        });
        // The first makes it the owner, the second is the owner's.
        biased.add();
        biased.add();
        assert!(biased.lock.has_owner());
        biased
    }

    fn add(&self) {
        let _held = self.lock.lock();
        self.data.write(self.data.read() + 1);
    }

    fn try_add(&self) -> u32 {
        let held = self.lock.try_lock();
        if held.is_some() {
            self.data.write(self.data.read() + 1);
        }
        held.is_some().into()
    }
}

#[test]
fn an_owner_and_another_thread_never_hold_the_lock_at_the_same_time() {
    explore(3, || {
        let biased = Biased::new();
        let other = Arc::clone(&biased);
        let adder = thread::spawn(move || other.add());
        biased.add();
        biased.add();
        adder.join().unwrap();
        assert_eq!(biased.data.read(), 5);
    });
}

#[test]
fn a_new_owner_and_the_one_before_never_hold_the_lock_at_the_same_time() {
    explore(2, || {
        let biased = Biased::new();
        let other = Arc::clone(&biased);
        let adder = thread::spawn(move || {
            other.add();
            other.add();
            other.add();
        });
        biased.add();
        biased.add();
        adder.join().unwrap();
        assert_eq!(biased.data.read(), 7);
    });
}

#[test]
fn a_failed_try_leaves_the_lock_to_the_owner_that_had_it() {
    explore(3, || {
        let biased = Biased::new();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let other = Arc::clone(&biased);
                thread::spawn(move || other.try_add())
            })
            .collect();
        let mut added = biased.try_add();
        added += others.into_iter().map(|t| t.join().unwrap()).sum::<u32>();
        assert_eq!(biased.try_add(), 1, "the lock is free again");
        assert_eq!(biased.data.read(), added + 3);
    });
}

#[test]
fn two_allocations_never_return_one_object_and_a_new_object_is_initialised() {
    explore(3, || {
        let arena = arena(4);
        let other = thread::spawn(move || {
            let (index, thing) = arena.alloc().unwrap();
            assert_eq!(thing.0.load(Ordering::Relaxed), 7);
            index
        });
        let (mine, thing) = arena.alloc().unwrap();
        assert_eq!(thing.0.load(Ordering::Relaxed), 7);
        assert_ne!(mine, other.join().unwrap());
    });
}

#[test]
fn an_object_is_found_only_after_it_is_initialised() {
    explore(3, || {
        let arena = arena(4);
        let maker = thread::spawn(move || std::ptr::from_ref(arena.alloc().unwrap().1) as usize);
        // Look-up by index, as for a work request's id.
        if let Some(thing) = arena.get(0) {
            assert_eq!(thing.0.load(Ordering::Relaxed), 7);
        }
        // Look-up by the address that the kernel chose, which the other thread has not passed on.
        let (base, _) = arena.range();
        if base != 0
            && let Some(thing) = arena.from_addr(base)
        {
            assert_eq!(thing.0.load(Ordering::Relaxed), 7);
        }
        let at = maker.join().unwrap();
        assert!(arena.holds(at));
    });
}

#[test]
fn a_recycled_object_goes_to_one_allocation() {
    explore(2, || {
        let arena = arena(1);
        let (index, _) = arena.alloc().unwrap();
        let other = thread::spawn(move || arena.alloc().is_some());
        arena.recycle(index);
        let mine = arena.alloc().is_some();
        let theirs = other.join().unwrap();
        assert!(!(mine && theirs), "one object, two owners");
        assert!(mine || theirs, "an object was lost");
    });
}

#[test]
fn no_address_is_accepted_while_the_range_is_being_reserved() {
    explore(3, || {
        let arena = arena(4);
        let maker = thread::spawn(move || arena.alloc().is_some());
        assert!(!arena.holds(0), "NULL is not an object");
        assert!(maker.join().unwrap());
    });
}
