//! The header that rdma_cm puts before the private data of REQ and SIDR_REQ (IBTA annex A11), and its service ids.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{array, be16, put};

/// Addresses of a connection, from the view of its active side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmaHeader {
    /// Active side, with its port.
    pub source: SocketAddr,
    /// Passive side.
    pub destination: IpAddr,
}

impl CmaHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 36;

    /// Reads a header; `None` if it is cut short or of another version.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.get(..Self::LEN)?;
        let address = |at: usize| -> Option<IpAddr> {
            Some(match b[1] >> 4 {
                4 => Ipv4Addr::from(array::<4>(b, at + 12)).into(),
                6 => Ipv6Addr::from(array::<16>(b, at)).into(),
                _ => return None,
            })
        };
        if b[0] != 0 {
            return None;
        }
        Some(Self {
            source: SocketAddr::new(address(4)?, be16(b, 2)),
            destination: address(20)?,
        })
    }

    /// Writes the header to the front of `out`.
    pub fn emit(&self, out: &mut [u8]) {
        out[..Self::LEN].fill(0);
        put(out, 2, &self.source.port().to_be_bytes());
        out[1] = if self.source.is_ipv4() {
            4 << 4
        } else {
            6 << 4
        };
        for (at, address) in [(4, self.source.ip()), (20, self.destination)] {
            match address {
                IpAddr::V4(v4) => put(out, at + 12, &v4.octets()),
                IpAddr::V6(v6) => put(out, at, &v6.octets()),
            }
        }
    }
}

/// Service ids of rdma_cm, made of port space and port.
pub mod service_id {
    /// Returns the id of a port of RDMA_PS_TCP: connections.
    #[must_use]
    pub const fn tcp(port: u16) -> u64 {
        0x0000_0000_0106_0000 | port as u64
    }

    /// Returns the id of a port of RDMA_PS_UDP: datagrams.
    #[must_use]
    pub const fn udp(port: u16) -> u64 {
        0x0000_0000_0111_0000 | port as u64
    }
}

/// Returns the GID of an IP address: IPv4 is mapped.
#[must_use]
pub fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
