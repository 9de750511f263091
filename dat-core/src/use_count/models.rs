//! Loom models of use counts. Each test's name is a statement that holds in every order of the threads.

use std::sync::Arc;

use dat_loom::{Watched, explore, thread};

use super::*;

const DEAD: Subtype = Subtype::InvalidHandlePz;
const IN_USE: Subtype = Subtype::InvalidStatePzInUse;

/// Object with its head, and parts that the thread that frees it takes out.
struct Object {
    head: &'static Head,
    parts: Watched<Option<u32>>,
}

impl Object {
    fn new() -> Arc<Self> {
        let head: &'static Head = Box::leak(Box::default());
        head.begin(0, 0);
        head.publish(0);
        let parts = Watched::new(Some(7));
        Arc::new(Self { head, parts })
    }

    /// Claims the object, as a create that uses it does.
    fn claim_and_use(&self) -> bool {
        let claim = self.head.claim(DEAD);
        if claim.is_ok() {
            assert_eq!(self.parts.read(), Some(7), "freed under a claim");
        }
        claim.is_ok()
    }

    /// Frees the object.
    fn free(&self) -> bool {
        let won = self.head.retire(DEAD, IN_USE).is_ok();
        if won {
            self.parts.write(None);
        }
        won
    }
}

#[test]
fn a_claim_and_a_free_have_one_winner() {
    explore(3, || {
        let object = Object::new();
        let other = Arc::clone(&object);
        let claimer = thread::spawn(move || other.claim_and_use());
        let freed = object.free();
        let claimed = claimer.join().unwrap();
        assert!(freed || claimed, "both were refused");
        assert_eq!(object.head.alive(), !freed);
        assert_eq!(object.free(), !freed, "the claim was given back");
    });
}

#[test]
fn at_most_one_of_two_frees_beside_a_claim_wins() {
    explore(2, || {
        let object = Object::new();
        let (one, two) = (Arc::clone(&object), Arc::clone(&object));
        let claimer = thread::spawn(move || one.claim_and_use());
        let freer = thread::spawn(move || two.free());
        let mine = object.free();
        let theirs = freer.join().unwrap();
        claimer.join().unwrap();
        assert!(!(mine && theirs), "freed twice");
        assert_eq!(object.free(), !(mine || theirs), "freed once in the end");
    });
}

#[test]
fn a_claim_of_an_earlier_generation_does_not_change_the_next() {
    explore(3, || {
        let object = Object::new();
        let old = object.head.claim(DEAD).unwrap();
        let dropper = thread::spawn(move || drop(old));
        // An abrupt close frees the object, and another create reuses it at once.
        let closed = object.head.retire_claimed(1, DEAD, IN_USE).is_ok();
        if closed {
            object.head.begin(0, 0);
            object.head.publish(0);
        }
        let new = object.head.claim(DEAD).unwrap();
        dropper.join().unwrap();
        assert_eq!(object.head.users(), 1, "the new claim stands");
        drop(new);
        assert_eq!(object.head.users(), 0);
    });
}

#[test]
fn replacing_the_word_does_not_revive_a_freed_object() {
    const OTHER: u64 = crate::head::ALIVE | 2;
    explore(3, || {
        let object = Object::new();
        let other = Arc::clone(&object);
        let poster = thread::spawn(move || {
            let word = other.head.word.load(Ordering::Relaxed);
            if word != 0 {
                other.head.replace_word(word, OTHER);
            }
        });
        assert!(object.free());
        poster.join().unwrap();
        assert!(!object.head.alive());
    });
}
