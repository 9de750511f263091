//! What of this machine can be an IA: netdevs and verbs devices.

use std::fs;
use std::path::Path;

use dat_os::netdev::{self, Netdev};
use dat_registry::conf;
use serde::Serialize;

use crate::Outcome;

/// Provider libraries of this project.
const IBVERBS: &str = "libdat-provider-ibverbs.so.2";
const SOFTRXE: &str = "libdat-provider-softrxe.so.2";

/// A netdev or a port of a verbs device.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Device {
    /// `netdev` or `verbs`.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    /// Port of a verbs device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) port: Option<u32>,
    /// State in words, e.g. `up` or `ACTIVE`.
    pub(crate) state: String,
    pub(crate) addresses: Vec<String>,
    /// The netdev of a verbs port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) netdev: Option<String>,
    /// Why it can be no IA now, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why_not: Option<String>,
    /// Name for the IA.
    pub(crate) ia: String,
    /// IA parameters.
    pub(crate) params: String,
    /// Library of the provider.
    pub(crate) library: &'static str,
    /// The line for dat.conf.
    pub(crate) entry: String,
}

impl Device {
    /// Returns the line of dat.conf for an API version.
    pub(crate) fn line(&self, api: &str) -> String {
        let version = if api == "u1.2" {
            "dapl.1.2"
        } else {
            "dapl.2.0"
        };
        let text = format!(
            "\"{}\" {api} threadsafe default {} {version} \"{}\" \"\"",
            self.ia, self.library, self.params
        );
        // Written by the one writer of the classic form, so that names are quoted only where they must be.
        let parsed = conf::parse(text.as_bytes(), Path::new("dat.conf"));
        parsed.entries.first().map_or(text, conf::classic_line)
    }
}

/// Returns all devices: verbs devices first.
pub(crate) fn devices() -> Outcome<Vec<Device>> {
    let netdevs = netdev::all()?;
    let mut all = verbs(Path::new("/sys/class/infiniband"), &netdevs);
    all.extend(netdevs.iter().map(of_netdev));
    for device in &mut all {
        device.entry = device.line("u2.0");
    }
    Ok(all)
}

fn of_netdev(netdev: &Netdev) -> Device {
    let name = &netdev.name;
    let why_not = if !netdev.up {
        Some(format!("it is down: ip link set {name} up"))
    } else if netdev.addresses.is_empty() {
        Some(format!(
            "it has no address: ip addr add ADDRESS/PREFIX dev {name}"
        ))
    } else {
        None
    };
    // The kernel's rdma_rxe takes no loopback netdev.
    let params = if netdev.loopback {
        format!("{name} 0 engine=user")
    } else {
        format!("{name} 0")
    };
    Device {
        kind: "netdev",
        name: name.clone(),
        port: None,
        state: (match (netdev.up, netdev.running) {
            (false, _) => "down",
            (true, false) => "no carrier",
            (true, true) => "up",
        })
        .to_owned(),
        addresses: netdev.addresses.iter().map(ToString::to_string).collect(),
        netdev: None,
        why_not,
        ia: format!("softrxe-{name}"),
        params,
        library: SOFTRXE,
        entry: String::new(),
    }
}

/// Reads the verbs devices that the kernel shows in sysfs.
fn verbs(folder: &Path, netdevs: &[Netdev]) -> Vec<Device> {
    let mut all = Vec::new();
    for device in names(folder) {
        for port in names(&folder.join(&device).join("ports")) {
            let at = folder.join(&device).join("ports").join(&port);
            let read = |file: &str| {
                let text = fs::read_to_string(at.join(file)).unwrap_or_default();
                text.trim().to_owned()
            };
            // "4: ACTIVE"
            let state = read("state");
            let state = state.rsplit(' ').next().unwrap_or_default().to_owned();
            let netdev = Some(read("gid_attrs/ndevs/0")).filter(|name| !name.is_empty());
            let behind = netdevs.iter().find(|n| Some(&n.name) == netdev.as_ref());
            let addresses: Vec<String> = behind
                .map(|n| n.addresses.iter().map(ToString::to_string).collect())
                .unwrap_or_default();
            let why_not = if state != "ACTIVE" {
                let up = netdev.as_ref().map(|n| format!(": ip link set {n} up"));
                Some(format!("its port is {state}{}", up.unwrap_or_default()))
            } else if let (Some(n), true) = (&netdev, addresses.is_empty()) {
                Some(format!(
                    "its netdev has no address: ip addr add ADDRESS/PREFIX dev {n}"
                ))
            } else {
                None
            };
            let number: u32 = port.parse().unwrap_or(1);
            all.push(Device {
                kind: "verbs",
                name: device.clone(),
                port: Some(number),
                state,
                addresses,
                netdev,
                why_not,
                ia: format!("ibverbs-{device}-{port}"),
                params: format!("{device} {port}"),
                library: IBVERBS,
                entry: String::new(),
            });
        }
    }
    all
}

/// Returns the names in a folder in order; none if it is not there.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verbs_port_is_read_from_sysfs() {
        let dir = tempfile::tempdir().unwrap();
        let port = dir.path().join("mlx5_0/ports/1/gid_attrs/ndevs");
        fs::create_dir_all(&port).unwrap();
        fs::write(port.join("0"), "eth7\n").unwrap();
        fs::write(dir.path().join("mlx5_0/ports/1/state"), "4: ACTIVE\n").unwrap();
        let netdev = Netdev {
            name: "eth7".into(),
            up: true,
            running: true,
            loopback: false,
            addresses: vec!["192.0.2.1".parse().unwrap()],
        };
        let all = verbs(dir.path(), std::slice::from_ref(&netdev));
        assert_eq!(
            all[0].line("u2.0"),
            "ibverbs-mlx5_0-1 u2.0 threadsafe default libdat-provider-ibverbs.so.2 dapl.2.0 \"mlx5_0 1\" \"\""
        );
        assert!(all[0].why_not.is_none() && all[0].addresses == ["192.0.2.1"]);
        assert!(
            verbs(dir.path(), &[])[0]
                .why_not
                .as_ref()
                .unwrap()
                .contains("ip addr add")
        );
        let down = of_netdev(&Netdev {
            up: false,
            ..netdev
        });
        assert!(down.why_not.unwrap().contains("ip link set eth7 up"));
    }
}
