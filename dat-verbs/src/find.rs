//! Finds the device and port that an IA names: by verbs device and port, netdev, IP address or host name. librdmacm
//! maps an address to its device (for RoCE, IPoIB and iWARP alike), so every form is resolved to addresses first.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use dat_core::error::{Error, Kind, Subtype};
use dat_core::ia_params::IaParamsError;
use dat_os::netdev::is_link_local;

use crate::cm::addr;
use crate::cm::rdma::id::{Channel, CmId, PortSpace};
use crate::convert;
use crate::sys::LoadError;
use crate::verbs::device;

/// Device, port and address of an IA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DevicePort {
    /// Name of the verbs device.
    pub(crate) device: String,
    /// Number of the port, from 1.
    pub(crate) port: u8,
    /// The address that peers connect to.
    pub(crate) ip: IpAddr,
    /// Scope of an IPv6 link-local address, else 0.
    pub(crate) scope: u32,
    /// The netdev that has the address.
    pub(crate) netdev: Option<String>,
}

/// The reason why an IA does not open.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error(transparent)]
    Params(#[from] IaParamsError),
    #[error(transparent)]
    Library(#[from] LoadError),
    #[error("no RDMA connection manager: {reason}")]
    NoCm { reason: String, permission: bool },
    #[error("this machine has no verbs device that is usable; {found}")]
    NoDevice { found: String },
    #[error("{wanted:?} is no verbs device, netdev, address or host name of this machine; {found}")]
    NoSuch { wanted: String, found: String },
    #[error("{wanted} is there, but no verbs device is behind it: {reason}; {found}")]
    NotRdma {
        wanted: String,
        reason: String,
        found: String,
    },
    #[error(
        "verbs device {device}{port} has no IP address to connect to; give its netdev one (`ip addr add ADDRESS/PREFIX \
         dev NETDEV; ip link set NETDEV up`); {found}"
    )]
    NoAddress {
        device: String,
        port: String,
        found: String,
    },
    #[error(
        "{wanted} is port {found} of {device}, not port {asked}; write {found}, or 0 for whichever it is"
    )]
    Port {
        wanted: String,
        device: String,
        found: u8,
        asked: u32,
    },
    #[error("cannot open verbs device {device}: {reason}")]
    Device { device: String, reason: String },
    #[error("cannot start the event thread: {0}")]
    Resources(String),
}

impl OpenError {
    /// Returns the return code of dat_ia_open.
    pub(crate) fn code(&self) -> Error {
        match self {
            Self::Params(_) => Error::of(Kind::InvalidParameter),
            Self::NoCm {
                permission: true, ..
            } => Error::of(Kind::PrivilegesViolation),
            Self::Library(_) | Self::NoCm { .. } | Self::NoDevice { .. } => {
                Error::of(Kind::ProviderNotFound)
            }
            Self::NoSuch { .. } => {
                Error::new(Kind::InvalidAddress, Subtype::InvalidAddressMalformed)
            }
            Self::NotRdma { .. } | Self::NoAddress { .. } | Self::Port { .. } => {
                Error::new(Kind::InvalidAddress, Subtype::InvalidAddressUnreachable)
            }
            Self::Device { .. } => Error::resource(Subtype::ResourceDevice),
            Self::Resources(_) => Error::resource(Subtype::ResourceMemory),
        }
    }

    /// Makes the error for a librdmacm that does not open.
    pub(crate) fn no_cm(errno: i32) -> Self {
        let permission = matches!(errno, libc::EACCES | libc::EPERM);
        let text = convert::text(errno);
        let reason = if permission {
            format!("{text}; allow this user to read and write /dev/infiniband/rdma_cm")
        } else {
            format!(
                "{text}; load it with `modprobe rdma_ucm` (and the driver of the device, e.g. `modprobe rdma_rxe`)"
            )
        };
        Self::NoCm { reason, permission }
    }

    /// Makes the error for a device that librdmacm named and that no longer exists.
    pub(crate) fn gone(device: &str) -> Self {
        Self::Device {
            device: device.to_owned(),
            reason: "it went away meanwhile".to_owned(),
        }
    }
}

/// Explains why a device does not open, and what helps.
pub(crate) fn device_text(errno: i32) -> String {
    let text = convert::text(errno);
    match errno {
        libc::EACCES | libc::EPERM => {
            format!("{text}; allow this user to read and write /dev/infiniband/uverbs*")
        }
        libc::ENOENT | libc::ENODEV => {
            format!("{text}; load the user access module (`modprobe ib_uverbs`)")
        }
        _ => text,
    }
}

/// One IP address of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalAddress {
    pub(crate) netdev: String,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) up: bool,
    pub(crate) loopback: bool,
}

/// Returns the netdevs of this machine with their addresses.
pub(crate) fn addresses() -> Vec<LocalAddress> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` is valid for the write.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = list.cast_const();
    // SAFETY: getifaddrs returned a NULL-terminated list, valid until it is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: names are NUL-terminated, addresses as large as their family says.
        let (name, address) = unsafe {
            (
                std::ffi::CStr::from_ptr(entry.ifa_name),
                addr::from_c(entry.ifa_addr),
            )
        };
        let flag = |f: i32| entry.ifa_flags & f.cast_unsigned() != 0;
        found.push(LocalAddress {
            netdev: name.to_string_lossy().into_owned(),
            address,
            up: flag(libc::IFF_UP),
            loopback: flag(libc::IFF_LOOPBACK),
        });
        next = entry.ifa_next;
    }
    // SAFETY: from getifaddrs, not used any more.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// Returns the addresses of this machine with the names of their netdevs.
#[must_use]
pub fn local_addresses() -> Vec<(String, IpAddr)> {
    let with_address = |l: LocalAddress| l.address.map(|a| (l.netdev, a.ip()));
    addresses().into_iter().filter_map(with_address).collect()
}

/// Sorts IPv4 first, since DAPL accepts nothing else; link-local and loopback addresses last.
fn in_order(mut list: Vec<LocalAddress>) -> Vec<LocalAddress> {
    list.sort_by_key(|l| match l.address.map(|a| a.ip()) {
        Some(_) if l.loopback => 3,
        Some(IpAddr::V4(_)) => 0,
        Some(ip) if is_link_local(ip) => 2,
        Some(IpAddr::V6(_)) => 1,
        None => 4,
    });
    list
}

/// Fails if the machine has no verbs device: librdmacm's own error for that is less helpful.
pub(crate) fn require_device() -> Result<(), OpenError> {
    if device::names().is_empty() {
        return Err(OpenError::NoDevice {
            found: list_devices(&in_order(addresses())),
        });
    }
    Ok(())
}

/// Lists the machine's devices and netdevs for an error message.
fn list_devices(addresses: &[LocalAddress]) -> String {
    listing(&device::names(), addresses)
}

fn listing(devices: &[String], addresses: &[LocalAddress]) -> String {
    let list = |names: &[String]| match names {
        [] => "none".to_owned(),
        some => some.join(", "),
    };
    let mut netdevs: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for local in addresses.iter().filter(|l| !l.loopback) {
        let addresses = netdevs.entry(&local.netdev).or_default();
        addresses.extend(local.address.map(|a| a.ip().to_string()));
    }
    let netdevs = netdevs
        .iter()
        .map(|(name, addresses)| match addresses.as_slice() {
            [] => format!("{name} (no address)"),
            some => format!("{name} ({})", some.join(" ")),
        });
    let netdevs: Vec<String> = netdevs.collect();
    let mut text = format!(
        "verbs devices: {}; netdevs: {}",
        list(devices),
        list(&netdevs)
    );
    if devices.is_empty() {
        text.push_str("; to have one in software: `modprobe rdma_rxe; rdma link add rxe0 type rxe netdev NETDEV`");
    }
    text
}

/// Binds to one address to learn the device and port that own it.
fn probe(channel: &Arc<Channel>, local: &LocalAddress) -> Result<DevicePort, i32> {
    let address = local.address.ok_or(libc::EADDRNOTAVAIL)?;
    let scope = match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(a) => a.scope_id(),
    };
    let id = CmId::new(channel, 0, PortSpace::Connection)?;
    id.bind(addr::socket(address.ip(), 0, scope))?;
    let (device, port) = id.device().ok_or(libc::ENODEV)?;
    Ok(DevicePort {
        device,
        port,
        ip: address.ip(),
        scope,
        netdev: (!local.netdev.is_empty()).then(|| local.netdev.clone()),
    })
}

/// Finds the device and port that `wanted` and `port` name.
pub(crate) fn find(
    channel: &Arc<Channel>,
    wanted: &str,
    port: u32,
) -> Result<DevicePort, OpenError> {
    let addresses = in_order(addresses());
    let probe = |l: &LocalAddress| probe(channel, l);
    let fits = |p: &DevicePort| port == 0 || u32::from(p.port) == port;

    if wanted.is_empty() {
        let device_port = addresses.iter().filter_map(|l| probe(l).ok()).find(fits);
        return device_port.ok_or_else(|| OpenError::NoDevice {
            found: list_devices(&addresses),
        });
    }
    if device::names().iter().any(|name| name == wanted) {
        let mut device_ports = addresses.iter().filter_map(|l| probe(l).ok());
        return device_ports
            .find(|p| p.device == wanted && fits(p))
            .ok_or_else(|| OpenError::NoAddress {
                device: wanted.to_owned(),
                port: if port == 0 {
                    String::new()
                } else {
                    format!(" port {port}")
                },
                found: list_devices(&addresses),
            });
    }

    let candidates = candidates(wanted, &addresses);
    if candidates.iter().all(|c| c.netdev.is_empty()) {
        return Err(OpenError::NoSuch {
            wanted: wanted.to_owned(),
            found: list_devices(&addresses),
        });
    }
    let mut last = libc::EADDRNOTAVAIL;
    for candidate in &candidates {
        match probe(candidate) {
            Ok(device_port) if fits(&device_port) => return Ok(device_port),
            Ok(device_port) => {
                return Err(OpenError::Port {
                    wanted: wanted.to_owned(),
                    device: device_port.device,
                    found: device_port.port,
                    asked: port,
                });
            }
            Err(e) => last = e,
        }
    }
    Err(OpenError::NotRdma {
        wanted: wanted.to_owned(),
        reason: failure_reason(&candidates, last),
        found: list_devices(&addresses),
    })
}

/// Returns the addresses that `wanted` may mean: those of the netdev with that name, else `wanted` itself, else what
/// the host name resolves to.
fn candidates(wanted: &str, addresses: &[LocalAddress]) -> Vec<LocalAddress> {
    let of_netdev: Vec<LocalAddress> = addresses
        .iter()
        .filter(|l| l.netdev == wanted)
        .cloned()
        .collect();
    if !of_netdev.is_empty() {
        return of_netdev;
    }
    let resolved: Vec<SocketAddr> = match wanted.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, 0)],
        Err(_) => (wanted, 0)
            .to_socket_addrs()
            .map(Iterator::collect)
            .unwrap_or_default(),
    };
    let named = resolved.into_iter().map(|address| {
        // An address of this machine is returned with its netdev and scope.
        let known = addresses
            .iter()
            .find(|l| l.address.is_some_and(|a| a.ip() == address.ip()));
        known.cloned().unwrap_or(LocalAddress {
            netdev: String::new(),
            address: Some(address),
            up: true,
            loopback: false,
        })
    });
    in_order(named.collect())
}

/// Explains why no address of `candidates` led to a device.
fn failure_reason(candidates: &[LocalAddress], errno: i32) -> String {
    let netdev = candidates.iter().find(|l| !l.netdev.is_empty());
    match netdev {
        Some(l) if !l.up => format!("netdev {0} is down (`ip link set {0} up`)", l.netdev),
        Some(l) if candidates.iter().all(|l| l.address.is_none()) => format!(
            "netdev {0} has no IP address (`ip addr add ADDRESS/PREFIX dev {0}`)",
            l.netdev
        ),
        _ => convert::text(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(netdev: &str, address: &str, up: bool) -> LocalAddress {
        LocalAddress {
            netdev: netdev.to_owned(),
            address: address.parse().ok().map(|ip| SocketAddr::new(ip, 0)),
            up,
            loopback: netdev == "lo",
        }
    }

    #[test]
    fn the_best_address_comes_first() {
        let list = in_order(vec![
            local("v0", "", true),
            local("lo", "127.0.0.1", true),
            local("v0", "fe80::1", true),
            local("v0", "2001:db8::1", true),
            local("v0", "10.9.0.1", true),
        ]);
        let order: Vec<String> = list
            .iter()
            .map(|l| l.address.map_or("-".to_owned(), |a| a.ip().to_string()))
            .collect();
        assert_eq!(
            order,
            ["10.9.0.1", "2001:db8::1", "fe80::1", "127.0.0.1", "-"]
        );
    }

    #[test]
    fn a_name_means_a_netdev_before_an_address() {
        let addresses = [
            local("v0", "10.9.0.1", true),
            local("lo", "127.0.0.1", true),
        ];
        assert_eq!(candidates("v0", &addresses), addresses[..1]);
        assert_eq!(candidates("10.9.0.1", &addresses), addresses[..1]);
        assert_eq!(candidates("10.9.0.7", &addresses)[0].netdev, "");
        assert!(candidates("no such name at all", &addresses).is_empty());
    }

    #[test]
    fn reasons_say_what_to_type() {
        let down = [local("v0", "10.9.0.1", false)];
        assert!(failure_reason(&down, libc::ENODEV).contains("ip link set v0 up"));
        let bare = [local("v0", "", true)];
        assert!(failure_reason(&bare, libc::ENODEV).contains("ip addr add"));
        assert!(
            OpenError::no_cm(libc::ENODEV)
                .to_string()
                .contains("modprobe rdma_ucm")
        );
        assert!(
            OpenError::no_cm(libc::EACCES)
                .to_string()
                .contains("/dev/infiniband/rdma_cm")
        );
    }

    #[test]
    fn the_inventory_names_each_netdev_once() {
        let addresses = [
            local("v0", "10.9.0.1", true),
            local("v0", "fd09::1", true),
            local("v1", "", true),
            local("lo", "127.0.0.1", true),
        ];
        let text = listing(&["rxe0".to_owned()], &addresses);
        let expected = "verbs devices: rxe0; netdevs: v0 (10.9.0.1 fd09::1), v1 (no address)";
        assert_eq!(text, expected);
        let text = listing(&[], &addresses);
        assert!(text.contains("rdma link add rxe0"), "{text}");
    }

    #[test]
    fn this_machine_has_a_loopback_address() {
        assert!(
            addresses()
                .iter()
                .any(|l| l.loopback && l.address.is_some())
        );
    }
}
