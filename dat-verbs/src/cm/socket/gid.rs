//! Choice of the GID that a queue pair sends from.
//!
//! DAPL's scm provider uses entry 0 of the port's table, whatever it is; on RoCE that is a link-local one. Only entry
//! 0 works with DAPL, and a REQ is sent before the kind of peer is known, so the REQ names entry 0. The GID of the
//! IA's address, which also crosses routers (RoCE v2), is sent in a field that DAPL does not read. An acceptor of this
//! crate selects it, and shows that by its own second GID in the same field of the REP.

use std::net::IpAddr;

use crate::cm::socket::wire::Message;
use crate::verbs::device::Device;

/// An entry of the port's GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gid {
    pub(crate) index: u8,
    pub(crate) raw: [u8; 16],
}

/// GIDs that an IA offers its peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gids {
    /// Entry 0, which DAPL expects, or the entry that dat.conf names.
    pub(crate) first: Gid,
    /// The entry of the IA's address, if it is another one.
    pub(crate) second: Option<Gid>,
}

/// Kinds of GID; a path needs the same kind at both ends.
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
    /// Reads the table of `port`; `None` if it is empty, or has no entry `wanted`.
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
            // An address that was removed leaves an empty entry.
            of_address((0..=u8::MAX).filter_map(entry), ip, is_v2)
        });
        entry(0).map(|first| Self {
            first,
            second: second.flatten().filter(|gid| *gid != first),
        })
    }

    /// Chooses our GID and the peer's for the acceptor of `request`.
    pub(crate) fn choose(&self, request: &Message) -> Choice {
        if let (Some(local), Some(remote)) = (self.second, request.second_gid)
            && kind(local.raw) == kind(remote)
        {
            return Choice {
                local,
                remote,
                second: true,
            };
        }
        let remote = request.qp.gid;
        let fits = |gid: &Gid| kind(gid.raw) == kind(remote);
        Choice {
            local: self
                .second
                .filter(|s| fits(s) && !fits(&self.first))
                .unwrap_or(self.first),
            remote,
            second: false,
        }
    }

    /// Returns the GIDs that the peer chose in `reply`.
    pub(crate) fn choice_of(&self, reply: &Message) -> Choice {
        match (self.second, reply.second_gid) {
            (Some(local), Some(remote)) => Choice {
                local,
                remote,
                second: true,
            },
            _ => Choice {
                local: self.first,
                remote: reply.qp.gid,
                second: false,
            },
        }
    }
}

/// GIDs of both ends of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    pub(crate) local: Gid,
    pub(crate) remote: [u8; 16],
    /// True if both are second GIDs.
    pub(crate) second: bool,
}

/// Returns the entry of `ip`; one of RoCE v2 before one of v1.
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
    fn an_empty_entry_does_not_end_the_table() {
        let adapter = crate::sys::fake::adapter("");
        let ip = IpAddr::from([127, 0, 0, 1]);
        let gids = Gids::read(&adapter.shared.device, 1, ip, true, None);
        let second = gids.and_then(|gids| gids.second);
        assert_eq!(second, Some(gid(2, "127.0.0.1")));
    }

    #[test]
    fn two_of_ours_meet_on_their_addresses() {
        let asked = message("fe80::2", Some("10.9.0.2"));
        let answer = gids().choose(&asked);
        assert_eq!(
            (answer.local.index, answer.remote, answer.second),
            (3, raw("10.9.0.2"), true)
        );
        let chosen = gids().choice_of(&message("10.9.0.2", Some("10.9.0.2")));
        assert_eq!(chosen, answer);
    }

    #[test]
    fn with_dapl_both_use_the_first_entry() {
        let dapl = message("fe80::2", None);
        for choice in [gids().choose(&dapl), gids().choice_of(&dapl)] {
            assert_eq!(
                (choice.local.index, choice.remote, choice.second),
                (0, raw("fe80::2"), false)
            );
        }
    }

    #[test]
    fn an_acceptor_takes_what_can_talk_to_the_peer() {
        assert_eq!(gids().choose(&message("10.9.0.2", None)).local.index, 3);
        assert_eq!(gids().choose(&message("fd09::2", None)).local.index, 0);
        let v6 = message("fe80::2", Some("fd09::2"));
        assert_eq!(
            gids().choose(&v6).local.index,
            0,
            "a path does not mix IPv4 and IPv6"
        );
        let fixed = Gids {
            first: gid(5, "fd09::1"),
            second: None,
        };
        let asked = message("fe80::2", Some("10.9.0.2"));
        assert_eq!(fixed.choose(&asked).local.index, 5, "gid_index is used");
    }
}
