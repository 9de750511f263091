//! The local address of an adapter, found from the device field of `ia_params` and the netdevs of this host. Pure.

use std::net::IpAddr;

use dat_os::netdev::is_link_local;

use super::interface::Interface;

/// Bytes of a RoCEv2 packet besides its payload, as the kernel's RoCE counts them.
const OVERHEAD: u32 = 96;

/// An address of this host that an adapter uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LocalAddress {
    /// The address that peers connect to.
    pub(crate) address: IpAddr,
    /// The netdev that has it.
    pub(crate) netdev: String,
    /// Largest path MTU for which the netdev's packets have room.
    pub(crate) mtu: u16,
}

/// Error of a device field that leads to no local address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum LocalAddressError {
    /// The device field names nothing of this host.
    #[error("{wanted:?} is no netdev, address or host name of this host; there are: {found}")]
    NoSuch { wanted: String, found: String },
    /// The device field names a netdev that is down.
    #[error("netdev {netdev} is down; `ip link set {netdev} up`")]
    Down { netdev: String },
    /// The device field names a netdev without an address.
    #[error(
        "netdev {netdev} has no address to connect to (link-local ones do not count); \
         `ip addr add ADDRESS/PREFIX dev {netdev}`"
    )]
    NoAddress { netdev: String },
    /// The device field names a link-local address.
    #[error(
        "{wanted} is link-local: dat_ep_connect has no argument for the netdev that a peer would need with it; \
         write another address of netdev {netdev}"
    )]
    LinkLocal { wanted: String, netdev: String },
    /// The port field names a port that no netdev has.
    #[error("{wanted:?} has port 1 only, not {port}; write 1, or 0 for whichever it is")]
    Port { wanted: String, port: u32 },
}

/// Finds the local address that `device` names: a netdev, an address or a host name (by `resolve`). An empty `device` means the
/// netdev of the address that `default` returns, and loopback without one.
pub(crate) fn find(
    device: &str,
    port: u32,
    interfaces: &[Interface],
    default: impl FnOnce() -> Option<IpAddr>,
    resolve: impl FnOnce(&str) -> Vec<IpAddr>,
) -> Result<LocalAddress, LocalAddressError> {
    if port > 1 {
        let wanted = device.to_owned();
        return Err(LocalAddressError::Port { wanted, port });
    }
    if device.is_empty() {
        let found = default().and_then(|ip| at(ip, interfaces));
        let loopback = || interfaces.iter().find(|i| i.loopback).and_then(of);
        return found
            .or_else(loopback)
            .ok_or_else(|| none(device, interfaces));
    }
    if let Some(interface) = interfaces.iter().find(|i| i.name == device) {
        let netdev = interface.name.clone();
        if !interface.up {
            return Err(LocalAddressError::Down { netdev });
        }
        return of(interface).ok_or(LocalAddressError::NoAddress { netdev });
    }
    let addresses = match device.parse() {
        Ok(ip) => vec![ip],
        Err(_) => resolve(device),
    };
    let mut found = addresses.iter().filter_map(|ip| at(*ip, interfaces));
    found.next().ok_or_else(|| {
        let mut unusable = addresses.iter().filter(|ip| is_link_local(**ip));
        let of = |ip| interfaces.iter().find(|i| i.addresses.contains(ip));
        match unusable.find_map(of) {
            Some(interface) => LocalAddressError::LinkLocal {
                wanted: device.to_owned(),
                netdev: interface.name.clone(),
            },
            None => none(device, interfaces),
        }
    })
}

/// Returns the best address of `interface`: IPv4 first, as DAPL's clients support nothing else.
fn of(interface: &Interface) -> Option<LocalAddress> {
    let ipv4 = interface.addresses.iter().find(|ip| ip.is_ipv4());
    let ipv6 = || interface.addresses.iter().find(|ip| usable(**ip));
    ipv4.or_else(ipv6).map(|ip| on(interface, *ip))
}

/// Returns whether peers can connect to `ip`. A link-local address would need a netdev with it, for which `dat_ep_connect` has no
/// argument.
fn usable(ip: IpAddr) -> bool {
    !is_link_local(ip) && !ip.is_unspecified()
}

/// Returns the local address `ip`, if it is one of this host.
fn at(ip: IpAddr, interfaces: &[Interface]) -> Option<LocalAddress> {
    let has = |i: &&Interface| {
        i.addresses.contains(&ip) || (i.loopback && ip.is_ipv4() && ip.is_loopback())
    };
    let interface = interfaces.iter().filter(|_| usable(ip)).find(has)?;
    Some(on(interface, ip))
}

fn on(interface: &Interface, address: IpAddr) -> LocalAddress {
    let room = interface.mtu.saturating_sub(OVERHEAD);
    let mtu = [4096, 2048, 1024, 512]
        .into_iter()
        .find(|mtu| u32::from(*mtu) <= room);
    LocalAddress {
        address,
        netdev: interface.name.clone(),
        mtu: mtu.unwrap_or(256),
    }
}

fn none(wanted: &str, interfaces: &[Interface]) -> LocalAddressError {
    let one = |i: &Interface| {
        let addresses: Vec<String> = i.addresses.iter().map(IpAddr::to_string).collect();
        if addresses.is_empty() {
            return format!("{} (no address)", i.name);
        }
        format!("{} ({})", i.name, addresses.join(" "))
    };
    LocalAddressError::NoSuch {
        wanted: wanted.to_owned(),
        found: interfaces.iter().map(one).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Vec<Interface> {
        let make = |name: &str, mtu, up, addresses: &[&str]| Interface {
            name: name.into(),
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            mtu,
            up,
            loopback: name == "lo",
        };
        vec![
            make("lo", 65_536, true, &["127.0.0.1", "::1"]),
            make("eth0", 1500, true, &["fe80::1", "fd09::1", "10.9.0.1"]),
            make("eth1", 4200, true, &["fe80::2", "fd09::2"]),
            make("eth2", 9000, true, &["fe80::3"]),
            make("eth3", 1280, false, &["10.9.3.1"]),
            make("ifb0", 1500, false, &[]),
        ]
    }

    fn found(device: &str) -> Result<(String, String, u16), LocalAddressError> {
        let default = || Some("10.9.0.1".parse().unwrap());
        let resolve = |name: &str| match name {
            "lab" => vec!["192.0.2.9".parse().unwrap(), "fd09::2".parse().unwrap()],
            _ => Vec::new(),
        };
        let found = find(device, 0, &host(), default, resolve)?;
        Ok((found.address.to_string(), found.netdev, found.mtu))
    }

    #[test]
    fn netdevs_addresses_and_names_lead_to_an_address() {
        for (device, address, netdev, mtu) in [
            ("lo", "127.0.0.1", "lo", 4096),
            ("127.3.2.1", "127.3.2.1", "lo", 4096),
            ("::1", "::1", "lo", 4096),
            ("eth0", "10.9.0.1", "eth0", 1024),
            ("fd09::1", "fd09::1", "eth0", 1024),
            ("eth1", "fd09::2", "eth1", 4096),
            ("lab", "fd09::2", "eth1", 4096),
            ("", "10.9.0.1", "eth0", 1024),
        ] {
            let expected = (address.to_owned(), netdev.to_owned(), mtu);
            assert_eq!(found(device), Ok(expected), "{device:?}");
        }
    }

    #[test]
    fn an_empty_device_is_loopback_without_a_default_route() {
        let found = find("", 1, &host(), || None, |_| Vec::new()).unwrap();
        assert_eq!(found.address.to_string(), "127.0.0.1");
        let error = find("", 0, &host()[4..], || None, |_| Vec::new()).unwrap_err();
        assert!(error.to_string().contains("eth3 (10.9.3.1)"), "{error}");
    }

    #[test]
    fn errors_name_what_is_missing_or_unusable() {
        for (device, said) in [
            ("eth9", "\"eth9\" is no netdev, address or host name"),
            ("192.0.2.7", "lo (127.0.0.1 ::1), eth0 (fe80::1"),
            ("fe80::1", "write another address of netdev eth0"),
            ("fe80::99", "is no netdev, address or host name"),
            ("eth9", "eth3 (10.9.3.1), ifb0 (no address)"),
            ("0.0.0.0", "is no netdev, address or host name"),
            ("eth2", "netdev eth2 has no address"),
            ("eth3", "`ip link set eth3 up`"),
        ] {
            let text = found(device).unwrap_err().to_string();
            assert!(text.contains(said), "{device}: {text}");
        }
        let error = find("lo", 2, &host(), || None, |_| Vec::new()).unwrap_err();
        assert!(error.to_string().contains("port 1 only, not 2"), "{error}");
    }
}
