//! Netdevs, addresses, UDP port 4791, kernel modules.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::path::Path;

use dat_os::netdev::is_link_local;
use dat_registry::conf::Entry;
use softrxe_port::credentials::own_uid;
use softrxe_port::port_owner::PortOwner;

use super::finding::{Finding, State};
use super::firewall::firewall;
use crate::machine::{self, Device};

/// Name of the finding about the port.
pub(super) const PORT: &str = "port 4791";

/// UDP port of RoCEv2.
const ROCE: u16 = 4791;

/// Parts of the file names of the libraries that run over netdevs and RDMA devices: ours and DAPL's.
const RDMA: [&str; 3] = ["softrxe", "ibverbs", "libdapl"];

/// Returns whether a provider runs over the devices that are examined here. What another one needs, only its library can say.
fn concerns(library: &str) -> bool {
    let file = library.rsplit('/').next().unwrap_or(library);
    RDMA.iter().any(|part| file.contains(part))
}

/// Examines the network, for an entry if there is one.
pub(super) fn all(entry: Option<&Entry>) -> Vec<Finding> {
    if entry.is_some_and(|entry| !concerns(&entry.library)) {
        return Vec::new();
    }
    let devices = match machine::devices() {
        Ok(devices) => devices,
        Err(error) => {
            return vec![Finding::bad(
                "device",
                State::Unknown,
                error.to_string(),
                "dat devices",
            )];
        }
    };
    let mut findings = Vec::new();
    let mut words = entry
        .map(|entry| entry.ia_params.split_whitespace())
        .into_iter()
        .flatten();
    let device = words.next().filter(|word| !word.contains('='));
    let resolved = device.map_or_else(Vec::new, |word| addresses(word, &devices));
    match device {
        Some(word) => findings.push(of_entry(word, &devices, &resolved)),
        None => findings.push(of_machine(&devices)),
    }
    let is_user = entry.is_some_and(|entry| entry.ia_params.contains("engine=user"));
    let is_softrxe = entry.is_none_or(|entry| entry.library.contains("softrxe"));
    if is_softrxe {
        let of_machine = || {
            let netdevs = devices.iter().filter(|d| d.kind == "netdev");
            let usable = netdevs.filter(|d| d.why_not.is_none());
            usable.filter_map(|d| d.addresses.first()?.parse().ok())
        };
        let examined: Vec<IpAddr> = match device {
            // A link-local address is never bound: the open says that it is of no use.
            Some(_) => {
                let bound = resolved.into_iter().filter(|ip| !is_link_local(*ip));
                bound.take(1).collect()
            }
            None => of_machine().collect(),
        };
        findings.extend(ports(&examined));
    }
    if !is_user {
        let is_kernel = entry.is_some_and(|entry| entry.ia_params.contains("engine=kernel"));
        findings.push(module(is_softrxe, is_kernel));
    }
    findings.push(firewall());
    findings
}

/// Returns the addresses of this machine that the device field of an entry means: a netdev's, an address itself, or a host name's.
fn addresses(word: &str, devices: &[Device]) -> Vec<IpAddr> {
    let of = |device: &Device| -> Vec<IpAddr> {
        let parsed = device.addresses.iter().filter_map(|a| a.parse().ok());
        parsed.collect()
    };
    if let Some(device) = devices.iter().find(|d| d.name == word) {
        return of(device);
    }
    let own: Vec<IpAddr> = devices.iter().flat_map(of).collect();
    let found = (word, ROCE).to_socket_addrs().into_iter().flatten();
    let found = found.map(|address| address.ip());
    found
        .filter(|ip| ip.is_loopback() || own.contains(ip))
        .collect()
}

/// Examines the device that an entry names; `resolved` are its [`addresses`].
fn of_entry(word: &str, devices: &[Device], resolved: &[IpAddr]) -> Finding {
    const CHECK: &str = "device";
    let mut named = devices
        .iter()
        .filter(|d| d.name == word || d.addresses.iter().any(|a| a == word));
    if let Some(device) = named.next() {
        return match &device.why_not {
            None => Finding::ok(
                CHECK,
                format!(
                    "{} {}: {}, {}",
                    device.kind,
                    device.name,
                    device.state,
                    device.addresses.join(" ")
                ),
            ),
            Some(why) => {
                let (text, remedy) = why.split_once(": ").unwrap_or((why, "dat devices"));
                Finding::bad(
                    CHECK,
                    State::Fault,
                    format!("{} {}: {text}", device.kind, device.name),
                    remedy,
                )
            }
        };
    }
    if let Some(ip) = resolved.first() {
        let text = if word.parse::<IpAddr>().is_ok() {
            format!("{word} is an address of lo")
        } else {
            format!("{word} is {ip}")
        };
        return Finding::ok(CHECK, text);
    }
    let names: Vec<String> = devices.iter().map(|d| d.name.clone()).collect();
    Finding::bad(
        CHECK,
        State::Fault,
        format!(
            "there is no device, netdev or address {word:?}; there is {}",
            names.join(", ")
        ),
        "dat devices; dat init",
    )
}

fn of_machine(devices: &[Device]) -> Finding {
    let usable: Vec<&str> = devices
        .iter()
        .filter(|d| d.why_not.is_none())
        .map(|d| d.name.as_str())
        .collect();
    if usable.is_empty() {
        return Finding::bad(
            "device",
            State::Fault,
            "no netdev is up and has an address",
            "dat devices",
        );
    }
    Finding::ok("device", format!("usable: {}", usable.join(", ")))
}

/// Examines UDP port 4791 of addresses. Where it is free at all of them, that is one finding.
fn ports(addresses: &[IpAddr]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = addresses.iter().map(|address| port(*address)).collect();
    findings.retain(|finding| finding.state != State::Ok);
    if findings.is_empty() && !addresses.is_empty() {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let text = format!("free on {}", addresses.join(", "));
        findings.push(Finding::ok(PORT, text));
    }
    findings
}

/// Examines whether UDP port 4791 of an address can be had. Another process of the same user shares it.
fn port(address: IpAddr) -> Finding {
    let local = SocketAddr::new(address, ROCE);
    match UdpSocket::bind(local) {
        Ok(_) => Finding::ok(PORT, format!("free on {address}")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let owner = PortOwner::of(local).map(|owner| owner.uid);
            let by = match owner {
                Some(uid) if uid == own_uid() => "by a process of this user".to_owned(),
                Some(uid) => format!("by user {uid}, not this one (uid {})", own_uid()),
                None => "by an unknown program".to_owned(),
            };
            Finding::bad(
                PORT,
                State::Warning,
                format!(
                    "{address} is in use {by}; the user engine shares it with its own processes of this user, and with `dat serve-port` of root"
                ),
                "ss -ulpn 'sport = :4791'  # as root it shows the process",
            )
        }
        Err(error) => Finding::bad(
            PORT,
            State::Unknown,
            format!("{address}: {error}"),
            "dat devices",
        ),
    }
}

/// Examines the kernel's modules for its engine; `is_kernel` tells that the entry chooses it.
fn module(softrxe: bool, is_kernel: bool) -> Finding {
    const CHECK: &str = "module";
    let loaded = |name: &str| Path::new("/sys/module").join(name).exists();
    let missing: Vec<&str> = ["rdma_ucm", "rdma_rxe"]
        .into_iter()
        .filter(|name| !loaded(name) && (*name != "rdma_rxe" || softrxe))
        .collect();
    if missing.is_empty() {
        return Finding::ok(CHECK, "those of the kernel's RDMA are loaded");
    }
    // Only the Soft-RoCE provider has an engine of its own.
    let (needs, or) = match (softrxe, is_kernel) {
        (true, false) => (
            "; the user engine needs none",
            "; or engine=user in ia_params",
        ),
        (true, true) => (
            "; engine=kernel needs them",
            "; or engine=user in ia_params",
        ),
        (false, _) => ("", ""),
    };
    let text = format!("{} not loaded{needs}", missing.join(" and "));
    // In a container the modules are the host's.
    let remedy = format!(
        "modprobe -a {}  # as root; on the host, where this is a container{or}",
        missing.join(" ")
    );
    Finding::bad(
        CHECK,
        if softrxe {
            State::Warning
        } else {
            State::Fault
        },
        text,
        remedy,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_concerns_our_providers_and_those_of_dapl() {
        assert!(concerns("libdat-provider-softrxe.so.2"));
        assert!(concerns("/usr/lib/libdat_provider_ibverbs.so"));
        assert!(concerns("libdaplofa.so.2"));
        assert!(!concerns("/home/ibverbs/target/debug/libmytransport.so"));
        assert!(!concerns("libdat-provider-filter.so.2"));
    }
}
