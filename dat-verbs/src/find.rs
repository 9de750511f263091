//! Which device and port an IA means: by verbs device and port, netdev, IP address or host name. librdmacm
//! knows which device an address belongs to (RoCE, IPoIB and iWARP alike), so every way leads over addresses.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use dat_core::error::{Error, Kind, Subtype};
use dat_core::ia_params::IaParamsError;

use crate::cm::addr;
use crate::cm::rdma::id::{Channel, CmId, PortSpace};
use crate::map;
use crate::verbs::device;

/// Where an IA is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Verbs device.
    pub(crate) device: String,
    /// Its port, from 1.
    pub(crate) port: u8,
    /// The address that peers connect to.
    pub(crate) ip: IpAddr,
    /// Scope of an IPv6 link-local address.
    pub(crate) scope: u32,
    /// The netdev that has the address.
    pub(crate) netdev: Option<String>,
}

/// Why an IA does not open.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error(transparent)]
    Params(#[from] IaParamsError),
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
    /// The return code of dat_ia_open.
    pub(crate) fn code(&self) -> Error {
        match self {
            Self::Params(_) => Error::of(Kind::InvalidParameter),
            Self::NoCm {
                permission: true, ..
            } => Error::of(Kind::PrivilegesViolation),
            Self::NoCm { .. } | Self::NoDevice { .. } => Error::of(Kind::ProviderNotFound),
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

    /// librdmacm does not open.
    pub(crate) fn no_cm(errno: i32) -> Self {
        let permission = matches!(errno, libc::EACCES | libc::EPERM);
        let text = map::text(errno);
        let reason = if permission {
            format!("{text}; allow this user to read and write /dev/infiniband/rdma_cm")
        } else {
            format!(
                "{text}; load it with `modprobe rdma_ucm` (and the driver of the device, e.g. `modprobe rdma_rxe`)"
            )
        };
        Self::NoCm { reason, permission }
    }

    /// A device that librdmacm named cannot be found any more.
    pub(crate) fn gone(device: &str) -> Self {
        Self::Device {
            device: device.to_owned(),
            reason: "it went away meanwhile".to_owned(),
        }
    }
}

/// Why a device does not open, and what helps.
pub(crate) fn device_text(errno: i32) -> String {
    let text = map::text(errno);
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

/// One address of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub(crate) netdev: String,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) up: bool,
    pub(crate) loopback: bool,
}

/// The netdevs of this machine with their addresses.
pub(crate) fn locals() -> Vec<Local> {
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
        found.push(Local {
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

/// The addresses of this machine with their netdevs.
#[must_use]
pub fn local_addresses() -> Vec<(String, IpAddr)> {
    let with_address = |l: Local| l.address.map(|a| (l.netdev, a.ip()));
    locals().into_iter().filter_map(with_address).collect()
}

/// IPv4 first, as DAPL takes nothing else; link-local and loopback addresses last.
fn in_order(mut list: Vec<Local>) -> Vec<Local> {
    list.sort_by_key(|l| match l.address.map(|a| a.ip()) {
        Some(_) if l.loopback => 3,
        Some(IpAddr::V4(_)) => 0,
        Some(IpAddr::V6(a)) if a.is_unicast_link_local() => 2,
        Some(IpAddr::V6(_)) => 1,
        None => 4,
    });
    list
}

/// Whether there is any verbs device: without one librdmacm's own error is less helpful.
pub(crate) fn any_device() -> Result<(), OpenError> {
    if device::names().is_empty() {
        return Err(OpenError::NoDevice {
            found: inventory(&in_order(locals())),
        });
    }
    Ok(())
}

/// What there is, for an error message.
fn inventory(locals: &[Local]) -> String {
    let list = |names: Vec<String>| match names.as_slice() {
        [] => "none".to_owned(),
        some => some.join(", "),
    };
    let mut netdevs: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for local in locals.iter().filter(|l| !l.loopback) {
        let addresses = netdevs.entry(&local.netdev).or_default();
        addresses.extend(local.address.map(|a| a.ip().to_string()));
    }
    let netdevs = netdevs
        .iter()
        .map(|(name, addresses)| match addresses.as_slice() {
            [] => format!("{name} (no address)"),
            some => format!("{name} ({})", some.join(" ")),
        });
    let mut text = format!("verbs devices: {}", list(device::names()));
    write!(text, "; netdevs: {}", list(netdevs.collect())).ok();
    if device::names().is_empty() {
        text.push_str("; to have one in software: `modprobe rdma_rxe; rdma link add rxe0 type rxe netdev NETDEV`");
    }
    text
}

/// Tries one address: which device and port it belongs to.
fn probe(channel: &Arc<Channel>, local: &Local) -> Result<Place, i32> {
    let address = local.address.ok_or(libc::EADDRNOTAVAIL)?;
    let scope = match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(a) => a.scope_id(),
    };
    let id = CmId::new(channel, 0, PortSpace::Connection)?;
    id.bind(addr::socket(address.ip(), 0, scope))?;
    let (device, port) = id.device().ok_or(libc::ENODEV)?;
    Ok(Place {
        device,
        port,
        ip: address.ip(),
        scope,
        netdev: (!local.netdev.is_empty()).then(|| local.netdev.clone()),
    })
}

/// Finds what `wanted` and `port` mean.
pub(crate) fn find(channel: &Arc<Channel>, wanted: &str, port: u32) -> Result<Place, OpenError> {
    let locals = in_order(locals());
    let probe = |l: &Local| probe(channel, l);
    let fits = |p: &Place| port == 0 || u32::from(p.port) == port;

    if wanted.is_empty() {
        let place = locals.iter().filter_map(|l| probe(l).ok()).find(fits);
        return place.ok_or_else(|| OpenError::NoDevice {
            found: inventory(&locals),
        });
    }
    if device::names().iter().any(|name| name == wanted) {
        let mut places = locals.iter().filter_map(|l| probe(l).ok());
        return places
            .find(|p| p.device == wanted && fits(p))
            .ok_or_else(|| OpenError::NoAddress {
                device: wanted.to_owned(),
                port: if port == 0 {
                    String::new()
                } else {
                    format!(" port {port}")
                },
                found: inventory(&locals),
            });
    }

    let candidates = candidates(wanted, &locals);
    if candidates.iter().all(|c| c.netdev.is_empty()) {
        return Err(OpenError::NoSuch {
            wanted: wanted.to_owned(),
            found: inventory(&locals),
        });
    }
    let mut last = libc::EADDRNOTAVAIL;
    for candidate in &candidates {
        match probe(candidate) {
            Ok(place) if fits(&place) => return Ok(place),
            Ok(place) => {
                return Err(OpenError::Port {
                    wanted: wanted.to_owned(),
                    device: place.device,
                    found: place.port,
                    asked: port,
                });
            }
            Err(e) => last = e,
        }
    }
    Err(OpenError::NotRdma {
        wanted: wanted.to_owned(),
        reason: why_not(&candidates, last),
        found: inventory(&locals),
    })
}

/// Addresses that `wanted` may mean: those of the netdev of that name, else itself, else what the name
/// resolves to.
fn candidates(wanted: &str, locals: &[Local]) -> Vec<Local> {
    let of_netdev: Vec<Local> = locals
        .iter()
        .filter(|l| l.netdev == wanted)
        .cloned()
        .collect();
    if !of_netdev.is_empty() {
        return of_netdev;
    }
    let addresses: Vec<SocketAddr> = match wanted.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, 0)],
        Err(_) => (wanted, 0)
            .to_socket_addrs()
            .map(Iterator::collect)
            .unwrap_or_default(),
    };
    let named = addresses.into_iter().map(|address| {
        // Known ones come with their netdev and scope.
        let known = locals
            .iter()
            .find(|l| l.address.is_some_and(|a| a.ip() == address.ip()));
        known.cloned().unwrap_or(Local {
            netdev: String::new(),
            address: Some(address),
            up: true,
            loopback: false,
        })
    });
    in_order(named.collect())
}

/// Why no address of `candidates` led to a device.
fn why_not(candidates: &[Local], errno: i32) -> String {
    let netdev = candidates.iter().find(|l| !l.netdev.is_empty());
    match netdev {
        Some(l) if !l.up => format!("netdev {0} is down (`ip link set {0} up`)", l.netdev),
        Some(l) if candidates.iter().all(|l| l.address.is_none()) => format!(
            "netdev {0} has no IP address (`ip addr add ADDRESS/PREFIX dev {0}`)",
            l.netdev
        ),
        _ => map::text(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(netdev: &str, address: &str, up: bool) -> Local {
        Local {
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
        let locals = [
            local("v0", "10.9.0.1", true),
            local("lo", "127.0.0.1", true),
        ];
        assert_eq!(candidates("v0", &locals), locals[..1]);
        assert_eq!(candidates("10.9.0.1", &locals), locals[..1]);
        assert_eq!(candidates("10.9.0.7", &locals)[0].netdev, "");
        assert!(candidates("no such name at all", &locals).is_empty());
    }

    #[test]
    fn reasons_say_what_to_type() {
        let down = [local("v0", "10.9.0.1", false)];
        assert!(why_not(&down, libc::ENODEV).contains("ip link set v0 up"));
        let bare = [local("v0", "", true)];
        assert!(why_not(&bare, libc::ENODEV).contains("ip addr add"));
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
        let locals = [
            local("v0", "10.9.0.1", true),
            local("v0", "fd09::1", true),
            local("v1", "", true),
            local("lo", "127.0.0.1", true),
        ];
        let text = inventory(&locals);
        let netdevs = "netdevs: v0 (10.9.0.1 fd09::1), v1 (no address)";
        assert!(text.contains(netdevs), "{text}");
    }

    #[test]
    fn this_machine_has_a_loopback_address() {
        assert!(locals().iter().any(|l| l.loopback && l.address.is_some()));
    }
}
