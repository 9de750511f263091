//! Loom models of the SRQ's slots. Each test's name is a statement that holds in every order of the threads.

use std::sync::Arc;

use dat_loom::{explore, thread};

use super::*;

/// Returns as many slots as one chunk has in these models.
fn slots() -> Arc<Slots> {
    let slots = Slots::default();
    slots.open(MIN_SLOTS as u32).unwrap();
    Arc::new(slots)
}

/// Checks that every slot can be taken once.
fn assert_all_free(slots: &Slots) {
    let mut numbers: Vec<u32> = std::iter::from_fn(|| slots.take(0)).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..MIN_SLOTS as u32).collect::<Vec<_>>());
}

#[test]
fn two_release_while_one_takes_and_no_slot_is_lost_or_doubled() {
    explore(2, || {
        let slots = slots();
        let numbers = [slots.take(10).unwrap(), slots.take(11).unwrap()];
        let givers = [0, 1].map(|n| {
            let slots = Arc::clone(&slots);
            thread::spawn(move || assert_eq!(slots.release(numbers[n]), Some(10 + n as u64)))
        });
        let taken = slots.take(12);
        for giver in givers {
            giver.join().unwrap();
        }
        if let Some(number) = taken {
            assert_eq!(slots.release(number), Some(12));
        }
        assert_eq!(slots.taken(), 0);
        assert_all_free(&slots);
    });
}

#[test]
fn the_free_list_is_whole_though_a_slot_comes_and_goes_while_another_is_taken() {
    // ABA: the first free slot is the same again, its successor is not.
    explore(3, || {
        let slots = slots();
        let first = slots.take(1).unwrap();
        let other = Arc::clone(&slots);
        let giver = thread::spawn(move || other.release(first));
        let mut held: Vec<u32> = std::iter::from_fn(|| slots.take(2)).collect();
        assert_eq!(giver.join().unwrap(), Some(1));
        for number in held.drain(..) {
            assert_eq!(slots.release(number), Some(2));
        }
        assert_all_free(&slots);
    });
}

#[test]
fn each_cookie_of_a_receive_that_is_completed_twice_comes_back_once() {
    explore(3, || {
        let slots = slots();
        let number = slots.take(1).unwrap();
        let other = Arc::clone(&slots);
        let twice = thread::spawn(move || other.release(number));
        let mine = slots.release(number);
        // The consumer posts the next receive as soon as it has the event of the first.
        let next = slots.take(2).unwrap();
        let theirs = twice.join().unwrap();
        let last = if next == number && theirs == Some(2) {
            None
        } else {
            slots.release(next)
        };
        let mut cookies: Vec<u64> = [mine, theirs, last].into_iter().flatten().collect();
        cookies.sort_unstable();
        assert_eq!(cookies, [1, 2], "each cookie comes back once");
    });
}
