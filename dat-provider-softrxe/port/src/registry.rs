//! The slots and services of an address, and the processes that have them. Pure.

use std::collections::HashMap;

use crate::letter::Addressee;

/// A process that claims things.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Owner {
    /// The holder itself.
    Holder,
    /// The member of this number.
    Member(u64),
}

/// Things that one user may have at most where several users share a holder, so that no user keeps the others out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Most {
    /// Processes.
    pub members: usize,
    /// Slots.
    pub slots: usize,
    /// Services; also where all processes are of one user.
    pub services: usize,
}

impl Default for Most {
    fn default() -> Self {
        Self {
            members: 512,
            slots: 512,
            services: 16_384,
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Registry {
    owners: HashMap<Addressee, (Owner, u32)>,
    /// Processes that get a thing when its owner gives it back, where all processes are of one user.
    waiting: HashMap<Addressee, Vec<(Owner, u32)>>,
    /// What belonged to a user before the holder was restarted.
    reserved: HashMap<Addressee, u32>,
    /// Slots that one user may have; `None`: all.
    most_slots: Option<usize>,
    /// Services that one user may have.
    most_services: usize,
    /// Services and slots of each user.
    counts: HashMap<u32, [usize; 2]>,
    changed: bool,
}

const fn kind(what: Addressee) -> usize {
    match what {
        Addressee::Slot(_) => 0,
        Addressee::Service(_) => 1,
    }
}

impl Default for Registry {
    /// An empty one for the processes of one user.
    fn default() -> Self {
        Self {
            owners: HashMap::new(),
            waiting: HashMap::new(),
            reserved: HashMap::new(),
            most_slots: None,
            most_services: Most::default().services,
            counts: HashMap::new(),
            changed: false,
        }
    }
}

impl Registry {
    /// An empty one for the processes of several users, each of which may have so much.
    #[must_use]
    pub fn with_most(most: Most) -> Self {
        Self {
            most_slots: Some(most.slots),
            most_services: most.services,
            ..Self::default()
        }
    }

    /// Gives `what` to `owner`, a process of user `uid`. `false`: another one has it, or the user has too many. Where
    /// all processes are of one user, `owner` gets it when the other one gives it back: a process that has just ended
    /// may not have been noticed yet.
    pub fn claim(&mut self, what: Addressee, owner: Owner, uid: u32) -> bool {
        if let Some((has, _)) = self.owners.get(&what) {
            let has = *has == owner;
            if !has && self.most_slots.is_none() {
                let waiting = self.waiting.entry(what).or_default();
                if !waiting.iter().any(|(other, _)| *other == owner) {
                    waiting.push((owner, uid));
                }
            }
            return has;
        }
        if self.reserved.get(&what).is_some_and(|of| *of != uid) {
            return false;
        }
        let count = &mut self.counts.entry(uid).or_default()[kind(what)];
        let most = match what {
            Addressee::Slot(_) => self.most_slots.unwrap_or(usize::MAX),
            Addressee::Service(_) => self.most_services,
        };
        if *count >= most {
            return false;
        }
        *count += 1;
        self.owners.insert(what, (owner, uid));
        self.changed = true;
        true
    }

    /// Takes `what` back if `owner` has it, or its wish to have it.
    pub fn release(&mut self, what: Addressee, owner: Owner) {
        if let Some(waiting) = self.waiting.get_mut(&what) {
            waiting.retain(|(other, _)| *other != owner);
        }
        if self.owners.get(&what).is_some_and(|(has, _)| *has == owner)
            && let Some((_, uid)) = self.owners.remove(&what)
        {
            self.count_off(what, uid);
        }
    }

    /// Takes back all that `owner` has.
    pub fn forget(&mut self, owner: Owner) {
        for waiting in self.waiting.values_mut() {
            waiting.retain(|(other, _)| *other != owner);
        }
        let gone = self.owners.extract_if(|_, (has, _)| *has == owner);
        let gone: Vec<(Addressee, u32)> = gone.map(|(what, (_, uid))| (what, uid)).collect();
        for (what, uid) in gone {
            self.count_off(what, uid);
        }
    }

    fn count_off(&mut self, what: Addressee, uid: u32) {
        self.changed = true;
        if let Some(counts) = self.counts.get_mut(&uid) {
            counts[kind(what)] -= 1;
            if counts.iter().all(|count| *count == 0) {
                self.counts.remove(&uid);
            }
        }
        let waiting = self.waiting.remove(&what).unwrap_or_default();
        if let Some((first, others)) = waiting.split_first() {
            self.claim(what, first.0, first.1);
            self.waiting.insert(what, others.to_vec());
        }
    }

    /// The process that has `what`.
    #[must_use]
    pub fn owner(&self, what: Addressee) -> Option<Owner> {
        self.owners.get(&what).map(|(owner, _)| *owner)
    }

    /// Entries of all tables: what the registry takes of memory grows with it.
    #[must_use]
    pub fn entries(&self) -> usize {
        let waiting = self.waiting.values().map(|waiting| 1 + waiting.len());
        self.owners.len() + waiting.sum::<usize>() + self.reserved.len() + self.counts.len()
    }

    /// Keeps `what` for the processes of `uid` until [`Registry::open_to_all`].
    pub fn reserve(&mut self, what: Addressee, uid: u32) {
        self.reserved.insert(what, uid);
    }

    /// Ends all reservations.
    pub fn open_to_all(&mut self) {
        self.changed |= !self.reserved.is_empty();
        self.reserved.clear();
    }

    /// Returns true if [`Registry::changes`] has something to say.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// All that is had or reserved, with its user, if that changed since the last call.
    pub fn changes(&mut self) -> Option<Vec<(Addressee, u32)>> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let mut all = self.reserved.clone();
        all.extend(self.owners.iter().map(|(what, (_, uid))| (*what, *uid)));
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_unstable();
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Owner = Owner::Member(1);
    const B: Owner = Owner::Member(2);

    fn with_most_slots(slots: usize) -> Registry {
        Registry::with_most(Most {
            slots,
            ..Most::default()
        })
    }

    #[test]
    fn a_thing_has_one_owner_until_it_is_given_back() {
        let mut registry = with_most_slots(9);
        for what in [Addressee::Slot(5), Addressee::Service(5)] {
            assert_eq!(registry.owner(what), None);
            assert!(registry.claim(what, A, 10));
            assert!(registry.claim(what, A, 10), "again");
            assert!(!registry.claim(what, B, 10) && !registry.claim(what, Owner::Holder, 10));
            registry.release(what, B);
            assert_eq!(registry.owner(what), Some(A));
        }
        registry.release(Addressee::Slot(5), A);
        assert!(registry.claim(Addressee::Slot(5), B, 11));
        registry.forget(A);
        assert_eq!(registry.owner(Addressee::Service(5)), None);
        assert_eq!(registry.owner(Addressee::Slot(5)), Some(B));
    }

    #[test]
    fn the_next_of_the_user_gets_what_is_given_back() {
        let mut registry = Registry::default();
        let what = Addressee::Service(5);
        assert!(registry.claim(what, A, 10));
        for next in [B, B, Owner::Holder, Owner::Member(3)] {
            assert!(!registry.claim(what, next, 10));
        }
        registry.release(what, Owner::Holder);
        registry.forget(A);
        assert_eq!(registry.owner(what), Some(B));
        registry.release(what, B);
        assert_eq!(registry.owner(what), Some(Owner::Member(3)));
        registry.forget(Owner::Member(3));
        assert_eq!(registry.owner(what), None);
        assert!(registry.counts.is_empty() && registry.waiting.values().all(Vec::is_empty));
    }

    #[test]
    fn a_user_cannot_take_all() {
        let mut registry = with_most_slots(2);
        let slots = [1, 2, 3].map(Addressee::Slot);
        assert_eq!(
            slots.map(|what| registry.claim(what, A, 10)),
            [true, true, false]
        );
        assert!(registry.claim(slots[2], B, 11));
        registry.release(slots[0], A);
        assert!(registry.claim(Addressee::Slot(9), A, 10));
        for id in 0..Most::default().services as u64 {
            assert!(registry.claim(Addressee::Service(id), A, 10));
        }
        assert!(!registry.claim(Addressee::Service(u64::MAX), A, 10));
        assert!(registry.claim(Addressee::Service(u64::MAX), B, 11));
        registry.forget(A);
        registry.forget(B);
        assert!(registry.counts.is_empty());
    }

    #[test]
    fn what_was_a_users_before_a_restart_is_kept_for_it() {
        let mut registry = Registry::default();
        let (first, second) = (Addressee::Slot(1), Addressee::Service(2));
        registry.reserve(first, 10);
        registry.reserve(second, 10);
        assert!(!registry.claim(first, B, 11));
        assert!(registry.claim(first, A, 10));
        assert_eq!(registry.changes(), Some(vec![(first, 10), (second, 10)]));
        assert_eq!(registry.changes(), None);
        registry.open_to_all();
        assert_eq!(registry.changes(), Some(vec![(first, 10)]));
        assert!(
            !registry.claim(first, B, 11),
            "it is had, not only reserved"
        );
        assert!(registry.claim(second, B, 11));
    }
}
