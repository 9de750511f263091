//! Socket addresses as C has them.

use std::net::{IpAddr, SocketAddr};

/// A `sockaddr_in` or `sockaddr_in6`, aligned as those.
pub(crate) fn sockaddr(at: SocketAddr) -> [u32; 7] {
    let mut bytes = [0; 28];
    let family = match at {
        SocketAddr::V4(_) => libc::AF_INET as u16,
        SocketAddr::V6(_) => libc::AF_INET6 as u16,
    };
    bytes[..2].copy_from_slice(&family.to_ne_bytes());
    bytes[2..4].copy_from_slice(&at.port().to_be_bytes());
    match at.ip() {
        IpAddr::V4(ip) => bytes[4..8].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes[8..24].copy_from_slice(&ip.octets()),
    }
    let mut words = [0; 7];
    for (word, four) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
    }
    words
}

/// What a C socket address says; `None` for NULL and other families.
///
/// # Safety
/// `at` is NULL or a socket address as long as its family says.
pub(crate) unsafe fn read_address(at: *const u8) -> Option<SocketAddr> {
    if at.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let ip = match i32::from(at.cast::<u16>().read_unaligned()) {
            libc::AF_INET => IpAddr::from(at.add(4).cast::<[u8; 4]>().read()),
            libc::AF_INET6 => IpAddr::from(at.add(8).cast::<[u8; 16]>().read()),
            _ => return None,
        };
        let port = u16::from_be_bytes(at.add(2).cast::<[u8; 2]>().read());
        Some(SocketAddr::new(ip, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_goes_to_c_and_back() {
        for text in ["10.9.0.1:4791", "[fd09::1]:7", "127.0.0.1:0"] {
            let at: SocketAddr = text.parse().unwrap();
            let words = sockaddr(at);
            // SAFETY: a whole socket address.
            assert_eq!(unsafe { read_address(words.as_ptr().cast()) }, Some(at));
        }
        let other = [1_u32; 7];
        // SAFETY: NULL, and an address of another family.
        unsafe {
            assert_eq!(read_address(std::ptr::null()), None);
            assert_eq!(read_address(other.as_ptr().cast()), None);
        }
    }
}
