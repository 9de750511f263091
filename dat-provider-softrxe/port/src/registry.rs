//! The slots and services of an address, and the processes that have them. Pure.

use std::collections::{HashMap, HashSet};

use crate::message::Destination;
use crate::slot::SLOTS;

/// A process that can claim slots and services.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Owner {
    /// The holder itself.
    Holder,
    /// The member with this number.
    Member(u64),
}

/// Limits where several users share a holder, so that no user keeps the others out. Members and slots are shared by
/// [`within_fair_share`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quotas {
    /// Members of all users together.
    pub members_total: usize,
    /// Members of one user, even if more could be admitted.
    pub members_per_user: usize,
    /// Slots of all users together.
    pub slots: usize,
    /// Services of one user; also if all processes belong to one user.
    pub services_per_user: usize,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            members_total: 1 << 20,
            members_per_user: 512,
            // 10 bits without slot 0.
            slots: 1023,
            services_per_user: 16_384,
        }
    }
}

/// Divisor of the reserve: 1/4 of all slots (members) is for users that have none yet.
const RESERVE_DIVISOR: usize = 4;

/// Returns true if a user that has `own` things may get another one, while `taken` of `all` are taken.
///
/// A quarter of all is reserved for users that have none: such a user gets one while any is free. Of the rest a user
/// gets another one while it has less than half as many as are free. So one user alone gets a third of the rest, and
/// each further user a third of what is left. It takes 271 users to take all 1,023 slots.
#[must_use]
pub const fn within_fair_share(own: usize, taken: usize, all: usize) -> bool {
    let free = all.saturating_sub(taken);
    if own == 0 {
        return free > 0;
    }
    own.saturating_mul(2) < free.saturating_sub(all / RESERVE_DIVISOR)
}

/// The owners of the slots and services of an address.
#[derive(Debug)]
pub struct Registry {
    owners: HashMap<Destination, (Owner, u32)>,
    /// What each process has. A process that ends costs what it had, and not a search among what all others have.
    held: HashMap<Owner, HashSet<Destination>>,
    /// Processes of the same user that get a slot or service when its owner releases it.
    waiting: HashMap<Destination, Vec<(Owner, u32)>>,
    /// Users of slots and services as of before the holder was restarted.
    reserved: HashMap<Destination, u32>,
    /// Number of reserved slots that no process has claimed yet.
    reserved_slots_free: usize,
    /// Number of slots that several users share; `None` if all processes belong to one user.
    shared_slots: Option<usize>,
    /// Maximum number of services of one user.
    services_per_user: usize,
    /// Numbers of slots and of services by uid.
    counts: HashMap<u32, [usize; 2]>,
    changed: bool,
}

const fn kind(what: Destination) -> usize {
    match what {
        Destination::Slot(_) => 0,
        Destination::Service(_) => 1,
    }
}

impl Default for Registry {
    /// Creates an empty registry for the processes of one user.
    fn default() -> Self {
        Self {
            owners: HashMap::new(),
            held: HashMap::new(),
            waiting: HashMap::new(),
            reserved: HashMap::new(),
            reserved_slots_free: 0,
            shared_slots: None,
            services_per_user: Quotas::default().services_per_user,
            counts: HashMap::new(),
            changed: false,
        }
    }
}

impl Registry {
    /// Creates an empty registry for the processes of several users, with these limits.
    #[must_use]
    pub fn with_quotas(quotas: Quotas) -> Self {
        Self {
            shared_slots: Some(quotas.slots),
            services_per_user: quotas.services_per_user,
            ..Self::default()
        }
    }

    /// Gives `what` to `owner`, a process of user `uid`. Returns false if another process has it or the user has too
    /// many. If all processes belong to one user, `owner` gets it when the other one releases it: the end of that
    /// process may not have been noticed yet.
    pub fn claim(&mut self, what: Destination, owner: Owner, uid: u32) -> bool {
        // A message that names no engine leads to slot 0. It may be another user's.
        if matches!(what, Destination::Slot(slot) if !(1..SLOTS).contains(&slot)) {
            return false;
        }
        if let Some((has, _)) = self.owners.get(&what) {
            let has = *has == owner;
            if !has && self.shared_slots.is_none() {
                let waiting = self.waiting.entry(what).or_default();
                if !waiting.iter().any(|(other, _)| *other == owner) {
                    waiting.push((owner, uid));
                }
            }
            return has;
        }
        let own = self.counts.get(&uid).map_or(0, |all| all[kind(what)]);
        let may = match (self.reserved.get(&what), what, self.shared_slots) {
            (Some(of), ..) if *of != uid => false,
            (_, Destination::Service(_), _) => own < self.services_per_user,
            // The rule granted it before the restart.
            (Some(_), Destination::Slot(_), _) | (_, _, None) => true,
            (None, Destination::Slot(_), Some(all)) => {
                within_fair_share(own, self.slots_taken(), all)
            }
        };
        if !may {
            return false;
        }
        self.counts.entry(uid).or_default()[kind(what)] += 1;
        if self.is_reserved_slot(what) {
            self.reserved_slots_free -= 1;
        }
        self.owners.insert(what, (owner, uid));
        self.held.entry(owner).or_default().insert(what);
        self.changed = true;
        true
    }

    /// Returns the number of slots that a process has or that are reserved.
    fn slots_taken(&self) -> usize {
        let had = self.counts.values().map(|all| all[0]).sum::<usize>();
        had + self.reserved_slots_free
    }

    /// Releases `what` if `owner` has it, or ends its wait for it.
    pub fn release(&mut self, what: Destination, owner: Owner) {
        if let Some(waiting) = self.waiting.get_mut(&what) {
            waiting.retain(|(other, _)| *other != owner);
        }
        if self.owners.get(&what).is_some_and(|(has, _)| *has == owner)
            && let Some((_, uid)) = self.owners.remove(&what)
        {
            if let Some(held) = self.held.get_mut(&owner) {
                held.remove(&what);
                if held.is_empty() {
                    self.held.remove(&owner);
                }
            }
            self.count_off(what, uid);
        }
    }

    /// Releases all that `owner` has.
    pub fn forget(&mut self, owner: Owner) {
        for waiting in self.waiting.values_mut() {
            waiting.retain(|(other, _)| *other != owner);
        }
        for what in self.held.remove(&owner).unwrap_or_default() {
            if let Some((_, uid)) = self.owners.remove(&what) {
                self.count_off(what, uid);
            }
        }
    }

    fn is_reserved_slot(&self, what: Destination) -> bool {
        matches!(what, Destination::Slot(_)) && self.reserved.contains_key(&what)
    }

    fn count_off(&mut self, what: Destination, uid: u32) {
        self.changed = true;
        if self.is_reserved_slot(what) {
            self.reserved_slots_free += 1;
        }
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

    /// Returns the process that has `what`.
    #[must_use]
    pub fn owner(&self, what: Destination) -> Option<Owner> {
        self.owners.get(&what).map(|(owner, _)| *owner)
    }

    /// Returns the number of entries in all tables, with which the registry's memory grows.
    #[must_use]
    pub fn entries(&self) -> usize {
        let waiting = self.waiting.values().map(|waiting| 1 + waiting.len());
        let held = self.held.values().map(|held| 1 + held.len());
        let claims = self.owners.len() + held.sum::<usize>() + waiting.sum::<usize>();
        claims + self.reserved.len() + self.counts.len()
    }

    /// Reserves `what` for the processes of `uid` until [`Registry::clear_reservations`].
    pub fn reserve(&mut self, what: Destination, uid: u32) {
        let before = self.reserved.insert(what, uid);
        let slot = matches!(what, Destination::Slot(_));
        if slot && before.is_none() && !self.owners.contains_key(&what) {
            self.reserved_slots_free += 1;
        }
    }

    /// Ends all reservations.
    pub fn clear_reservations(&mut self) {
        self.changed |= !self.reserved.is_empty();
        self.reserved.clear();
        self.reserved_slots_free = 0;
    }

    /// Returns true if [`Registry::changes`] has changes to report.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Makes [`Registry::changes`] report everything again, because it could not be saved.
    pub fn mark_changed(&mut self) {
        self.changed = true;
    }

    /// Returns all claims and reservations with their uid, if they changed since the last call.
    pub fn changes(&mut self) -> Option<Vec<(Destination, u32)>> {
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

    /// Time of some ends of processes that have nothing, the shortest of three.
    fn ends(registry: &mut Registry) -> std::time::Duration {
        let mut once = || {
            let begin = std::time::Instant::now();
            (0..2000).for_each(|_| registry.forget(B));
            begin.elapsed()
        };
        [once(), once(), once()].into_iter().min().unwrap()
    }

    #[test]
    fn a_slot_that_no_engine_has_is_given_to_nobody() {
        for mut registry in [
            Registry::default(),
            Registry::with_quotas(Quotas::default()),
        ] {
            for slot in [0, SLOTS, u16::MAX] {
                assert!(!registry.claim(Destination::Slot(slot), A, 1), "{slot}");
                assert_eq!(registry.owner(Destination::Slot(slot)), None);
            }
            assert!(registry.claim(Destination::Slot(SLOTS - 1), A, 1));
        }
    }

    /// Any process can join a holder for all users and end, thousands of times a second.
    #[test]
    fn the_end_of_a_process_costs_what_it_had() {
        let mut registry = Registry::with_quotas(Quotas::default());
        let empty = ends(&mut registry);
        for id in 0..16_384 {
            assert!(registry.claim(Destination::Service(id), A, 1));
        }
        let full = ends(&mut registry);
        let most = 50 * empty + std::time::Duration::from_millis(10);
        assert!(full < most, "{full:?} instead of {empty:?}");
        registry.forget(A);
        assert_eq!(registry.entries(), 0);
    }

    fn with_most_slots(slots: usize) -> Registry {
        Registry::with_quotas(Quotas {
            slots,
            ..Quotas::default()
        })
    }

    #[test]
    fn a_slot_or_service_has_one_owner_until_it_is_released() {
        let mut registry = with_most_slots(9);
        for what in [Destination::Slot(5), Destination::Service(5)] {
            assert_eq!(registry.owner(what), None);
            assert!(registry.claim(what, A, 10));
            assert!(registry.claim(what, A, 10), "again");
            assert!(!registry.claim(what, B, 10) && !registry.claim(what, Owner::Holder, 10));
            registry.release(what, B);
            assert_eq!(registry.owner(what), Some(A));
        }
        registry.release(Destination::Slot(5), A);
        assert!(registry.claim(Destination::Slot(5), B, 11));
        registry.forget(A);
        assert_eq!(registry.owner(Destination::Service(5)), None);
        assert_eq!(registry.owner(Destination::Slot(5)), Some(B));
    }

    #[test]
    fn the_next_process_of_the_user_gets_what_is_released() {
        let mut registry = Registry::default();
        let what = Destination::Service(5);
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
    fn a_share_is_less_than_half_as_much_as_is_free_beside_the_reserve() {
        for (own, taken, all, expected) in [
            (0, 0, 1023, true),
            (255, 255, 1023, true),
            (256, 256, 1023, false),
            // Another user has 256 of them: a third of the rest.
            (170, 426, 1023, true),
            (171, 427, 1023, false),
            (100, 567, 1023, true),
            (100, 568, 1023, false),
            // The reserve is for users that have none.
            (1, 766, 1023, false),
            (0, 1022, 1023, true),
            (0, 1023, 1023, false),
            (0, 2000, 1023, false),
            (usize::MAX, 0, usize::MAX, false),
        ] {
            assert_eq!(
                within_fair_share(own, taken, all),
                expected,
                "{own} {taken} {all}"
            );
        }
    }

    #[test]
    fn users_that_take_all_they_can_leave_slots_for_hundreds_of_others() {
        let mut registry = Registry::with_quotas(Quotas::default());
        let mut had = Vec::new();
        for uid in 0..270 {
            let owner = Owner::Member(uid.into());
            let claims = (1..1024).map(|slot| registry.claim(Destination::Slot(slot), owner, uid));
            had.push(claims.filter(|granted| *granted).count());
        }
        // Claims of slots that another user has are refused as well, so the sums count.
        assert_eq!(had[..3], [256, 171, 114]);
        assert!(had.iter().all(|count| *count > 0), "{had:?}");
        assert_eq!(1023 - had.iter().sum::<usize>(), 1);
    }

    #[test]
    fn after_a_restart_a_user_gets_its_slots_though_they_are_more_than_its_share_now() {
        let mut registry = with_most_slots(9);
        for (slot, uid) in [
            (1, 10),
            (2, 10),
            (3, 10),
            (4, 11),
            (5, 11),
            (6, 12),
            (7, 13),
        ] {
            registry.reserve(Destination::Slot(slot), uid);
        }
        let mut take = |slot, uid| registry.claim(Destination::Slot(slot), A, uid);
        assert_eq!([1, 2, 3].map(|slot| take(slot, 10)), [true; 3]);
        // Slots reserved for others are not free: two of nine are.
        assert!(!take(8, 10) && take(8, 14) && !take(9, 14));
        registry.release(Destination::Slot(1), A);
        assert!(registry.claim(Destination::Slot(1), B, 10));
        assert_eq!(registry.slots_taken(), 8);
        registry.clear_reservations();
        assert_eq!(registry.slots_taken(), 4);
        assert!(registry.claim(Destination::Slot(4), B, 14));
    }

    #[test]
    fn a_user_cannot_take_all() {
        let mut registry = with_most_slots(6);
        let slots = [1, 2, 3].map(Destination::Slot);
        assert_eq!(
            slots.map(|what| registry.claim(what, A, 10)),
            [true, true, false]
        );
        assert!(registry.claim(slots[2], B, 11));
        registry.release(slots[0], A);
        assert!(registry.claim(Destination::Slot(9), A, 10));
        for id in 0..Quotas::default().services_per_user as u64 {
            assert!(registry.claim(Destination::Service(id), A, 10));
        }
        assert!(!registry.claim(Destination::Service(u64::MAX), A, 10));
        assert!(registry.claim(Destination::Service(u64::MAX), B, 11));
        registry.forget(A);
        registry.forget(B);
        assert!(registry.counts.is_empty());
    }

    #[test]
    fn slots_and_services_are_reserved_for_their_user_after_a_restart() {
        let mut registry = Registry::default();
        let (first, second) = (Destination::Slot(1), Destination::Service(2));
        registry.reserve(first, 10);
        registry.reserve(second, 10);
        assert!(!registry.claim(first, B, 11));
        assert!(registry.claim(first, A, 10));
        assert_eq!(registry.changes(), Some(vec![(first, 10), (second, 10)]));
        assert_eq!(registry.changes(), None);
        registry.clear_reservations();
        assert_eq!(registry.changes(), Some(vec![(first, 10)]));
        assert!(
            !registry.claim(first, B, 11),
            "it is had, not only reserved"
        );
        assert!(registry.claim(second, B, 11));
    }
}
