//! Conversion of socket addresses between Rust and C.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A C socket address of either family.
#[repr(C)]
pub(crate) union CAddr {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl CAddr {
    pub(crate) fn new(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(a) => Self {
                v4: libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: a.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from(*a.ip()).to_be(),
                    },
                    sin_zero: [0; 8],
                },
            },
            SocketAddr::V6(a) => Self {
                v6: libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: a.port().to_be(),
                    sin6_flowinfo: a.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: a.ip().octets(),
                    },
                    sin6_scope_id: a.scope_id(),
                },
            },
        }
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        std::ptr::from_mut(self).cast()
    }
}

/// Reads the address behind `p`; `None` for NULL and for other families.
///
/// # Safety
/// `p` is NULL or points to a socket address as large as its family says.
pub(crate) unsafe fn from_c(p: *const libc::sockaddr) -> Option<SocketAddr> {
    if p.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees the family field and the bytes that follow it.
    unsafe {
        match i32::from((*p).sa_family) {
            libc::AF_INET => {
                let a = p.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(a.sin_port)).into())
            }
            libc::AF_INET6 => {
                let a = p.cast::<libc::sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(a.sin6_addr.s6_addr);
                let port = u16::from_be(a.sin6_port);
                Some(SocketAddrV6::new(ip, port, a.sin6_flowinfo, a.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// Returns the socket address of `ip` and `port`, with the scope that IPv6 link-local addresses need.
pub(crate) fn socket(ip: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match ip {
        IpAddr::V4(v4) => SocketAddrV4::new(v4, port).into(),
        IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, scope).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for text in ["10.9.0.1:45248", "[fe80::1%7]:80", "[2001:db8::2]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut c = CAddr::new(address);
            // SAFETY: `c` holds a whole socket address.
            assert_eq!(unsafe { from_c(c.as_mut_ptr()) }, Some(address), "{text}");
        }
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { from_c(std::ptr::null()) }, None);
    }
}
