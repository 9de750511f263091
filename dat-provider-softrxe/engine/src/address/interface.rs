//! The netdevs of this host's network namespace, as `getifaddrs` and `SIOCGIFMTU` show them.

use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use softrxe_port::address::from_storage;

/// The kernel's list of IPv6 addresses with their flags, which `getifaddrs` does not tell.
const IF_INET6: &str = "/proc/net/if_inet6";

/// A netdev, with its properties that concern RoCE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// Addresses in the order in which the kernel lists them, but those that [do not stay](unstable) last.
    pub(crate) addresses: Vec<IpAddr>,
    /// Largest IP packet; 0 if the kernel does not report it.
    pub(crate) mtu: u32,
    /// Administratively up.
    pub(crate) up: bool,
    /// A loopback netdev: all of 127/8 is on it.
    pub(crate) loopback: bool,
}

/// Lists all netdevs.
///
/// # Errors
/// As `getifaddrs` and `socket`.
pub(crate) fn interfaces() -> io::Result<Vec<Interface>> {
    let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` is valid for the write.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found: Vec<Interface> = Vec::new();
    let mut next = list.cast_const();
    // SAFETY: getifaddrs returned a NULL-terminated list, valid until it is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: names are NUL-terminated.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy();
        let flag = |f: i32| entry.ifa_flags & f.cast_unsigned() != 0;
        let at = found
            .iter()
            .position(|i| i.name == name)
            .unwrap_or_else(|| {
                found.push(Interface {
                    name: name.to_string(),
                    addresses: Vec::new(),
                    mtu: mtu(&probe, &name),
                    up: flag(libc::IFF_UP),
                    loopback: flag(libc::IFF_LOOPBACK),
                });
                found.len() - 1
            });
        // SAFETY: null, or an address as large as its family says.
        if let Some(address) = unsafe { read(entry.ifa_addr) } {
            found[at].addresses.push(address);
        }
    }
    // SAFETY: from getifaddrs, not used any more.
    unsafe { libc::freeifaddrs(list) };
    let unstable = unstable(&std::fs::read_to_string(IF_INET6).unwrap_or_default());
    for interface in &mut found {
        let ends = |address: &IpAddr| unstable.contains(address);
        interface.addresses.sort_by_key(ends);
    }
    Ok(found)
}

/// Returns the addresses of `list`, in the format of /proc/net/if_inet6, that are temporary (RFC 8981), deprecated, or not found unique.
/// The kernel lists the newest address of a netdev first, and that is such a one where privacy extensions are on.
fn unstable(list: &str) -> Vec<IpAddr> {
    const UNSTABLE: u32 = libc::IFA_F_TEMPORARY
        | libc::IFA_F_DEPRECATED
        | libc::IFA_F_TENTATIVE
        | libc::IFA_F_DADFAILED;
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        // Index, prefix length and scope come before the flags.
        let flags = u32::from_str_radix(words.nth(3)?, 16).ok()?;
        (flags & UNSTABLE != 0).then(|| Ipv6Addr::from_bits(address).into())
    };
    list.lines().filter_map(address).collect()
}

/// Returns the address of this host from which packets take the default route. Nothing is sent.
#[must_use]
pub fn default_address() -> Option<IpAddr> {
    // Addresses for documentation (RFC 5737, RFC 3849), which no host has. They are routed like any other remote address.
    let routes = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    routes.into_iter().find_map(|(from, to)| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
    })
}

/// Returns the address behind a `sockaddr`.
///
/// # Safety
/// `address` is null or points to an address as large as its family says.
unsafe fn read(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: all-zero is a valid sockaddr_storage.
    let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
    // SAFETY: the family is readable by the caller's promise.
    let length = match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    // SAFETY: `length` bytes are readable by the caller's promise, and a sockaddr_storage has room for them.
    unsafe {
        let to: *mut u8 = (&raw mut storage).cast();
        address.cast::<u8>().copy_to_nonoverlapping(to, length);
    }
    from_storage(&storage).map(|address: SocketAddr| address.ip())
}

/// Returns the MTU of a netdev, or 0 if the kernel does not report it.
fn mtu(probe: &UdpSocket, name: &str) -> u32 {
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: SIOCGIFMTU reads the name and writes the integer of an ifreq.
    let done = unsafe { libc::ioctl(probe.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    if done != 0 {
        return 0;
    }
    // SAFETY: the kernel has written that member.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection to an address that the kernel removes after a day would break.
    #[test]
    fn addresses_that_do_not_stay_are_told_by_their_flags() {
        let list = "\
            fd090000000000000000000000000001 02 40 00 80     eth0\n\
            fd090000000000000000000000000002 02 40 00 01     eth0\n\
            fd090000000000000000000000000003 02 40 00 a0     eth0\n\
            fd090000000000000000000000000004 02 40 00 c0     eth0\n\
            fd090000000000000000000000000005 02 40 00 88     eth0\n\
            00000000000000000000000000000001 01 80 10 80       lo\n\
            not a line\n";
        let expected = [2, 3, 4, 5].map(|n| Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, n));
        assert_eq!(unstable(list), expected.map(IpAddr::from));
    }

    #[test]
    fn loopback_is_listed_with_its_address_and_mtu() {
        let list = interfaces().unwrap();
        let lo = list.iter().find(|i| i.loopback).expect("a loopback netdev");
        assert!(lo.up, "{lo:?}");
        assert!(
            lo.addresses.contains(&"127.0.0.1".parse().unwrap()),
            "{lo:?}"
        );
        assert!(lo.mtu >= 1280, "{lo:?}");
        if let Some(ip) = default_address() {
            assert!(
                list.iter().any(|i| i.addresses.contains(&ip)),
                "{ip} of {list:?}"
            );
        }
    }
}
