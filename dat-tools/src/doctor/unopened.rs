//! The finding about an IA that does not open: the provider's text, and the command for its cause.

use std::path::Path;

use dat_registry::conf::Entry;

use super::finding::{Finding, State, edit, quoted};
use crate::machine::{self, Device};

/// What the remedies need to know about the entry and the machine.
struct Facts<'a> {
    name: &'a str,
    /// The file of the entry.
    file: &'a Path,
    /// A netdev for a device in software.
    netdev: Option<String>,
    /// What is to be done when the device in software is there.
    then: Option<String>,
}

/// Device in software that a remedy makes.
const MADE: &str = "rxe0";

/// Returns the finding about an entry that does not open. `pattern` is the pattern that it is of.
pub(super) fn finding(entry: &Entry, pattern: Option<&Entry>, why: &str) -> Finding {
    let devices = machine::devices().unwrap_or_default();
    let word = entry.ia_params.split_whitespace().next();
    let word = word.filter(|word| !word.contains('='));
    let mut netdevs = devices
        .iter()
        .filter(|d| d.kind == "netdev" && d.name != "lo" && d.why_not.is_none());
    let is_named = |d: &Device| {
        d.addresses
            .iter()
            .chain([&d.name])
            .any(|name| Some(name.as_str()) == word)
    };
    let named = netdevs.clone().find(|d| is_named(d));
    let netdev = named.or_else(|| netdevs.next());
    let facts = Facts {
        name: &entry.name,
        file: &entry.origin.path,
        netdev: netdev.map(|d| d.name.clone()),
        then: word
            .filter(|_| named.is_none())
            .map(|word| then(entry, pattern, word)),
    };
    Finding::bad("open", State::Fault, why, remedy(&facts, why))
}

/// Says how the device that a remedy makes is opened, where the entry names the device `word`.
fn then(entry: &Entry, pattern: Option<&Entry>, word: &str) -> String {
    let of_pattern =
        pattern.filter(|pattern| pattern.ia_params.split_whitespace().next() == Some("*"));
    match of_pattern {
        Some(pattern) => format!("open {}", pattern.name.replacen('*', MADE, 1)),
        None => format!("write {MADE} for {word} at {}", entry.origin),
    }
}

/// Returns a command for the cause that the text names, else the one that says more. The user puts in the address.
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
    let of_address = commands
        .clone()
        .find(|c| c.starts_with("ip addr add ADDRESS/PREFIX "));
    if let Some(command) = of_address {
        return format!("{command}  # as root, with an address of the network that is free");
    }
    if let Some(library) =
        between(why, "cannot load \"", "\" (DP-1): ").filter(|_| misses_symbols(why))
    {
        return format!(
            "ldd -r {library}  # install what is not found, or the release that the library was built for"
        );
    }
    let known = commands.find_map(|command| {
        let command = of_machine(command);
        let is_complete = !["NETDEV", "ADDRESS"]
            .iter()
            .any(|word| command.contains(word));
        (is_complete && command.contains(' ')).then_some(command)
    });
    if let Some(command) = known {
        let makes = command.contains(&format!("link add {MADE} "));
        let then = facts.then.as_ref().filter(|_| makes);
        let then = then.map_or_else(String::new, |then| format!("; then {then}"));
        return format!("{command}  # as root{then}");
    }
    if why.contains(" is no netdev, ") || why.contains(" is no verbs device, ") {
        return "dat devices; dat init  # what there is, and a dat.conf with it".to_owned();
    }
    let is_of_file = why.starts_with("ia_params") || why.contains(" has port 1 only, ");
    if is_of_file || why.contains(" is link-local: ") {
        return edit(facts.file);
    }
    format!("DAT_LOG=debug dat info {}", quoted(facts.name))
}

/// Returns whether the loader lacks another library or a symbol, and not the library itself.
fn misses_symbols(why: &str) -> bool {
    [
        "cannot open shared object file",
        "undefined symbol",
        "' not found (required by ",
    ]
    .iter()
    .any(|text| why.contains(text))
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
                then: None,
            };
            remedy(&facts, why)
        };
        for (why, wants) in [
            (
                "UDP port 4791 of 127.0.0.1 belongs to user 7. Have root run `dat serve-port 127.0.0.1` (security.md of the documentation)",
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
            (
                "\"lo\" has port 1 only, not 2; write 1, or 0 for whichever it is",
                "${EDITOR:-vi} /etc/dat.conf",
            ),
            (
                "fe80::1 is link-local: dat_ep_connect has no argument for the netdev",
                "${EDITOR:-vi} /etc/dat.conf",
            ),
            ("something else", "DAT_LOG=debug dat info 'an ia'"),
        ] {
            assert_eq!(with(Some("eth7"), why), wants);
        }
        let why = "netdev v0 has no address; `ip addr add ADDRESS/PREFIX dev v0`";
        assert_eq!(
            with(None, why),
            "ip addr add ADDRESS/PREFIX dev v0  # as root, with an address of the network that is free"
        );
        let why = "dat.conf:1: cannot load \"/opt/p.so\" (DP-1): libq.so: cannot open shared object file: No such file or directory";
        assert_eq!(
            with(None, why),
            "ldd -r /opt/p.so  # install what is not found, or the release that the library was built for"
        );
    }
    #[test]
    fn a_device_in_software_comes_with_the_ia_to_open() {
        let why = "none; to have one in software: `rdma link add rxe0 type rxe netdev NETDEV`";
        let parse = |text: &str| {
            let line = format!("{text} \"\"");
            dat_registry::conf::parse(line.as_bytes(), Path::new("dat.conf"))
                .entries
                .remove(0)
        };
        let pattern = parse("roe-*-1 u2.0 threadsafe default l.so dapl.2.0 \"* 1 cm=socket\"");
        let one = pattern.for_name("roe-mlx5_0-1").expect("it matches");
        let fixed = parse("a u2.0 threadsafe default l.so dapl.2.0 \"mlx5_0 1\"");
        let any = parse("a u2.0 threadsafe default l.so dapl.2.0 \"\"");
        assert_eq!(
            then(&fixed, None, "mlx5_0"),
            "write rxe0 for mlx5_0 at dat.conf:1"
        );
        let of_any = finding(&any, None, why).remedy.expect("a remedy");
        assert!(!of_any.contains("then"), "{of_any}");
        let facts = Facts {
            name: "roe-mlx5_0-1",
            file: Path::new("dat.conf"),
            netdev: Some("eth7".to_owned()),
            then: Some(then(&one, Some(&pattern), "mlx5_0")),
        };
        let wants = "rdma link add rxe0 type rxe netdev eth7  # as root; then open roe-rxe0-1";
        assert_eq!(remedy(&facts, why), wants);
    }
}
