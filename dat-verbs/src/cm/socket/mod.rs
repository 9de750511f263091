//! Connections by an exchange of queue pair data over TCP, compatible with DAPL's scm provider. The TCP connection
//! lives as long as the RDMA one: its close is the disconnect.
//!
//! `wire` defines the messages, `stage` decides, `gid` chooses the path (all three pure). `stream` and `timers` wrap
//! the system's sockets and timer. `state` receives and parses, `conn` performs the actions, `listener` and `request`
//! are the passive side until the consumer answers. All sockets are non-blocking. Consumers' calls send REQ and REP,
//! the adapter's event thread does the rest.

pub(crate) mod conn;
pub(crate) mod gid;
pub(crate) mod listener;
pub(crate) mod request;
pub(crate) mod stage;
mod state;
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
use crate::cm::socket::listener::{ListenSocket, PartialRequest};
use crate::cm::socket::timers::Timers;

/// Offset of DAPL's TCP port from the connection qualifier.
const PORT_OFFSET: u64 = 1000;

/// Descriptors that a process reserves: each connection has one.
pub(crate) const DESCRIPTORS: i32 = 1024;

/// State of an adapter with socket connections.
pub(crate) struct Manager {
    pub(crate) timers: Timers,
    pub(crate) gids: Gids,
    pub(crate) lid: u16,
    /// `ibv_mtu` code: the port's, or the lower `mtu` setting.
    pub(crate) mtu: u8,
    /// True if the `mtu` setting was given.
    pub(crate) mtu_is_set: bool,
}

impl Manager {
    /// Returns the MTU for a peer whose message has `mtu`. A message without one means 2048, as in DAPL.
    pub(crate) fn mtu_with(&self, peer: &wire::Message) -> u8 {
        match peer.mtu {
            None if self.mtu_is_set => self.mtu,
            _ => self.mtu.min(peer.mtu_or_default()),
        }
    }
}

/// Target of a socket event or a deadline.
#[derive(Clone)]
pub(crate) enum Watched {
    ListenSocket(Weak<ListenSocket>),
    PartialRequest(Arc<PartialRequest>),
    Conn(Weak<Conn>),
}

impl Watched {
    /// Processes socket events; `ended` is true if they include a hang-up or an error.
    pub(crate) fn ready(self, shared: &Arc<Shared>, key: u64, ended: bool) {
        match self {
            Self::ListenSocket(socket) => {
                if let Some(socket) = socket.upgrade() {
                    socket.ready(shared);
                }
            }
            Self::PartialRequest(partial) => partial.ready(shared, key),
            Self::Conn(conn) => {
                if let Some(conn) = conn.upgrade() {
                    conn.ready(ended);
                }
            }
        }
    }

    /// Processes a passed deadline.
    pub(crate) fn expired(self, shared: &Arc<Shared>, key: u64) {
        match self {
            Self::ListenSocket(socket) => {
                if let Some(socket) = socket.upgrade() {
                    socket.expired(shared);
                }
            }
            Self::PartialRequest(partial) => partial.expired(shared, key),
            Self::Conn(conn) => {
                if let Some(conn) = conn.upgrade() {
                    conn.expired();
                }
            }
        }
    }
}

/// Returns the TCP address of a service point. The qualifier is not hashed: both ends truncate it to 16 bits.
fn service(ip: IpAddr, conn_qual: u64, scope: u32) -> Result<SocketAddr> {
    match conn_qual.wrapping_add(PORT_OFFSET) as u16 {
        // With port 0 the system would choose one.
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
