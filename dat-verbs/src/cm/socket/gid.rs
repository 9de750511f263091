//! Which of the port's GIDs a queue pair sends from.
//!
//! DAPL's scm provider uses entry 0 whatever it is, on RoCE a link-local one. Towards it nothing else can work,
//! and a REQ goes out before the peer is known: entry 0 is what it names. The GID of the IA's address, which also
//! crosses routers (RoCE v2), goes along in a field that DAPL does not read; an acceptor of ours chooses it and
//! says so by naming its own in the same field.

use std::net::IpAddr;

use crate::cm::socket::wire::Message;
use crate::verbs::device::Device;

/// An entry of the port's GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gid {
    pub(crate) index: u8,
    pub(crate) raw: [u8; 16],
}

/// What an IA offers its peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gids {
    /// What DAPL expects, or what the entry of dat.conf says.
    pub(crate) first: Gid,
    /// That of the IA's address, if it is another.
    pub(crate) second: Option<Gid>,
}

/// Kinds of GID that cannot talk to each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    V4,
    LinkLocal,
    Other,
}

fn kind(gid: [u8; 16]) -> Kind {
    match gid {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..] => Kind::V4,
        [0xfe, b, ..] if b & 0xc0 == 0x80 => Kind::LinkLocal,
        _ => Kind::Other,
    }
}

impl Gids {
    /// Reads the table of `port`; `None` if it has no entry, or not the one that `wanted` says.
    pub(crate) fn read(
        device: &Device,
        port: u8,
        ip: IpAddr,
        roce: bool,
        wanted: Option<u8>,
    ) -> Option<Self> {
        let entry = |index: u8| {
            let raw = device.gid(port, index.into())?;
            Some(Gid { index, raw })
        };
        if let Some(index) = wanted {
            return entry(index).map(|first| Self {
                first,
                second: None,
            });
        }
        let second = roce.then(|| {
            let is_v2 = |gid: &Gid| device.is_roce_v2(port, gid.index.into());
            of_address((0..=u8::MAX).map_while(entry), ip, is_v2)
        });
        entry(0).map(|first| Self {
            first,
            second: second.flatten().filter(|gid| *gid != first),
        })
    }

    /// For the acceptor of `request`: which of ours to use, and which of the peer's.
    pub(crate) fn answer(&self, request: &Message) -> Choice {
        if let (Some(mine), Some(theirs)) = (self.second, request.second_gid)
            && kind(mine.raw) == kind(theirs)
        {
            return Choice {
                mine,
                theirs,
                second: true,
            };
        }
        let theirs = request.qp.gid;
        let fits = |gid: &Gid| kind(gid.raw) == kind(theirs);
        Choice {
            mine: self
                .second
                .filter(|s| fits(s) && !fits(&self.first))
                .unwrap_or(self.first),
            theirs,
            second: false,
        }
    }

    /// For the one whose request was answered by `reply`.
    pub(crate) fn chosen(&self, reply: &Message) -> Choice {
        match (self.second, reply.second_gid) {
            (Some(mine), Some(theirs)) => Choice {
                mine,
                theirs,
                second: true,
            },
            _ => Choice {
                mine: self.first,
                theirs: reply.qp.gid,
                second: false,
            },
        }
    }
}

/// The two ends of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    pub(crate) mine: Gid,
    pub(crate) theirs: [u8; 16],
    /// Both sides' second ones.
    pub(crate) second: bool,
}

/// The entry that stands for `ip`; one of RoCE v2 before one of v1.
fn of_address(
    table: impl Iterator<Item = Gid>,
    ip: IpAddr,
    is_v2: impl Fn(&Gid) -> bool,
) -> Option<Gid> {
    let raw = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let mut found = None;
    for gid in table.filter(|gid| gid.raw == raw) {
        if is_v2(&gid) {
            return Some(gid);
        }
        found = found.or(Some(gid));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cm::socket::wire::{Operation, QpAddress, RELIABLE, VERSION};

    fn raw(ip: &str) -> [u8; 16] {
        match ip.parse().unwrap() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        }
    }

    fn gid(index: u8, ip: &str) -> Gid {
        Gid {
            index,
            raw: raw(ip),
        }
    }

    fn message(first: &str, second: Option<&str>) -> Message {
        Message {
            version: VERSION,
            operation: Operation::Request,
            reads_in: Some(4),
            mtu: Some(3),
            qp: QpAddress {
                lid: 0,
                qpn: 17,
                gid: raw(first),
                kind: RELIABLE,
            },
            socket: None,
            second_gid: second.map(raw),
            private_data: Vec::new(),
        }
    }

    fn gids() -> Gids {
        Gids {
            first: gid(0, "fe80::1"),
            second: Some(gid(3, "10.9.0.1")),
        }
    }

    #[test]
    fn the_entry_of_the_address_is_one_of_v2_if_there_is_one() {
        let table = [
            gid(0, "fe80::1"),
            gid(1, "fe80::1"),
            gid(2, "10.9.0.1"),
            gid(3, "10.9.0.1"),
        ];
        let find = |ip: &str, v2: &'static [u8]| {
            of_address(table.into_iter(), ip.parse().unwrap(), |g| {
                v2.contains(&g.index)
            })
            .map(|g| g.index)
        };
        assert_eq!(find("10.9.0.1", &[1, 3]), Some(3));
        assert_eq!(find("10.9.0.1", &[]), Some(2));
        assert_eq!(find("fe80::1", &[1, 3]), Some(1));
        assert_eq!(find("10.9.0.2", &[1, 3]), None);
    }

    #[test]
    fn two_of_ours_meet_on_their_addresses() {
        let asked = message("fe80::2", Some("10.9.0.2"));
        let answer = gids().answer(&asked);
        assert_eq!(
            (answer.mine.index, answer.theirs, answer.second),
            (3, raw("10.9.0.2"), true)
        );
        let chosen = gids().chosen(&message("10.9.0.2", Some("10.9.0.2")));
        assert_eq!(chosen, answer);
    }

    #[test]
    fn with_dapl_both_use_the_first_entry() {
        let dapl = message("fe80::2", None);
        for choice in [gids().answer(&dapl), gids().chosen(&dapl)] {
            assert_eq!(
                (choice.mine.index, choice.theirs, choice.second),
                (0, raw("fe80::2"), false)
            );
        }
    }

    #[test]
    fn an_acceptor_takes_what_can_talk_to_the_peer() {
        assert_eq!(gids().answer(&message("10.9.0.2", None)).mine.index, 3);
        assert_eq!(gids().answer(&message("fd09::2", None)).mine.index, 0);
        let v6 = message("fe80::2", Some("fd09::2"));
        assert_eq!(gids().answer(&v6).mine.index, 0, "IPv4 and IPv6 do not mix");
        let fixed = Gids {
            first: gid(5, "fd09::1"),
            second: None,
        };
        let asked = message("fe80::2", Some("10.9.0.2"));
        assert_eq!(fixed.answer(&asked).mine.index, 5, "as the entry says");
    }
}
