//! The members of a holder: the user of each, and its slots and services. Pure.

use std::collections::HashMap;

use crate::message::{Destination, FromMember};
use crate::registry::{Owner, Quotas, Registry, within_fair_share};

/// What the holder does about a packet of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Response {
    /// Admit the member.
    Welcome,
    /// Answer a claim: true if it is granted.
    Answer(Destination, bool),
    /// Send no answer.
    Nothing,
    /// Keep this UDP port of the member bound when it dies.
    KeepPort(u16),
    /// Forget the sender: it is no member.
    NoMember,
}

/// The members of a holder, by number.
#[derive(Debug, Default)]
pub struct Members {
    /// Uid by member number.
    users: HashMap<u64, u32>,
    next: u64,
    /// Limits for several users; `None` if all members belong to one user, which has no limit.
    quotas: Option<Quotas>,
    registry: Registry,
}

impl Members {
    /// Creates an empty table for members of several users, with these limits.
    #[must_use]
    pub fn for_all_users(quotas: Quotas) -> Self {
        Self {
            quotas: Some(quotas),
            registry: Registry::with_quotas(quotas),
            ..Self::default()
        }
    }

    /// Adds a process of user `uid` and returns its member number, which is never used again. `None`: the user has too
    /// many members.
    pub fn admit(&mut self, uid: u32) -> Option<u64> {
        if let Some(quotas) = self.quotas {
            let own = self.users.values().filter(|user| **user == uid).count();
            if own >= quotas.members_per_user
                || !within_fair_share(own, self.users.len(), quotas.members_total)
            {
                return None;
            }
        }
        let member = self.next;
        self.next += 1;
        self.users.insert(member, uid);
        Some(member)
    }

    /// Handles a packet of `member`.
    pub fn handle(&mut self, member: u64, packet: &[u8]) -> Response {
        let owner = Owner::Member(member);
        let Some(uid) = self.users.get(&member) else {
            return Response::NoMember;
        };
        match FromMember::decode(packet) {
            Some(FromMember::Hello) => Response::Welcome,
            Some(FromMember::Claim(what)) => {
                Response::Answer(what, self.registry.claim(what, owner, *uid))
            }
            Some(FromMember::Release(what)) => {
                self.registry.release(what, owner);
                Response::Nothing
            }
            Some(FromMember::DataPort(port)) => Response::KeepPort(port),
            // A member of a later release would join again, and send it again, without an end.
            None => Response::Nothing,
        }
    }

    /// Returns the user of `member`.
    #[must_use]
    pub fn uid(&self, member: u64) -> Option<u32> {
        self.users.get(&member).copied()
    }

    /// Removes `member` with all that it claimed.
    pub fn forget(&mut self, member: u64) {
        self.registry.forget(Owner::Member(member));
        self.users.remove(&member);
    }

    /// Returns the process that has `to`.
    #[must_use]
    pub fn owner(&self, to: Destination) -> Option<Owner> {
        self.registry.owner(to)
    }

    /// Returns what the members and the holder itself have claimed.
    pub fn registry(&mut self) -> &mut Registry {
        &mut self.registry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_user_are_limited_and_numbers_are_not_used_again() {
        let quotas = Quotas {
            members_per_user: 2,
            ..Quotas::default()
        };
        let mut members = Members::for_all_users(quotas);
        let numbers = [1000, 1000, 1000, 1001].map(|uid| members.admit(uid));
        assert_eq!(numbers, [Some(0), Some(1), None, Some(2)]);
        members.forget(1);
        assert_eq!(members.admit(1000), Some(3));
        let mut of_one = Members::default();
        assert!((0..1000).all(|number| of_one.admit(0) == Some(number)));
    }

    #[test]
    fn users_share_the_number_of_members() {
        let quotas = Quotas {
            members_total: 9,
            ..Quotas::default()
        };
        let mut members = Members::for_all_users(quotas);
        let mut admitted = |uid| (0..9).filter(|_| members.admit(uid).is_some()).count();
        assert_eq!(
            [10, 11, 12, 13, 14, 15].map(&mut admitted),
            [3, 2, 1, 1, 1, 1]
        );
        assert_eq!(admitted(16), 0);
        members.forget(0);
        assert_eq!(members.admit(10), None, "another user may need it");
        assert!(members.admit(16).is_some());
    }

    #[test]
    fn a_packet_is_handled_answered_or_ignored() {
        let mut members = Members::default();
        let member = members.admit(0).unwrap();
        let hello = FromMember::Hello.encode();
        assert_eq!(members.handle(member, &hello), Response::Welcome);
        assert_eq!(members.handle(member + 1, &hello), Response::NoMember);
        let what = Destination::Service(7);
        let claim = FromMember::Claim(what).encode();
        assert_eq!(members.handle(member, &claim), Response::Answer(what, true));
        assert_eq!(members.owner(what), Some(Owner::Member(member)));
        for unknown in [&claim[1..], &[0], &[5; 10], &[250; 64]] {
            assert_eq!(members.handle(member, unknown), Response::Nothing);
        }
        assert_eq!(members.owner(what), Some(Owner::Member(member)));
        assert_eq!(members.handle(member + 1, &claim), Response::NoMember);
        let release = FromMember::Release(what).encode();
        assert_eq!(members.handle(member, &release), Response::Nothing);
        assert_eq!(members.owner(what), None);
    }
}
