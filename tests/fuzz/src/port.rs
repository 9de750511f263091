//! The messages between the processes of one host that share UDP port 4791. Members of several users send a holder any
//! bytes, and datagrams of any bytes arrive. A member gets only the datagrams of what it was granted, whatever the others
//! send.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use softrxe_port::members::{Members, Response};
use softrxe_port::message::{Destination, FromHolder, FromMember};
use softrxe_port::names;
use softrxe_port::registry::{Owner, Quotas};
use softrxe_port::route::RecentRequests;

use crate::input::Input;

/// Quotas; small, so that inputs reach them.
const QUOTAS: Quotas = Quotas {
    members_total: 8,
    members_per_user: 3,
    slots: 6,
    services_per_user: 4,
};
/// A user without any gets a free one; another user while it has less than half as many as are free beside a quarter.
fn is_share(count: usize, taken: usize, all: usize) -> bool {
    let free = all - taken.min(all);
    match count {
        0 => free > 0,
        count => free > all / 4 && 2 * count < free - all / 4,
    }
}

const UIDS: [u32; 3] = [1000, 1001, 65_534];
const HOLDER_UID: u32 = 0;
/// Destinations that inputs claim often.
const DESTINATIONS: [Destination; 8] = [
    Destination::Slot(0),
    Destination::Slot(1),
    Destination::Slot(2),
    Destination::Slot(u16::MAX),
    Destination::Service(0),
    Destination::Service(0x0106_1b59),
    Destination::Service(0x0106_1b5a),
    Destination::Service(u64::MAX),
];
const SOURCES: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1)),
];
/// Bytes of a packet that a holder reads.
const PACKET: usize = 64;

/// The expected state, computed in the simplest way.
#[derive(Default)]
struct Model {
    /// Several users have members.
    mixed: bool,
    users: BTreeMap<u64, u32>,
    had: BTreeMap<Destination, (Owner, u32)>,
    /// Waiting claims, in the order in which they will be granted.
    waiting: BTreeMap<Destination, VecDeque<(Owner, u32)>>,
    reserved: BTreeMap<Destination, u32>,
}

impl Model {
    /// Records a claim. Returns true if it is to be granted.
    fn claim(&mut self, what: Destination, owner: Owner, uid: u32) -> bool {
        // No engine has slot 0, and there are 1,023 others.
        if matches!(what, Destination::Slot(slot) if slot == 0 || slot > 1023) {
            return false;
        }
        if let Some((has, _)) = self.had.get(&what) {
            let has = *has == owner;
            let waiting = self.waiting.entry(what).or_default();
            if !has && !self.mixed && !waiting.contains(&(owner, uid)) {
                waiting.push_back((owner, uid));
            }
            return has;
        }
        let of_another = self.reserved.get(&what).is_some_and(|of| *of != uid);
        let is_slot = |what: &Destination| matches!(what, Destination::Slot(_));
        let same = |(had, (_, of)): (&Destination, &(Owner, u32))| {
            *of == uid && is_slot(had) == is_slot(&what)
        };
        let count = self.had.iter().filter(|one| same(*one)).count();
        let all = self.all();
        let taken = all.iter().filter(|(had, _)| is_slot(had)).count();
        let enough = if !is_slot(&what) {
            count >= QUOTAS.services_per_user
        } else if self.reserved.contains_key(&what) {
            false
        } else {
            !is_share(count, taken, QUOTAS.slots)
        };
        if of_another || self.mixed && enough {
            return false;
        }
        self.had.insert(what, (owner, uid));
        true
    }

    fn release(&mut self, what: Destination, owner: Owner) {
        if let Some(waiting) = self.waiting.get_mut(&what) {
            waiting.retain(|(other, _)| *other != owner);
        }
        if self.had.get(&what).is_some_and(|(has, _)| *has == owner) {
            self.had.remove(&what);
            let next = self.waiting.get_mut(&what).and_then(VecDeque::pop_front);
            if let Some(next) = next {
                self.had.insert(what, next);
            }
        }
    }

    fn forget(&mut self, member: u64) {
        let all: HashSet<Destination> = self
            .had
            .keys()
            .chain(self.waiting.keys())
            .copied()
            .collect();
        for what in all {
            self.release(what, Owner::Member(member));
        }
        self.users.remove(&member);
    }

    /// Returns all granted and reserved destinations, with their users.
    fn all(&self) -> Vec<(Destination, u32)> {
        let mut all = self.reserved.clone();
        all.extend(self.had.iter().map(|(what, (_, uid))| (*what, *uid)));
        all.into_iter().collect()
    }
}

/// Returns the claim or release in a packet, by the table in `message`.
fn claim_of(packet: &[u8]) -> Option<(bool, Destination)> {
    let [word, kind, number @ ..] = packet else {
        return None;
    };
    let number = u64::from_be_bytes(*number.first_chunk()?);
    let what = match kind {
        0 => Destination::Slot(number.try_into().ok()?),
        1 => Destination::Service(number),
        _ => return None,
    };
    [1, 2].contains(word).then_some((*word == 1, what))
}

struct Run<'a> {
    input: Input<'a>,
    members: Members,
    model: Model,
    requests: RecentRequests,
    /// Requests that arrived: source, id, service.
    asked: HashSet<(IpAddr, [u8; 4], u64)>,
}

/// Interprets `data` as actions of a holder's members and of the network; the first byte selects whether the members have
/// several users.
///
/// # Panics
/// If a claim is granted or refused against the rules, a datagram goes to a member that was not granted its destination, or
/// state of a member remains after its end.
pub fn port(data: &[u8]) {
    list(data);
    let mut input = Input::new(data);
    let mixed = input.flag();
    let mut run = Run {
        members: if mixed {
            Members::for_all_users(QUOTAS)
        } else {
            Members::default()
        },
        model: Model {
            mixed,
            ..Model::default()
        },
        input,
        requests: RecentRequests::default(),
        asked: HashSet::new(),
    };
    if mixed {
        for _ in 0..run.input.below(4) {
            let (what, uid) = (run.destination(), run.input.pick(&UIDS));
            run.members.registry().reserve(what, uid);
            run.model.reserved.insert(what, uid);
        }
    }
    while !run.input.is_empty() {
        run.step();
    }
    run.end();
}

impl Run<'_> {
    fn step(&mut self) {
        match self.input.below(16) {
            0 | 1 => self.admit(),
            2..=4 => {
                let claim = FromMember::Claim(self.destination());
                self.send(&claim.encode());
            }
            5 => {
                let release = FromMember::Release(self.destination());
                self.send(&release.encode());
                self.send(&FromMember::Hello.encode());
                let port = u16::from_be_bytes([self.input.u8(), self.input.u8()]);
                self.send(&FromMember::DataPort(port).encode());
            }
            6 => {
                // A right packet with one wrong byte, a part of one, or one with bytes after it.
                let mut packet = FromMember::Claim(self.destination()).encode().to_vec();
                packet.resize(self.input.below(PACKET + 1), 0);
                let at = self.input.below(packet.len());
                let change = self.input.u8();
                if let Some(byte) = packet.get_mut(at) {
                    *byte ^= change;
                }
                self.send(&packet);
            }
            7 => {
                let length = self.input.below(PACKET + 1);
                let packet = self.input.bytes(length).to_vec();
                self.send(&packet);
            }
            8 => {
                if let Some(member) = self.member() {
                    self.forget(member);
                }
            }
            9 => {
                let what = self.destination();
                if self.input.flag() {
                    let granted = self
                        .members
                        .registry()
                        .claim(what, Owner::Holder, HOLDER_UID);
                    let expected = self.model.claim(what, Owner::Holder, HOLDER_UID);
                    assert_eq!(granted, expected, "{what:?} for the holder");
                } else {
                    self.members.registry().release(what, Owner::Holder);
                    self.model.release(what, Owner::Holder);
                }
                self.check(what);
            }
            10 => {
                self.members.registry().clear_reservations();
                self.model.reserved.clear();
            }
            11 => {
                let length = usize::from(self.input.u8());
                let datagram = self.input.bytes(length).to_vec();
                self.arrive(&datagram);
            }
            12 => {
                let slot = u32::from(self.input.u16());
                let mut datagram = [7; 40];
                datagram[4..8].copy_from_slice(&(slot << 14).to_be_bytes());
                self.arrive(&datagram);
            }
            _ => self.message(),
        }
    }

    fn destination(&mut self) -> Destination {
        match self.input.below(10) {
            8 => Destination::Slot(self.input.u16()),
            9 => Destination::Service(self.input.u16().into()),
            common => DESTINATIONS[common],
        }
    }

    fn member(&mut self) -> Option<u64> {
        let at = self.input.u8().into();
        self.model.users.keys().copied().cycle().nth(at)
    }

    fn admit(&mut self) {
        let uid = if self.model.mixed {
            self.input.pick(&UIDS)
        } else {
            HOLDER_UID
        };
        let count = self.model.users.values().filter(|of| **of == uid).count();
        let share = is_share(count, self.model.users.len(), QUOTAS.members_total);
        let room = !self.model.mixed || count < QUOTAS.members_per_user && share;
        let member = self.members.admit(uid);
        assert_eq!(member.is_some(), room, "{count} members of {uid}");
        if let Some(member) = member {
            let twice = self.model.users.insert(member, uid);
            assert_eq!(twice, None, "{member} is a member already");
        }
    }

    fn send(&mut self, packet: &[u8]) {
        // A packet of a member that has ended may have been read before its end was detected.
        let gone = u64::MAX;
        assert_eq!(self.members.handle(gone, packet), Response::NoMember);
        let Some(member) = self.member() else { return };
        let (owner, uid) = (Owner::Member(member), self.model.users[&member]);
        let response = self.members.handle(member, packet);
        match claim_of(packet) {
            Some((true, what)) => {
                let granted = self.model.claim(what, owner, uid);
                assert_eq!(
                    response,
                    Response::Answer(what, granted),
                    "{owner:?} of {uid}"
                );
                let mut answer = Vec::new();
                FromHolder::Answer(what, granted).encode(&mut answer);
                let read = FromHolder::decode(&answer);
                assert_eq!(read, Some(FromHolder::Answer(what, granted)));
                self.check(what);
            }
            Some((false, what)) => {
                assert_eq!(response, Response::Nothing);
                self.model.release(what, owner);
                self.check(what);
            }
            None => match *packet {
                [3, _, _, _, _, _, _, _, _, _, ..] => assert_eq!(response, Response::Welcome),
                [4, _, _, _, _, _, _, _, high, low, ..] => {
                    let port = u16::from_be_bytes([high, low]);
                    assert_eq!(response, Response::KeepPort(port));
                }
                _ => assert_eq!(response, Response::Nothing, "{packet:?}"),
            },
        }
    }

    fn forget(&mut self, member: u64) {
        self.members.forget(member);
        self.model.forget(member);
        let all = self.model.had.keys().copied().collect::<Vec<_>>();
        for what in all.into_iter().chain(DESTINATIONS) {
            self.check(what);
        }
    }

    fn check(&self, what: Destination) {
        let had = self.model.had.get(&what).map(|(owner, _)| *owner);
        assert_eq!(self.members.owner(what), had, "{what:?}");
    }

    /// Delivers a message of the connection manager.
    fn message(&mut self) {
        let mut datagram = [0; 280];
        datagram[7] = 1;
        datagram[37] = self.input.pick(&[0x10, 0x12, 0x13, 0x17, 0x18]);
        datagram[47] = self.input.below(4) as u8;
        let word = match self.destination() {
            Destination::Slot(slot) => u64::from(slot) << 54,
            Destination::Service(id) => id,
        };
        let at = self.input.pick(&[48, 52]);
        datagram[at..at + 8].copy_from_slice(&word.to_be_bytes());
        self.arrive(&datagram);
    }

    fn arrive(&mut self, datagram: &[u8]) {
        let source = self.input.pick(&SOURCES);
        let to = self.requests.destination(source, datagram);
        let attribute = datagram.get(36..38);
        let managed = datagram.get(5..8) == Some(&[0, 0, 1]);
        let id: Option<[u8; 4]> = datagram.get(44..48).and_then(|id| id.try_into().ok());
        match to {
            Some(Destination::Service(service)) => {
                let id = id.expect("it has an id");
                assert!(managed, "only a message is for a service");
                if attribute == Some(&[0, 0x12]) {
                    let known = self.asked.contains(&(source, id, service));
                    assert!(known, "{source} gives up what it did not ask for");
                } else {
                    let named = &datagram[52..60];
                    assert_eq!(service.to_be_bytes(), named);
                    self.asked.insert((source, id, service));
                }
            }
            Some(Destination::Slot(slot)) => {
                assert!(slot < 1024);
                let by_qpn = u16::from_be_bytes([datagram[5], datagram[6]]) >> 6;
                assert!(managed || slot == by_qpn);
            }
            None => assert!(datagram.len() < 60),
        }
        let Some(to) = to else { return };
        self.check(to);
        let Some(Owner::Member(member)) = self.members.owner(to) else {
            return;
        };
        assert!(self.model.users.contains_key(&member));
        let from = SocketAddr::new(source, self.input.u16());
        let passed_on = FromHolder::Datagram {
            from,
            ecn: self.input.u8(),
            datagram,
        };
        let mut packet = Vec::new();
        passed_on.encode(&mut packet);
        assert_eq!(FromHolder::decode(&packet), Some(passed_on));
    }

    /// Checks all granted destinations, and that nothing is left after the end of all members.
    fn end(mut self) {
        let holder = DESTINATIONS.into_iter().next().expect("there are some");
        self.members
            .registry()
            .claim(holder, Owner::Holder, HOLDER_UID);
        self.model.claim(holder, Owner::Holder, HOLDER_UID);
        if let Some(all) = self.members.registry().changes() {
            assert_eq!(all, self.model.all());
        }
        for member in self.model.users.keys() {
            self.members.forget(*member);
        }
        let of_holder = self.model.had.keys().chain(self.model.waiting.keys());
        for what in of_holder {
            self.members.registry().release(*what, Owner::Holder);
            assert_eq!(self.members.owner(*what), None);
        }
        self.members.registry().clear_reservations();
        assert_eq!(self.members.registry().entries(), 0, "something is left");
    }
}

/// Checks the kernel's list of names, which any user can fill with any bytes, and a packet of a holder.
fn list(data: &[u8]) {
    const NAME: &str = "thing";
    let found = names::parse_list(data, NAME).expect("no input, no error");
    assert!(found.is_sorted() && found.len() <= data.len() / 32);
    for name in &found {
        let random = name.strip_prefix("thing/").expect("it is the thing's");
        assert!(random.len() == 32 && random.bytes().all(|b| b.is_ascii_hexdigit()));
    }
    // Entries of other users hide no name.
    let own = "thing/00112233445566778899aabbccddeeff";
    let more = [data, b"\n1: 2 0 10000 5 1 7 @", own.as_bytes(), b"\n"].concat();
    let with_own = names::parse_list(&more[..], NAME).expect("no input, no error");
    assert!(with_own.iter().any(|name| name == own));
    assert!(found.iter().all(|name| with_own.contains(name)));

    if let Some(letter) = FromHolder::decode(data) {
        let mut again = Vec::new();
        letter.encode(&mut again);
        assert_eq!(FromHolder::decode(&again), Some(letter));
    }
}

/// Returns seeds: members of two users that claim the same, release it and end, with datagrams in between; a list of names.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let story: &[u8] = &[
        0, 0, 0, 1, 2, 5, 0, 2, 5, 1, 2, 1, 2, 13, 0, 1, 5, 1, 0, 12, 64, 0, 0, 5, 5, 0, 13, 1, 1,
        5, 0, 0, 6, 1, 10, 3, 1, 7, 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 8, 0, 9, 5, 1, 10, 2, 6,
        0,
    ];
    let mixed = |mixed: u8, reserved: &[u8]| [&[mixed], reserved, story, story].concat();
    let list = b"Num RefCount Protocol Flags Type St Inode Path\n\
        ffff: 2 0 10000 5 1 7 @thing/0123456789abcdef0123456789abcdef\n\
        ffff: 2 0 10000 5 1 8 @thing\nffff: 3 0 0 1 3 9\n";
    let mut passed_on = vec![18; 60];
    passed_on[1..17].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 9, 0, 1]);
    vec![
        mixed(0, &[]),
        mixed(1, &[0]),
        mixed(1, &[2, 5, 0, 1, 2]),
        list.to_vec(),
        passed_on,
    ]
}
