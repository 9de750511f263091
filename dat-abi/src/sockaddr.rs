//! Socket addresses as C has them: `sockaddr_in` and `sockaddr_in6`.

use std::net::{IpAddr, SocketAddr};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Room of a `DAT_SOCK_ADDR` of either family, as words so that it is aligned.
pub type Room = [u32; 7];

/// The bytes of an address; for no `ip` those of family 0.
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

/// An address to point at; for no `ip` one of family 0.
#[must_use]
pub fn room(ip: Option<IpAddr>, scope: u32, port: u16) -> Room {
    let mut room = [0; 7];
    for (word, four) in room.iter_mut().zip(bytes(ip, scope, port).chunks_exact(4)) {
        *word = u32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
    }
    room
}

/// What a C socket address says. `None`: NULL, or neither IPv4 nor IPv6.
///
/// # Safety
/// `at` is NULL or points to a socket address of the size that its family says.
#[must_use]
pub unsafe fn read(at: *const u8) -> Option<SocketAddr> {
    if at.is_null() {
        return None;
    }
    // SAFETY: a socket address begins with two bytes of family and is as long as that says; the port follows in both.
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

/// The same of an address that a consumer gives, where an IPv4 one may be dressed as IPv6.
///
/// # Safety
/// As [`read`].
pub(crate) unsafe fn read_canonical(at: *const u8) -> Option<SocketAddr> {
    // SAFETY: the caller's promise.
    let at = unsafe { read(at)? };
    Some(SocketAddr::new(at.ip().to_canonical(), at.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_goes_to_c_and_back() {
        for text in ["10.9.0.1:4791", "[fd09::1]:7", "127.0.0.1:0"] {
            let at: SocketAddr = text.parse().unwrap();
            let words = room(Some(at.ip()), 0, at.port());
            // SAFETY: a whole socket address.
            assert_eq!(unsafe { read(words.as_ptr().cast()) }, Some(at));
        }
        let other = [1_u32; 7];
        // SAFETY: NULL, an address of another family, and one of family 0.
        unsafe {
            assert_eq!(read(std::ptr::null()), None);
            assert_eq!(read(other.as_ptr().cast()), None);
            assert_eq!(read(room(None, 0, 7).as_ptr().cast()), None);
        }
    }

    #[test]
    fn ipv4_dressed_as_ipv6_is_ipv4_where_a_consumer_gives_it() {
        let dressed: SocketAddr = "[::ffff:10.9.0.1]:5".parse().unwrap();
        let words = room(Some(dressed.ip()), 0, dressed.port());
        let at = words.as_ptr().cast();
        // SAFETY: a whole socket address.
        let (as_is, canonical) = unsafe { (read(at), read_canonical(at)) };
        assert_eq!(as_is, Some(dressed));
        assert_eq!(canonical, Some("10.9.0.1:5".parse().unwrap()));
    }
}
