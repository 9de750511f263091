//! Choice of the GID that a queue pair sends from.
//!
//! DAPL's scm provider uses entry 0 of the port's table, whatever it is; on RoCE that is a link-local one. Only entry
//! 0 works with DAPL, and a REQ is sent before the kind of peer is known, so the REQ names entry 0. The GID of the
//! IA's address, which also crosses routers (RoCE v2), is sent in a field that DAPL does not read. An acceptor of this
//! crate selects it, and shows that by its own second GID in the same field of the REP.

use std::net::IpAddr;

use dat_handshake::scm::Message;

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
mod tests;
