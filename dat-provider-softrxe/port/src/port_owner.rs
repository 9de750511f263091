//! The user of the socket that is bound to a UDP port, as /proc/net/udp shows it.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::credentials::{is_ambiguous, own_uid};

/// The user of a UDP port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortOwner {
    /// Uid of the socket.
    pub uid: u32,
}

impl fmt::Display for PortOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(self.uid, own_uid(), is_ambiguous(self.uid), f)
    }
}

/// Writes whose the port is. A user that `is_unmapped` may be any one, also root of the host that runs `dat serve-port`.
fn describe(uid: u32, own: u32, is_unmapped: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if is_unmapped {
        write!(
            f,
            "user {uid}, which stands for all whom this user namespace does not map, as root of the host and the users of other \
             containers, and not to this one (uid {own}); such users are never trusted, not even with `dat serve-port`"
        )
    } else if uid == own {
        write!(
            f,
            "a program of this user (uid {own}) that is no engine, or one that does not answer"
        )
    } else {
        write!(f, "user {uid} and not to this one (uid {own})")
    }
}

impl PortOwner {
    /// Returns the user of the socket that is bound to the UDP port of `local`, at that address or at all addresses.
    #[must_use]
    pub fn of(local: SocketAddr) -> Option<Self> {
        let list = match local.ip() {
            IpAddr::V4(_) => "/proc/net/udp",
            IpAddr::V6(_) => "/proc/net/udp6",
        };
        let list = BufReader::new(std::fs::File::open(list).ok()?);
        let lines = list.lines().map_while(Result::ok);
        let mut found = lines.filter_map(|line| parse(&line)).filter(|(at, _)| {
            at.port() == local.port() && (at.ip() == local.ip() || at.ip().is_unspecified())
        });
        found.next().map(|(_, uid)| Self { uid })
    }
}

/// Parses a line of /proc/net/udp or udp6: local address and uid.
fn parse(line: &str) -> Option<(SocketAddr, u32)> {
    let mut words = line.split_whitespace();
    let (ip, port) = words.nth(1)?.split_once(':')?;
    let uid = words.nth(5)?.parse().ok()?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // The kernel prints words of 32 bits in the byte order of the processor.
    let word = |at: usize| {
        let word = u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    let ip = if ip.len() == 8 {
        IpAddr::from(Ipv4Addr::from(word(0)?))
    } else {
        let mut octets = [0; 16];
        for (index, four) in octets.chunks_exact_mut(4).enumerate() {
            four.copy_from_slice(&word(8 * index)?);
        }
        IpAddr::from(Ipv6Addr::from(octets))
    };
    Some((SocketAddr::new(ip, port), uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a container with a user namespace the remedy `dat serve-port` is of no use, and may be in force.
    #[test]
    fn a_user_whom_the_namespace_does_not_map_is_told_as_such() {
        struct Told(bool);
        impl fmt::Display for Told {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                describe(65_534, 0, self.0, f)
            }
        }
        assert!(Told(true).to_string().contains("user namespace"));
        assert!(!Told(false).to_string().contains("user namespace"));
    }

    #[test]
    fn the_list_of_udp_ports_is_read() {
        let v4 = "  123: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000 65534        0 9 2 0000 0";
        assert_eq!(parse(v4), Some(("127.0.0.1:4791".parse().unwrap(), 65_534)));
        let v6 = "  9: 00000000000000000000000001000000:12B7 00000000000000000000000000000000:0000 07 0:0 00:0 0 1000 0 9 2 0 0";
        assert_eq!(parse(v6), Some(("[::1]:4791".parse().unwrap(), 1000)));
        for odd in [
            "",
            "  sl  local_address rem_address   st tx_queue rx_queue tr",
            "1: 0100:12 0 0 0 0 0 0",
        ] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }
}
