//! Requests whose sender has not shown that it receives our answers: how many there may be, and which has to go.
//!
//! Any source address can stand in a REQ, and nothing but the consumer's answer ends one. So each address has a share of the places,
//! and each UDP port of an address a share of that. Where there is no place left, the source that has most loses its oldest, unless
//! the newcomer comes from that source: then it has to ask again later. All of it is logarithmic in the number of requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};

use crate::time::Time;

/// How old a request is: larger is younger.
type Ticket = u64;

/// Requests by what they share, and which of these has most of them.
#[derive(Debug)]
struct Shares<K> {
    held: HashMap<K, BTreeSet<Ticket>>,
    /// The last one has most requests, and the oldest of those that have as many.
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

    /// The key that has most requests, and how many.
    fn greediest(&self) -> Option<(K, usize)> {
        self.ranks.last().map(|(count, _, key)| (*key, *count))
    }

    fn oldest(&self, key: K) -> Option<Ticket> {
        self.held.get(&key)?.first().copied()
    }

    /// Changes what `key` holds; its rank follows.
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

/// What becomes of a newcomer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// There is room.
    Free,
    /// There is, once the request with this id is gone.
    Instead(u32),
    /// Its own source has used its places up.
    None,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    source: SocketAddr,
    ticket: Ticket,
    deadline: Time,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Unproven {
    entries: HashMap<u32, Entry>,
    by_ticket: BTreeMap<Ticket, u32>,
    addresses: Shares<IpAddr>,
    ports: HashMap<IpAddr, Shares<u16>>,
    deadlines: BTreeSet<(Time, u32)>,
    next: Ticket,
}

impl Unproven {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Is there a place for a request from `source`, where `most` may wait in all and `share` from one address?
    pub(crate) fn room(&self, source: SocketAddr, most: usize, share: usize) -> Room {
        let address = source.ip();
        let (mine, port) = (self.addresses.count(address), source.port());
        if mine >= share {
            // Processes of one address must not take each other's places.
            let Some(ports) = self.ports.get(&address) else {
                return Room::None;
            };
            return match ports.greediest() {
                Some((greedy, count)) if count > ports.count(port) => {
                    self.instead(ports.oldest(greedy))
                }
                _ => Room::None,
            };
        }
        if self.len() < most {
            return Room::Free;
        }
        match self.addresses.greediest() {
            Some((greedy, count)) if count > mine => {
                let ports = self.ports.get(&greedy);
                let port = ports.and_then(Shares::greediest).map(|(port, _)| port);
                let oldest = ports.zip(port).and_then(|(ports, port)| ports.oldest(port));
                self.instead(oldest)
            }
            _ => Room::None,
        }
    }

    fn instead(&self, ticket: Option<Ticket>) -> Room {
        let id = ticket.and_then(|ticket| self.by_ticket.get(&ticket));
        id.map_or(Room::None, |id| Room::Instead(*id))
    }

    /// The request `id` from `source` waits until `deadline`.
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

    /// Its sender has shown that it is there, or it is over.
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
        self.by_ticket.remove(&entry.ticket);
        self.deadlines.remove(&(entry.deadline, id));
    }

    /// It waits until `deadline` from now on.
    pub(crate) fn wait_until(&mut self, id: u32, deadline: Time) {
        if let Some(entry) = self.entries.get_mut(&id) {
            self.deadlines.remove(&(entry.deadline, id));
            entry.deadline = deadline;
            self.deadlines.insert((deadline, id));
        }
    }

    /// The earliest deadline.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// A request whose deadline is over.
    pub(crate) fn expired(&self, now: Time) -> Option<u32> {
        let (at, id) = self.deadlines.first()?;
        (*at <= now).then_some(*id)
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

    /// Enters `id` where there is room; true if it is in.
    fn enter(unproven: &mut Unproven, id: u32, source: SocketAddr) -> bool {
        match unproven.room(source, 8, 4) {
            Room::None => return false,
            Room::Instead(old) => unproven.remove(old),
            Room::Free => {}
        }
        unproven.add(id, source, at(100));
        assert!(unproven.len() <= 8);
        true
    }

    #[test]
    fn an_address_that_has_its_share_gets_no_more_and_others_still_do() {
        let mut unproven = Unproven::default();
        for id in 0..100 {
            assert_eq!(enter(&mut unproven, id, source(1, 1)), id < 4);
        }
        assert!(enter(&mut unproven, 100, source(2, 1)));
        assert_eq!(unproven.len(), 5);
    }

    #[test]
    fn when_all_is_full_the_greediest_address_loses_its_oldest() {
        let mut unproven = Unproven::default();
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
            assert!(enter(&mut unproven, id, source(address, 1)));
        }
        assert_eq!(unproven.room(source(5, 1), 8, 4), Room::Instead(1));
        assert_eq!(
            unproven.room(source(1, 1), 8, 4),
            Room::None,
            "it is the one"
        );
        assert!(enter(&mut unproven, 9, source(5, 1)));
        // All have two at most: the one with the oldest.
        assert_eq!(unproven.room(source(6, 1), 8, 4), Room::Instead(2));
        assert_eq!(unproven.room(source(2, 1), 8, 4), Room::None);
    }

    #[test]
    fn processes_of_an_address_do_not_take_each_others_places() {
        let mut unproven = Unproven::default();
        for id in 0..10 {
            enter(&mut unproven, id, source(1, 7));
        }
        assert_eq!(unproven.room(source(1, 8), 8, 4), Room::Instead(0));
        assert!(enter(&mut unproven, 10, source(1, 8)));
        assert!(enter(&mut unproven, 11, source(1, 8)));
        assert_eq!(unproven.room(source(1, 8), 8, 4), Room::None, "two each");
        assert_eq!(unproven.room(source(1, 9), 8, 4), Room::Instead(2));
    }

    #[test]
    fn each_expires_at_its_time_and_leaves_nothing() {
        let mut unproven = Unproven::default();
        for id in 1..=3 {
            unproven.add(id, source(1, id as u16), at(100 * u64::from(id)));
        }
        unproven.wait_until(1, at(250));
        assert_eq!(
            (unproven.deadline(), unproven.expired(at(199))),
            (Some(at(200)), None)
        );
        for (now, id) in [(200, 2), (250, 1), (300, 3)] {
            assert_eq!(unproven.expired(at(now)), Some(id));
            unproven.remove(id);
        }
        assert_eq!(unproven.deadline(), None);
        assert!(unproven.ports.is_empty() && unproven.by_ticket.is_empty());
        assert!(unproven.addresses.held.is_empty() && unproven.addresses.ranks.is_empty());
    }
}
