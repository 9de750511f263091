//! C socket addresses: `sockaddr_in` and `sockaddr_in6`.

use std::net::{IpAddr, SocketAddr};

use dat_os::netdev::is_link_local;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Storage of a `DAT_SOCK_ADDR` of either family, in words so that it is aligned.
pub type SockAddr = [u32; 7];

/// Returns the scope of an address: `scope` if it is a link-local one, else 0.
pub(crate) fn link_scope(ip: Option<IpAddr>, scope: u32) -> u32 {
    if ip.is_some_and(is_link_local) {
        scope
    } else {
        0
    }
}

/// Returns the bytes of a socket address; without `ip` those of family 0.
pub(crate) fn bytes(ip: Option<IpAddr>, scope: u32, port: u16) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    match ip {
        None => {}
        Some(IpAddr::V4(v4)) => {
            bytes[..2].copy_from_slice(&AF_INET.to_ne_bytes());
            bytes[4..8].copy_from_slice(&v4.octets());
        }
        Some(IpAddr::V6(v6)) => {
            bytes[..2].copy_from_slice(&AF_INET6.to_ne_bytes());
            bytes[8..24].copy_from_slice(&v6.octets());
            bytes[24..28].copy_from_slice(&scope.to_ne_bytes());
        }
    }
    bytes
}

/// Returns a socket address; without `ip` one of family 0.
#[must_use]
pub fn c_address(ip: Option<IpAddr>, scope: u32, port: u16) -> SockAddr {
    let mut words = [0; 7];
    for (word, four) in words.iter_mut().zip(bytes(ip, scope, port).chunks_exact(4)) {
        *word = u32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
    }
    words
}

/// Reads a C socket address. Returns `None` for NULL and for families other than IPv4 and IPv6.
///
/// # Safety
/// `at` is NULL or points to a socket address of its family's size.
#[must_use]
pub unsafe fn read(at: *const u8) -> Option<SocketAddr> {
    if at.is_null() {
        return None;
    }
    // SAFETY: a socket address begins with two bytes that name its family, and has the family's size; the port follows them.
    unsafe {
        let ip = match at.cast::<u16>().read_unaligned() {
            AF_INET => IpAddr::from(at.add(4).cast::<[u8; 4]>().read()),
            AF_INET6 => IpAddr::from(at.add(8).cast::<[u8; 16]>().read()),
            _ => return None,
        };
        let port = u16::from_be_bytes(at.add(2).cast::<[u8; 2]>().read());
        Some(SocketAddr::new(ip, port))
    }
}

/// Reads a C socket address that a consumer passes. An IPv4-mapped IPv6 address becomes the IPv4 address.
///
/// # Safety
/// The same as [`read`].
pub(crate) unsafe fn read_canonical(at: *const u8) -> Option<SocketAddr> {
    // SAFETY: the caller's promise.
    let at = unsafe { read(at)? };
    Some(SocketAddr::new(at.ip().to_canonical(), at.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_converts_to_c_and_back() {
        for text in ["10.9.0.1:4791", "[fd09::1]:7", "127.0.0.1:0"] {
            let at: SocketAddr = text.parse().unwrap();
            let words = c_address(Some(at.ip()), 0, at.port());
            // SAFETY: a whole socket address.
            assert_eq!(unsafe { read(words.as_ptr().cast()) }, Some(at));
        }
        let other = [1_u32; 7];
        // SAFETY: NULL, an address of another family, and one of family 0.
        unsafe {
            assert_eq!(read(std::ptr::null()), None);
            assert_eq!(read(other.as_ptr().cast()), None);
            assert_eq!(read(c_address(None, 0, 7).as_ptr().cast()), None);
        }
    }

    #[test]
    fn an_ipv4_mapped_address_of_a_consumer_is_ipv4() {
        let mapped: SocketAddr = "[::ffff:10.9.0.1]:5".parse().unwrap();
        let words = c_address(Some(mapped.ip()), 0, mapped.port());
        let at = words.as_ptr().cast();
        // SAFETY: a whole socket address.
        let (as_is, canonical) = unsafe { (read(at), read_canonical(at)) };
        assert_eq!(as_is, Some(mapped));
        assert_eq!(canonical, Some("10.9.0.1:5".parse().unwrap()));
    }
}
