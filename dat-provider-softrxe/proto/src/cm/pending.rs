//! Requests whose sender has not shown that it receives our answers: a limit for their number, and the choice of those to
//! drop.
//!
//! Any source address can stand in a REQ, and only the consumer's answer ends a request. So each address has a share of the
//! places, and each UDP port of an address a share of that. When all places are taken, the source with most requests loses
//! its oldest one. A new request of that same source is dropped without an answer; its sender repeats it. A request for a datagram service
//! stays for a while after its answer, which may be lost: these make room first. Each operation is
//! logarithmic in the number of requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};

use crate::time::Time;

/// Arrival number of a request; larger is younger.
type Ticket = u64;

/// Requests by address or port, ranked by their number.
#[derive(Debug)]
struct Shares<K> {
    held: HashMap<K, BTreeSet<Ticket>>,
    /// (count, `Reverse(oldest ticket)`, key): the last element loses a request first.
    ranks: BTreeSet<(usize, std::cmp::Reverse<Ticket>, K)>,
}

impl<K> Default for Shares<K> {
    fn default() -> Self {
        Self {
            held: HashMap::new(),
            ranks: BTreeSet::new(),
        }
    }
}

impl<K: Copy + Ord + Hash> Shares<K> {
    fn count(&self, key: K) -> usize {
        self.held.get(&key).map_or(0, BTreeSet::len)
    }

    /// Returns the key with most requests, and their number.
    fn largest(&self) -> Option<(K, usize)> {
        self.ranks.last().map(|(count, _, key)| (*key, *count))
    }

    fn oldest(&self, key: K) -> Option<Ticket> {
        self.held.get(&key)?.first().copied()
    }

    /// Changes the requests of `key` and updates its rank.
    fn change(&mut self, key: K, change: impl FnOnce(&mut BTreeSet<Ticket>)) {
        let tickets = self.held.entry(key).or_default();
        if let Some(oldest) = tickets.first() {
            let rank = (tickets.len(), std::cmp::Reverse(*oldest), key);
            self.ranks.remove(&rank);
        }
        change(tickets);
        match tickets.first() {
            Some(oldest) => {
                let rank = (tickets.len(), std::cmp::Reverse(*oldest), key);
                self.ranks.insert(rank);
            }
            None => drop(self.held.remove(&key)),
        }
    }

    fn add(&mut self, key: K, ticket: Ticket) {
        self.change(key, |tickets| {
            tickets.insert(ticket);
        });
    }

    fn remove(&mut self, key: K, ticket: Ticket) {
        self.change(key, |tickets| {
            tickets.remove(&ticket);
        });
    }
}

/// Decision on a new request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// Add it: a place is free.
    Admit,
    /// Add it after the request with this id was dropped.
    Displace(u32),
    /// Refuse it: its own source uses all of its places.
    Refuse,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    source: SocketAddr,
    ticket: Ticket,
    deadline: Time,
}

/// The requests that wait, with their limits; see the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct PendingRequests {
    entries: HashMap<u32, Entry>,
    by_ticket: BTreeMap<Ticket, u32>,
    addresses: Shares<IpAddr>,
    ports: HashMap<IpAddr, Shares<u16>>,
    /// Those that are answered.
    answered: HashMap<IpAddr, BTreeSet<Ticket>>,
    deadlines: BTreeSet<(Time, u32)>,
    next: Ticket,
}

impl PendingRequests {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Decides on a request from `source`, where `total` requests may wait, and `share` from one address.
    pub(crate) fn admission(&self, source: SocketAddr, total: usize, share: usize) -> Admission {
        let address = source.ip();
        let (mine, port) = (self.addresses.count(address), source.port());
        if mine < share && self.len() < total {
            return Admission::Admit;
        }
        if let Some(answered) = self.answered.get(&address) {
            return self.displace(answered.first().copied());
        }
        if mine >= share {
            // A process must not take the places of another process of its address.
            let Some(ports) = self.ports.get(&address) else {
                return Admission::Refuse;
            };
            return match ports.largest() {
                Some((largest, count)) if count > ports.count(port) => {
                    self.displace(ports.oldest(largest))
                }
                _ => Admission::Refuse,
            };
        }
        match self.addresses.largest() {
            Some((largest, count)) if count > mine => {
                let ports = self.ports.get(&largest);
                let port = ports.and_then(Shares::largest).map(|(port, _)| port);
                let oldest = ports.zip(port).and_then(|(ports, port)| ports.oldest(port));
                self.displace(oldest)
            }
            _ => Admission::Refuse,
        }
    }

    fn displace(&self, ticket: Option<Ticket>) -> Admission {
        let id = ticket.and_then(|ticket| self.by_ticket.get(&ticket));
        id.map_or(Admission::Refuse, |id| Admission::Displace(*id))
    }

    /// Adds the request `id` from `source`, which waits until `deadline`.
    pub(crate) fn add(&mut self, id: u32, source: SocketAddr, deadline: Time) {
        self.remove(id);
        self.next += 1;
        let ticket = self.next;
        let (address, port) = (source.ip(), source.port());
        self.addresses.add(address, ticket);
        self.ports.entry(address).or_default().add(port, ticket);
        self.by_ticket.insert(ticket, id);
        self.deadlines.insert((deadline, id));
        let entry = Entry {
            source,
            ticket,
            deadline,
        };
        self.entries.insert(id, entry);
    }

    /// Removes a request: its sender has shown that it is there, or the request is over.
    pub(crate) fn remove(&mut self, id: u32) {
        let Some(entry) = self.entries.remove(&id) else {
            return;
        };
        let (address, port) = (entry.source.ip(), entry.source.port());
        self.addresses.remove(address, entry.ticket);
        if let Some(ports) = self.ports.get_mut(&address) {
            ports.remove(port, entry.ticket);
            if ports.held.is_empty() {
                self.ports.remove(&address);
            }
        }
        if let Some(answered) = self.answered.get_mut(&address) {
            answered.remove(&entry.ticket);
            if answered.is_empty() {
                self.answered.remove(&address);
            }
        }
        self.by_ticket.remove(&entry.ticket);
        self.deadlines.remove(&(entry.deadline, id));
    }

    /// Records that a request is answered. It stays until `deadline`, for repetitions of it.
    pub(crate) fn answered(&mut self, id: u32, deadline: Time) {
        if let Some(Entry { source, ticket, .. }) = self.entries.get(&id) {
            let all = self.answered.entry(source.ip()).or_default();
            all.insert(*ticket);
        }
        self.wait_until(id, deadline);
    }

    /// Changes the deadline of a request.
    pub(crate) fn wait_until(&mut self, id: u32, deadline: Time) {
        if let Some(entry) = self.entries.get_mut(&id) {
            self.deadlines.remove(&(entry.deadline, id));
            entry.deadline = deadline;
            self.deadlines.insert((deadline, id));
        }
    }

    /// Returns the earliest deadline.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Returns a request whose deadline has passed, and the deadline.
    pub(crate) fn expired(&self, now: Time) -> Option<(Time, u32)> {
        self.deadlines.first().copied().filter(|(at, _)| *at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(address: u8, port: u16) -> SocketAddr {
        SocketAddr::new([10, 9, 0, address].into(), port)
    }

    const fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    /// Adds `id` if there is room. Returns true if it was added.
    fn enter(pending: &mut PendingRequests, id: u32, source: SocketAddr) -> bool {
        match pending.admission(source, 8, 4) {
            Admission::Refuse => return false,
            Admission::Displace(old) => pending.remove(old),
            Admission::Admit => {}
        }
        pending.add(id, source, at(100));
        assert!(pending.len() <= 8);
        true
    }

    #[test]
    fn an_address_with_its_full_share_is_refused_and_others_are_not() {
        let mut pending = PendingRequests::default();
        for id in 0..100 {
            assert_eq!(enter(&mut pending, id, source(1, 1)), id < 4);
        }
        assert!(enter(&mut pending, 100, source(2, 1)));
        assert_eq!(pending.len(), 5);
    }

    #[test]
    fn when_all_is_full_the_address_with_most_requests_loses_its_oldest() {
        let mut pending = PendingRequests::default();
        for (id, address) in [
            (1, 1),
            (2, 1),
            (3, 1),
            (4, 2),
            (5, 2),
            (6, 3),
            (7, 3),
            (8, 4),
        ] {
            assert!(enter(&mut pending, id, source(address, 1)));
        }
        assert_eq!(
            pending.admission(source(5, 1), 8, 4),
            Admission::Displace(1)
        );
        assert_eq!(
            pending.admission(source(1, 1), 8, 4),
            Admission::Refuse,
            "it is the one"
        );
        assert!(enter(&mut pending, 9, source(5, 1)));
        // Each address has two at most: the one with the oldest loses it.
        assert_eq!(
            pending.admission(source(6, 1), 8, 4),
            Admission::Displace(2)
        );
        assert_eq!(pending.admission(source(2, 1), 8, 4), Admission::Refuse);
    }

    #[test]
    fn answered_requests_of_an_address_make_room_for_its_next_one() {
        let mut pending = PendingRequests::default();
        for id in 0..4 {
            assert!(enter(&mut pending, id, source(1, 1)));
        }
        pending.answered(2, at(50));
        assert_eq!(
            pending.admission(source(1, 1), 8, 4),
            Admission::Displace(2)
        );
        for id in 10..14 {
            assert!(enter(&mut pending, id, source(id as u8, 1)));
        }
        assert_eq!(
            pending.admission(source(1, 1), 8, 9),
            Admission::Displace(2),
            "also where all places are taken"
        );
        assert!(enter(&mut pending, 20, source(1, 1)));
        assert_eq!(pending.admission(source(1, 1), 8, 4), Admission::Refuse);
    }

    #[test]
    fn processes_of_an_address_do_not_take_each_others_places() {
        let mut pending = PendingRequests::default();
        for id in 0..10 {
            enter(&mut pending, id, source(1, 7));
        }
        assert_eq!(
            pending.admission(source(1, 8), 8, 4),
            Admission::Displace(0)
        );
        assert!(enter(&mut pending, 10, source(1, 8)));
        assert!(enter(&mut pending, 11, source(1, 8)));
        assert_eq!(
            pending.admission(source(1, 8), 8, 4),
            Admission::Refuse,
            "two each"
        );
        assert_eq!(
            pending.admission(source(1, 9), 8, 4),
            Admission::Displace(2)
        );
    }

    #[test]
    fn each_expires_at_its_time_and_leaves_nothing() {
        let mut pending = PendingRequests::default();
        for id in 1..=3 {
            pending.add(id, source(1, id as u16), at(100 * u64::from(id)));
        }
        pending.wait_until(1, at(250));
        assert_eq!(
            (pending.deadline(), pending.expired(at(199))),
            (Some(at(200)), None)
        );
        for (now, id) in [(200, 2), (250, 1), (300, 3)] {
            assert_eq!(pending.expired(at(now)), Some((at(now), id)));
            pending.remove(id);
        }
        assert_eq!(pending.deadline(), None);
        assert!(pending.ports.is_empty() && pending.by_ticket.is_empty());
        assert!(pending.addresses.held.is_empty() && pending.addresses.ranks.is_empty());
    }
}
