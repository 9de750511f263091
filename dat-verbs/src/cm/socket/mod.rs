//! Connections by an exchange of queue pair data over TCP, compatible with DAPL's scm provider. The TCP connection
//! lives as long as the RDMA one: its close is the disconnect.
//!
//! `dat_handshake::scm` defines the messages, `stage` decides, `gid` chooses the path (all three pure). `stream` and `timers` wrap
//! the system's sockets and timer. `input` reads what the peer sent and makes the input of `stage` of it, `conn` performs
//! the actions, `listener` and `request` are the passive side until the consumer answers. All sockets are non-blocking.
//! Consumers' calls send REQ and REP, the adapter's event thread does the rest.

pub(crate) mod conn;
pub(crate) mod gid;
mod input;
pub(crate) mod listener;
pub(crate) mod manager;
pub(crate) mod request;
pub(crate) mod stage;
pub(crate) mod stream;
pub(crate) mod timers;

use std::net::{IpAddr, SocketAddr};

use dat_core::error::{Error, Kind, Result};

use crate::cm::addr;

/// Offset of DAPL's TCP port from the connection qualifier.
const PORT_OFFSET: u64 = 1000;

/// Descriptors that a process reserves: each connection has one.
pub(crate) const DESCRIPTORS: i32 = 1024;

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
