//! Loom models of the ring. Each test's name is a statement that holds in every order of the threads.

use std::sync::Arc;

use dat_loom::{explore, thread, yield_now};

use super::*;

/// Number of slots of the smallest ring in these models.
const DEPTH: u32 = MIN_SLOTS;

/// Transport between poster and completer: completions come in order.
#[derive(Default)]
struct Wire {
    posted: AtomicU32,
}

/// Returns an opened ring and its transport.
fn opened() -> (&'static Ring, Cycle<Slot>, Arc<Wire>) {
    let ring: &'static Ring = Box::leak(Box::default());
    let slots = ring.open(DEPTH).unwrap();
    ring.begin(1);
    for number in 0..DEPTH {
        slots.at(number).fill(0, SlotInfo::default());
    }
    let wire = Arc::new(Wire::default());
    wire.posted.store(0, Ordering::Relaxed);
    (ring, slots, wire)
}

#[test]
fn every_completion_finds_the_cookie_of_its_post_though_slots_are_used_again() {
    const POSTS: u32 = DEPTH + 1;
    explore(2, || {
        let (ring, slots, wire) = opened();
        let there = Arc::clone(&wire);
        let completer = thread::spawn(move || {
            let mut done = 0;
            while done < POSTS {
                if there.posted.load(Ordering::Acquire) == done {
                    yield_now();
                    continue;
                }
                let (cookie, info) = ring.take(done).expect("it is outstanding");
                assert_eq!((cookie, info.extra()), (100 + u64::from(done), done.into()));
                done += 1;
            }
        });
        for number in 0..POSTS {
            // A post at its limit waits until the tail has passed a slot.
            while number.wrapping_sub(ring.tail()) >= DEPTH {
                yield_now();
            }
            let info = SlotInfo::new(DtoOp::Send, 0, number.into());
            slots.at(number).fill(100 + u64::from(number), info);
            wire.posted.store(number + 1, Ordering::Release);
        }
        completer.join().unwrap();
        assert_eq!(ring.tail(), POSTS);
    });
}

#[test]
fn a_signaled_completion_frees_the_unsignaled_posts_before_it() {
    explore(3, || {
        let (ring, slots, wire) = opened();
        let there = Arc::clone(&wire);
        let completer = thread::spawn(move || {
            while there.posted.load(Ordering::Acquire) < DEPTH {
                yield_now();
            }
            // Only the last request of the round completes.
            assert_eq!(ring.take(DEPTH - 1).map(|(cookie, _)| cookie), Some(1));
            assert_eq!(ring.take(DEPTH - 1), None, "the same completion twice");
        });
        for number in 0..DEPTH {
            slots.at(number).fill(
                u64::from(number),
                SlotInfo::new(DtoOp::Send, SlotInfo::SUPPRESSED, 0),
            );
            wire.posted.store(number + 1, Ordering::Release);
        }
        while ring.tail() != DEPTH {
            yield_now();
        }
        // No thread reads the slots any more.
        slots.at(DEPTH).fill(77, SlotInfo::default());
        completer.join().unwrap();
        assert_eq!(ring.find(slots, DEPTH).map(|(cookie, _)| cookie), Some(77));
    });
}

#[test]
fn a_new_generation_is_seen_with_its_empty_ring() {
    explore(3, || {
        let (ring, _, _) = opened();
        // Seven requests of the first generation are complete.
        ring.done(6);
        let completer = thread::spawn(move || {
            // A completion of the second generation, early or late, finds the new ring.
            if ring.generation() == 2 {
                assert_eq!(ring.tail(), 0);
            }
        });
        ring.open(DEPTH).unwrap();
        ring.begin(2);
        completer.join().unwrap();
    });
}
