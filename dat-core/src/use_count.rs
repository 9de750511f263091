//! Use counts of objects, which decide whether an object can be freed.
//!
//! Each object's [`Head`] has one word for this: the generation of the object, and a count that is 0 while the object
//! is dead, 1 without claims, and 1 + n with n claims. A claim and a free race on that word alone, so exactly one of
//! them wins. A claimed object cannot be freed, and a freed object cannot be claimed. Of two frees one is refused. A
//! claim that outlives its object finds another generation in the word, and leaves it unchanged.
//!
//! | object | claimed by |
//! |---|---|
//! | PZ | LMR, RMR, EP, SRQ on it |
//! | LMR | RMRs bound to it, LMRs of type LMR |
//! | EVD | EPs, service points, the IA whose asynchronous errors it takes |
//! | CNO | EVDs |
//! | SRQ | EPs |
//!
//! An IA keeps the list of its objects itself, see [`crate::ia`].

use crate::error::{Error, Result, Subtype};
use crate::head::Head;
use crate::sync::Ordering;

/// Use-count word: the generation in its upper half, the count in its lower.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Uses {
    generation: u32,
    count: u32,
}

impl Uses {
    const fn of(word: u64) -> Self {
        Self {
            generation: (word >> 32) as u32,
            count: word as u32,
        }
    }

    const fn word(self) -> u64 {
        (self.generation as u64) << 32 | self.count as u64
    }
}

/// Claim on an object: while it exists, the object cannot be freed. Dropping it ends the claim.
#[derive(Debug)]
pub struct Claim {
    head: &'static Head,
    /// Generation of the claimed object: see [`Head::retire_claimed`].
    generation: u32,
}

impl Head {
    /// Begins the next generation, without claims.
    pub(crate) fn begin_use_count(&self) {
        let generation = Uses::of(self.uses.load(Ordering::Relaxed)).generation;
        let generation = generation.wrapping_add(1);
        self.uses.store(
            Uses {
                generation,
                count: 1,
            }
            .word(),
            Ordering::Release,
        );
    }

    /// Returns true if the object is dead: it was freed, or never created.
    pub(crate) fn is_retired(&self) -> bool {
        Uses::of(self.uses.load(Ordering::Relaxed)).count == 0
    }

    /// Claims the object.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` with `subtype` if it is dead.
    pub(crate) fn claim(&'static self, subtype: Subtype) -> Result<Claim> {
        let before = self
            .uses
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                (Uses::of(word).count != 0).then(|| word + 1)
            })
            .map_err(|_| Error::handle(subtype))?;
        Ok(Claim {
            head: self,
            generation: Uses::of(before).generation,
        })
    }

    /// Returns the number of claims.
    pub fn users(&self) -> u32 {
        Uses::of(self.uses.load(Ordering::Acquire))
            .count
            .saturating_sub(1)
    }

    /// Makes the object dead. Only one caller gets `Ok`: it then takes the object's parts out and recycles it.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` with `dead` if it was dead, `DAT_INVALID_STATE` with `in_use` while claimed.
    pub(crate) fn retire(&self, dead: Subtype, in_use: Subtype) -> Result<()> {
        self.retire_claimed(0, dead, in_use)
    }

    /// Makes the object dead although `claims` exist, whose holders must handle a dead object.
    ///
    /// # Errors
    /// As [`Head::retire`], if there is another number of claims.
    pub(crate) fn retire_claimed(&self, claims: u32, dead: Subtype, in_use: Subtype) -> Result<()> {
        let ended = self
            .uses
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                let Uses { generation, count } = Uses::of(word);
                (count == 1 + claims).then(|| {
                    Uses {
                        generation,
                        count: 0,
                    }
                    .word()
                })
            });
        match ended {
            Ok(_) => {
                // A swap, not a store: loom does not order a store among the exchanges of `replace_word`.
                self.word.swap(0, Ordering::Release);
                Ok(())
            }
            Err(word) if Uses::of(word).count == 0 => Err(Error::handle(dead)),
            Err(_) => Err(Error::state(in_use)),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = self
            .head
            .uses
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                // Claims of an earlier generation are void, see `retire_claimed`.
                let Uses { generation, count } = Uses::of(word);
                (generation == self.generation && count > 1).then(|| word - 1)
            });
    }
}

#[cfg(all(loom, test))]
mod models;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    fn head() -> &'static Head {
        Box::leak(Box::default())
    }

    const DEAD: Subtype = Subtype::InvalidHandlePz;
    const IN_USE: Subtype = Subtype::InvalidStatePzInUse;

    #[test]
    fn a_claimed_object_is_not_freed_and_a_dead_one_not_claimed() {
        let head = head();
        assert_eq!(head.claim(DEAD).unwrap_err(), Error::handle(DEAD));
        head.begin(0, 0);
        head.publish(0);
        let first = head.claim(DEAD).unwrap();
        let second = head.claim(DEAD).unwrap();
        assert_eq!(head.users(), 2);
        assert_eq!(head.retire(DEAD, IN_USE), Err(Error::state(IN_USE)));
        drop(first);
        assert_eq!(head.retire(DEAD, IN_USE), Err(Error::state(IN_USE)));
        drop(second);
        assert_eq!(head.retire(DEAD, IN_USE), Ok(()));
        assert!(!head.alive());
        assert_eq!(head.retire(DEAD, IN_USE), Err(Error::handle(DEAD)));
        assert_eq!(head.claim(DEAD).unwrap_err(), Error::handle(DEAD));
    }

    #[test]
    fn a_claim_that_outlives_its_object_is_void_in_the_next_generation() {
        let head = head();
        head.begin(0, 0);
        let old = head.claim(DEAD).unwrap();
        assert_eq!(head.retire_claimed(1, DEAD, IN_USE), Ok(()));
        head.begin(0, 0);
        let new = head.claim(DEAD).unwrap();
        drop(old);
        assert_eq!(head.users(), 1);
        drop(new);
        assert_eq!(head.users(), 0);
    }

    #[test]
    fn one_free_wins_among_many_frees_and_claims() {
        for _ in 0..if cfg!(miri) { 10 } else { 200 } {
            let head = head();
            head.begin(0, 0);
            head.publish(0);
            let won = AtomicU32::new(0);
            let held = AtomicU32::new(0);
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        if let Ok(claim) = head.claim(DEAD) {
                            held.fetch_add(1, Ordering::SeqCst);
                            assert!(head.alive(), "freed under a claim");
                            drop(claim);
                        }
                    });
                    scope.spawn(|| {
                        if head.retire(DEAD, IN_USE).is_ok() {
                            won.fetch_add(1, Ordering::SeqCst);
                        }
                    });
                }
            });
            let late = u32::from(head.retire(DEAD, IN_USE).is_ok());
            assert_eq!(won.into_inner() + late, 1);
        }
    }
}
