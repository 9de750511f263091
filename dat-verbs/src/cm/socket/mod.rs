//! Connections by an exchange of queue pair data over TCP, as DAPL's scm provider makes them; either may be at the
//! other end. The TCP connection lives as long as the RDMA one: its end is the disconnect.
//!
//! `wire` has the messages, `stage` decides, `gid` chooses the path (all three pure); `stream` and `timers` wrap
//! the system; `hearing` reads what comes, `conn` does what was decided, `listener` and `request` are the passive
//! side up to the consumer's answer. All sockets are non-blocking. Consumers' calls send REQ and REP, the adapter's
//! event thread does the rest.

pub(crate) mod conn;
pub(crate) mod gid;
mod hearing;
pub(crate) mod listener;
pub(crate) mod request;
pub(crate) mod stage;
pub(crate) mod stream;
pub(crate) mod timers;
pub(crate) mod wire;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

use dat_core::error::{Error, Kind, Result};

use crate::adapter::Shared;
use crate::cm::addr;
use crate::cm::socket::conn::Conn;
use crate::cm::socket::gid::Gids;
use crate::cm::socket::listener::{Arriving, Door};
use crate::cm::socket::timers::Timers;

/// DAPL listens this much above the connection qualifier.
const PORT_OFFSET: u64 = 1000;

/// Each connection has a descriptor: how many a process gets ready for.
pub(crate) const DESCRIPTORS: i32 = 1024;

/// What an adapter has for connections of this kind.
pub(crate) struct Manager {
    pub(crate) timers: Timers,
    pub(crate) gids: Gids,
    pub(crate) lid: u16,
    /// `ibv_mtu` code: the port's, or less by the `mtu` setting.
    pub(crate) mtu: u8,
    /// The `mtu` setting was given.
    pub(crate) mtu_is_set: bool,
}

impl Manager {
    /// The MTU for a peer whose message has `mtu`; one that says nothing takes 2048, as does DAPL.
    pub(crate) fn mtu_with(&self, peer: &wire::Message) -> u8 {
        match peer.mtu {
            None if self.mtu_is_set => self.mtu,
            _ => self.mtu.min(peer.mtu_or_usual()),
        }
    }
}

/// Whom an event of a socket, or a deadline, is for.
#[derive(Clone)]
pub(crate) enum Watched {
    Door(Weak<Door>),
    Arriving(Arc<Arriving>),
    Conn(Weak<Conn>),
}

impl Watched {
    /// Its socket has something; whether that is an end too.
    pub(crate) fn ready(self, shared: &Arc<Shared>, key: u64, ended: bool) {
        match self {
            Self::Door(door) => {
                if let Some(door) = door.upgrade() {
                    door.ready(shared);
                }
            }
            Self::Arriving(arriving) => arriving.ready(shared, key),
            Self::Conn(conn) => {
                if let Some(conn) = conn.upgrade() {
                    conn.ready(ended);
                }
            }
        }
    }

    /// Its deadline has passed.
    pub(crate) fn expired(self, shared: &Arc<Shared>, key: u64) {
        match self {
            Self::Door(door) => {
                if let Some(door) = door.upgrade() {
                    door.expired(shared);
                }
            }
            Self::Arriving(arriving) => arriving.expired(shared, key),
            Self::Conn(conn) => {
                if let Some(conn) = conn.upgrade() {
                    conn.expired();
                }
            }
        }
    }
}

/// The TCP address of a service point. The qualifier is not hashed: both ends cut it to 16 bits.
fn service(ip: IpAddr, conn_qual: u64, scope: u32) -> Result<SocketAddr> {
    match conn_qual.wrapping_add(PORT_OFFSET) as u16 {
        // The system would choose one.
        0 => Err(Error::of(Kind::InvalidParameter)),
        port => Ok(addr::socket(ip, port, scope)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_follow_dapls_rule() {
        let ip = IpAddr::from([10, 9, 0, 1]);
        for (qual, port) in [
            (0, 1000),
            (45248, 46248),
            (64535, 65535),
            (65535, 999),
            (0x0AFF_AB1E, 0xAB1E + 1000),
        ] {
            assert_eq!(service(ip, qual, 0).unwrap().port(), port, "{qual}");
        }
        assert!(service(ip, 64536, 0).is_err());
    }
}
