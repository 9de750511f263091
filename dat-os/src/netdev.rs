//! The netdevs of this host's network namespace, with their addresses (getifaddrs(3)).

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A netdev.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Netdev {
    /// Name.
    pub name: String,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it has a carrier, too.
    pub running: bool,
    /// Whether it is the loopback netdev.
    pub loopback: bool,
    /// Addresses in the kernel's order.
    pub addresses: Vec<IpAddr>,
}

/// Returns whether `ip` is an IPv6 address of one link, which means nothing without a netdev.
#[must_use]
pub const fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Returns all netdevs.
///
/// # Errors
/// Those of getifaddrs(3).
pub fn all() -> io::Result<Vec<Netdev>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` is valid for the write.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found: Vec<Netdev> = Vec::new();
    let mut next = list.cast_const();
    // SAFETY: getifaddrs returned a NULL-terminated list, valid until it is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: names are C strings.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy();
        let has = |flag: i32| entry.ifa_flags & flag.cast_unsigned() != 0;
        let at = found.iter().position(|netdev| netdev.name == name);
        let at = at.unwrap_or_else(|| {
            found.push(Netdev {
                name: name.to_string(),
                up: has(libc::IFF_UP),
                running: has(libc::IFF_RUNNING),
                loopback: has(libc::IFF_LOOPBACK),
                addresses: Vec::new(),
            });
            found.len() - 1
        });
        // SAFETY: NULL, or an address as large as its family says.
        found[at]
            .addresses
            .extend(unsafe { address(entry.ifa_addr) });
    }
    // SAFETY: from getifaddrs, not used any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// Returns the IP address of a `sockaddr`.
///
/// # Safety
/// `at` is NULL or points to an address as large as its family says.
unsafe fn address(at: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: NULL or readable by the caller's promise; the kernel's list is aligned for every family.
    unsafe {
        match i32::from(at.as_ref()?.sa_family) {
            libc::AF_INET => {
                let v4 = at.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let v6 = at.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_loopback_netdev_has_its_address() {
        let all = super::all().unwrap();
        let lo = all.iter().find(|netdev| netdev.loopback).expect("lo");
        assert!(
            lo.addresses.iter().any(std::net::IpAddr::is_loopback),
            "{lo:?}"
        );
        assert!(lo.up);
    }
}
