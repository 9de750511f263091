//! The finding about an IA that does not open: the provider's text, and the command for its cause.

use std::path::Path;

use super::finding::{Finding, State, edit, quoted};
use crate::machine;

/// What the remedies need to know about the entry and the machine.
struct Facts<'a> {
    name: &'a str,
    /// The file of the entry.
    file: &'a Path,
    /// A netdev for a device in software.
    netdev: Option<String>,
}

/// Returns the finding about the IA of this name, whose entry is in `file`.
pub(super) fn finding(name: &str, file: &Path, why: &str) -> Finding {
    let devices = machine::devices().unwrap_or_default();
    let mut netdevs = devices
        .iter()
        .filter(|d| d.kind == "netdev" && d.name != "lo");
    let netdev = netdevs
        .find(|d| d.why_not.is_none())
        .map(|d| d.name.clone());
    let facts = Facts { name, file, netdev };
    Finding::bad("open", State::Fault, why, remedy(&facts, why))
}

/// Returns a command for the cause that the text names, else the one that says more.
fn remedy(facts: &Facts<'_>, why: &str) -> String {
    let mut commands = why.split('`').skip(1).step_by(2);
    if let Some(serve) = commands.clone().find(|c| c.starts_with("dat serve-port ")) {
        return format!(
            "ss -ulpn 'sport = :4791'  # as root it shows the process; once that has ended, root runs: {serve}"
        );
    }
    if let Some(packages) = between(why, "; install ", " (Debian") {
        let others = between(why, "(Debian, Ubuntu), ", " (Fedora").unwrap_or("rdma-core");
        return format!(
            "apt-get install -y {packages}  # as root; elsewhere: dnf install {others}"
        );
    }
    let of_machine = |command: &str| match &facts.netdev {
        Some(netdev) => command.replace("NETDEV", netdev),
        None => command.to_owned(),
    };
    let known = commands.find_map(|command| {
        let command = of_machine(command);
        let is_complete = !["NETDEV", "ADDRESS"]
            .iter()
            .any(|word| command.contains(word));
        (is_complete && command.contains(' ')).then_some(command)
    });
    if let Some(command) = known {
        return format!("{command}  # as root");
    }
    if why.contains(" is no netdev, ") || why.contains(" is no verbs device, ") {
        return "dat devices; dat init  # what there is, and a dat.conf with it".to_owned();
    }
    if why.starts_with("ia_params") {
        return edit(facts.file);
    }
    format!("DAT_LOG=debug dat info {}", quoted(facts.name))
}

/// Returns the text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_command() {
        let with = |netdev: Option<&str>, why: &str| {
            let facts = Facts {
                name: "an ia",
                file: Path::new("/etc/dat.conf"),
                netdev: netdev.map(str::to_owned),
            };
            remedy(&facts, why)
        };
        for (why, wants) in [
            (
                "UDP port 4791 of 127.0.0.1 belongs to user 7. Have root run `dat serve-port 127.0.0.1` (docs/security.md)",
                "ss -ulpn 'sport = :4791'  # as root it shows the process; once that has ended, root runs: dat serve-port 127.0.0.1",
            ),
            (
                "none; to have one in software: `modprobe rdma_rxe; rdma link add rxe0 type rxe netdev NETDEV`",
                "modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth7  # as root",
            ),
            (
                "netdev eth7 is down; `ip link set eth7 up`",
                "ip link set eth7 up  # as root",
            ),
            (
                "cannot load librdmacm.so.1 (gone); install librdmacm1 (Debian, Ubuntu), librdmacm (Fedora, RHEL) or rdma-core",
                "apt-get install -y librdmacm1  # as root; elsewhere: dnf install librdmacm",
            ),
            (
                "\"x\" is no netdev, address or host name of this host",
                "dat devices; dat init  # what there is, and a dat.conf with it",
            ),
            (
                "ia_params: unknown setting \"colour\"",
                "${EDITOR:-vi} /etc/dat.conf",
            ),
            ("something else", "DAT_LOG=debug dat info 'an ia'"),
        ] {
            assert_eq!(with(Some("eth7"), why), wants);
        }
        let why = "netdev v0 has no address; `ip addr add ADDRESS/PREFIX dev v0`";
        assert_eq!(with(None, why), "DAT_LOG=debug dat info 'an ia'");
    }
}
