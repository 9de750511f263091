//! Who stands on whom, and who may be freed.
//!
//! Each object's [`Head`] holds one word: 0 while it is dead, 1 when nothing stands on it, 1 + n when n
//! others do. A claim and a free race on that word alone, so exactly one of them wins: an object that is
//! claimed cannot be freed, one that is freed cannot be claimed, and of two frees one is refused.
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

use std::sync::atomic::Ordering;

use crate::error::{Error, Result, Subtype};
use crate::head::Head;

/// The right to rely on an object: while it exists, the object is not freed. Dropping it gives it back.
#[derive(Debug)]
pub struct Claim {
    head: &'static Head,
    /// Which life of the object: see [`Head::retire_claimed`].
    generation: u32,
}

impl Head {
    /// Claims the object.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` with `subtype` if it is dead.
    pub(crate) fn claim(&'static self, subtype: Subtype) -> Result<Claim> {
        self.uses
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |uses| {
                (uses != 0).then(|| uses + 1)
            })
            .map_err(|_| Error::handle(subtype))?;
        Ok(Claim {
            head: self,
            generation: self.generation.load(Ordering::Acquire),
        })
    }

    /// How many claims there are.
    pub fn users(&self) -> u32 {
        self.uses.load(Ordering::Acquire).saturating_sub(1)
    }

    /// Ends the life of the object for whoever comes from now on. Only one caller gets `Ok`: it then
    /// takes the object's parts out and recycles it.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` with `dead` if it was dead, `DAT_INVALID_STATE` with `in_use` while claimed.
    pub(crate) fn retire(&self, dead: Subtype, in_use: Subtype) -> Result<()> {
        self.retire_claimed(0, dead, in_use)
    }

    /// As [`Head::retire`], with `claims` still standing, whose holders must cope with a dead object.
    ///
    /// # Errors
    /// As [`Head::retire`], if there is another number of claims.
    pub(crate) fn retire_claimed(&self, claims: u32, dead: Subtype, in_use: Subtype) -> Result<()> {
        match self
            .uses
            .compare_exchange(1 + claims, 0, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => {
                self.word.store(0, Ordering::Release);
                Ok(())
            }
            Err(0) => Err(Error::handle(dead)),
            Err(_) => Err(Error::state(in_use)),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The claims of an earlier life are void, see `retire_claimed`.
        if self.head.generation.load(Ordering::Acquire) == self.generation {
            let _ = self
                .head
                .uses
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |uses| {
                    (uses > 1).then(|| uses - 1)
                });
        }
    }
}

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
    fn a_claim_outlived_by_its_object_is_void_in_the_next_life() {
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
    fn of_many_frees_and_claims_one_free_wins_and_only_unclaimed() {
        for _ in 0..200 {
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
