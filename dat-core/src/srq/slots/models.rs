//! Loom's models of the SRQ's slots: each name is what holds in every order that the threads can take.

use std::sync::Arc;

use dat_loom::{explore, thread};

use super::*;

/// As many slots as one chunk of the models has.
fn slots() -> Arc<Slots> {
    let slots = Slots::default();
    slots.open(LEAST as u32).unwrap();
    Arc::new(slots)
}

/// Every slot can be taken once.
fn all_are_there(slots: &Slots) {
    let mut numbers: Vec<u32> = std::iter::from_fn(|| slots.take(0)).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..LEAST as u32).collect::<Vec<_>>());
}

#[test]
fn two_give_back_while_one_takes_and_no_slot_is_lost_or_doubled() {
    explore(2, || {
        let slots = slots();
        let numbers = [slots.take(10).unwrap(), slots.take(11).unwrap()];
        let givers = [0, 1].map(|n| {
            let slots = Arc::clone(&slots);
            thread::spawn(move || assert_eq!(slots.give_back(numbers[n]), Some(10 + n as u64)))
        });
        let taken = slots.take(12);
        for giver in givers {
            giver.join().unwrap();
        }
        if let Some(number) = taken {
            assert_eq!(slots.give_back(number), Some(12));
        }
        assert_eq!(slots.taken(), 0);
        all_are_there(&slots);
    });
}

#[test]
fn the_free_list_is_whole_though_a_slot_comes_and_goes_while_another_is_taken() {
    // The ABA question: the first free slot is the same again, its successor is not.
    explore(3, || {
        let slots = slots();
        let first = slots.take(1).unwrap();
        let other = Arc::clone(&slots);
        let giver = thread::spawn(move || other.give_back(first));
        let mut held: Vec<u32> = std::iter::from_fn(|| slots.take(2)).collect();
        assert_eq!(giver.join().unwrap(), Some(1));
        for number in held.drain(..) {
            assert_eq!(slots.give_back(number), Some(2));
        }
        all_are_there(&slots);
    });
}

#[test]
fn a_receive_that_is_completed_twice_is_told_once() {
    explore(3, || {
        let slots = slots();
        let number = slots.take(1).unwrap();
        let other = Arc::clone(&slots);
        let twice = thread::spawn(move || other.give_back(number));
        let mine = slots.give_back(number);
        // The consumer posts the next receive as soon as it has heard of the first.
        let next = slots.take(2).unwrap();
        let theirs = twice.join().unwrap();
        let last = if next == number && theirs == Some(2) {
            None
        } else {
            slots.give_back(next)
        };
        let mut told: Vec<u64> = [mine, theirs, last].into_iter().flatten().collect();
        told.sort_unstable();
        assert_eq!(told, [1, 2], "each cookie comes back once");
    });
}
