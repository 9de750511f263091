//! Converts socket addresses to and from the C form.

use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV6};

/// C form of an address of either family: that of IPv6, which is the longer one. A `sockaddr_storage` would have to be
/// cleared for each datagram.
pub type RawAddress = libc::sockaddr_in6;

/// Returns an address of zeros.
pub const fn raw() -> RawAddress {
    // SAFETY: all-zero is a valid sockaddr_in6.
    unsafe { zeroed() }
}

/// Returns the C form of `address` and its length.
pub fn to_c(address: &SocketAddr) -> (RawAddress, libc::socklen_t) {
    let mut raw = raw();
    let length = match address {
        SocketAddr::V4(v4) => {
            let c = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*v4.ip()).to_be(),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: a sockaddr_in6 has room and alignment for a sockaddr_in.
            unsafe { (&raw mut raw).cast::<libc::sockaddr_in>().write(c) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (raw, length as libc::socklen_t)
}

/// Converts from the C form; `None` for a family other than IPv4 and IPv6.
pub fn from_c(raw: &RawAddress) -> Option<SocketAddr> {
    match i32::from(raw.sin6_family) {
        libc::AF_INET => {
            // SAFETY: the family says that a sockaddr_in is in there.
            let c = unsafe { (&raw const *raw).cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(c.sin_addr.s_addr));
            Some(SocketAddr::new(ip.into(), u16::from_be(c.sin_port)))
        }
        libc::AF_INET6 => Some(
            SocketAddrV6::new(
                raw.sin6_addr.s6_addr.into(),
                u16::from_be(raw.sin6_port),
                raw.sin6_flowinfo,
                raw.sin6_scope_id,
            )
            .into(),
        ),
        _ => None,
    }
}

/// Converts from the C form of any family, as [`from_c`] does.
pub fn from_storage(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    // SAFETY: a sockaddr_storage is longer than a sockaddr_in6 and aligned for it.
    from_c(unsafe { &*(&raw const *storage).cast::<RawAddress>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_conversion_to_c_and_back() {
        for text in ["10.1.2.3:4791", "[fd09::1]:7", "[::]:0", "0.0.0.0:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(from_c(&to_c(&address).0), Some(address));
        }
    }
}
