//! Judges entries of dat.conf without running a library's code: whether the library is there and for this machine, exports a
//! provider's init, and has the entry's settings.

use std::net::IpAddr;

use dat_registry::conf::{ConfError, ConfErrorKind, Entry, Origin, Place};
use dat_registry::library::{self, Library};
use dat_registry::search;
use dat_registry::settings::Declared;

use crate::machine::Device;
use crate::read;

/// What was found about an entry.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// Path of the library.
    pub(crate) library: Option<String>,
    /// Why the entry cannot be opened.
    pub(crate) faults: Vec<ConfError>,
    /// What is without effect.
    pub(crate) warnings: Vec<ConfError>,
}

/// Judges one entry.
pub(crate) fn entry(entry: &Entry) -> Verdict {
    let at = |place: Place, text: String| ConfError {
        origin: Origin {
            path: entry.origin.path.clone(),
            line: place.line,
        },
        column: place.column,
        kind: ConfErrorKind::Provider(text),
    };
    let mut verdict = Verdict::default();
    if entry.api.kernel {
        let text = format!(
            "{} is for programs in the kernel; no other program opens it",
            entry.api
        );
        verdict.faults.push(at(entry.places.name, text));
    } else if !matches!((entry.api.major, entry.api.minor), (1, 2) | (2, 0)) {
        let text = format!(
            "no library of this project has API {}; there are u1.2 and u2.0",
            entry.api
        );
        verdict.faults.push(at(entry.places.name, text));
    }
    let folders = search::library_folders(read::own_path().as_deref(), &entry.origin.path);
    match library::locate(&entry.library, &folders) {
        Err(error) => verdict
            .faults
            .push(at(entry.places.library, error.to_string())),
        Ok(found) => {
            verdict
                .faults
                .extend(init(&found).map(|text| at(entry.places.library, text)));
            if let Some(declared) = Declared::of(&found.object) {
                verdict.faults.extend(declared.check(entry));
                verdict.warnings.extend(declared.warnings(entry));
            }
            verdict.library = Some(found.path.display().to_string());
        }
    }
    verdict
}

/// Says that a library is no provider.
fn init(found: &Library) -> Option<String> {
    let exports = found.object.exports("dat_provider_init")?;
    let path = found.path.display();
    (!exports).then(|| format!("{path} exports no dat_provider_init: it is no DAT provider"))
}

/// Says that this machine has not the device that an entry names. A host name may be resolved by a server, so one with a dot, or of
/// /etc/hosts, is not judged.
pub(crate) fn missing_device(entry: &Entry, devices: &[Device]) -> Option<String> {
    let word = entry.ia_params.split_whitespace().next();
    let Some(word) = word.filter(|word| !word.contains('=')) else {
        let takes_any = entry.library.contains("ibverbs");
        let none = takes_any && !devices.iter().any(|d| d.kind == "verbs");
        return none.then(|| "this machine has no verbs device".to_owned());
    };
    let known = devices
        .iter()
        .any(|d| d.name == word || d.addresses.iter().any(|address| address == word));
    if known {
        return None;
    }
    let exists = match word.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => is_host(word),
    };
    (!exists).then(|| format!("this machine has no device, netdev or address {word:?}"))
}

/// Returns the name of an IA that a pattern stands for on this machine: `ofa-v2-mlx5_0-1` for `ofa-v2-*-1`. `None` if only the library knows
/// what its devices are.
///
/// # Errors
/// This machine has no such device; the text says so.
pub(crate) fn of_pattern(entry: &Entry, devices: &[Device]) -> Result<Option<String>, String> {
    let kind = match &entry.library {
        library if library.contains("softrxe") => "netdev",
        library if library.contains("ibverbs") || library.contains("libdapl") => "verbs",
        _ => return Ok(None),
    };
    let port = entry.ia_params.split_whitespace().nth(1);
    let port: Option<u32> = port.and_then(|word| word.parse().ok());
    let port = port.filter(|number| *number != 0);
    let is_candidate = |d: &&Device| {
        let has_port = port.is_none_or(|port| d.port.unwrap_or(1) == port);
        d.kind == kind && d.why_not.is_none() && has_port
    };
    let with_port = port.map_or_else(String::new, |port| format!(" with port {port}"));
    match devices.iter().find(is_candidate) {
        Some(device) => Ok(Some(entry.name.replacen('*', &device.name, 1))),
        None => Err(format!(
            "this machine has no {kind} device{with_port} for the *"
        )),
    }
}

fn is_host(word: &str) -> bool {
    let has_domain = word.contains('.')
        && word
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_'));
    has_domain || {
        let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        hosts
            .lines()
            .any(|line| line.split_whitespace().skip(1).any(|name| name == word))
    }
}

/// Why an entry cannot open on this machine, as far as that shows without running the provider's code.
#[derive(Clone, Debug)]
pub(crate) enum Hopeless {
    /// The entry or its library is faulty.
    Fault(String),
    /// This machine has not the device.
    NoDevice(String),
}

/// Says why an entry cannot open on this machine; `None` if that does not show.
pub(crate) fn hopeless(one: &Entry, devices: &[Device]) -> Option<Hopeless> {
    if let Some(fault) = entry(one).faults.first() {
        return Some(Hopeless::Fault(fault.kind.to_string()));
    }
    missing_device(one, devices).map(Hopeless::NoDevice)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn devices_that_this_machine_has_not_are_named() {
        let missing = |library: &str, params: &str| {
            let line = format!("x u2.0 threadsafe default {library} dapl.2.0 \"{params}\" \"\"");
            let parsed = dat_registry::conf::parse(line.as_bytes(), Path::new("t"));
            missing_device(&parsed.entries[0], &[])
        };
        for params in ["192.0.2.77 0", "127.0.0.1/8 0", "eth0:1 0", "nosuch0 0"] {
            let why = missing("libdat-provider-softrxe.so.2", params);
            assert!(why.is_some(), "{params}");
        }
        for params in [
            "127.0.0.9 0",
            "::1 0",
            "host.example.org 0",
            "engine=user",
            "",
        ] {
            assert_eq!(
                missing("libdat-provider-softrxe.so.2", params),
                None,
                "{params}"
            );
        }
        let why = missing("libdat-provider-ibverbs.so.2", "");
        assert_eq!(why.as_deref(), Some("this machine has no verbs device"));
    }

    #[test]
    fn a_pattern_needs_a_device_of_its_kind_and_port() {
        let device = |kind: &'static str, name: &str, port| Device {
            kind,
            name: name.into(),
            port,
            state: "up".into(),
            addresses: Vec::new(),
            netdev: None,
            why_not: None,
            ia: String::new(),
            params: String::new(),
            library: "",
            entry: String::new(),
        };
        let eth = device("netdev", "eth0", None);
        let mlx = device("verbs", "mlx5_0", Some(1));
        let of = |library: &str, params: &str, devices: &[Device]| {
            let line =
                format!("x-*-1 u2.0 threadsafe default {library} dapl.2.0 \"{params}\" \"\"");
            let parsed = dat_registry::conf::parse(line.as_bytes(), Path::new("t"));
            of_pattern(&parsed.entries[0], devices)
        };
        let both = [eth.clone(), mlx];
        let verbs = "libdat-provider-ibverbs.so.2";
        let none = "this machine has no verbs device with port 1 for the *";
        assert_eq!(of(verbs, "* 1", &[eth]), Err(none.to_owned()));
        assert_eq!(of(verbs, "* 1", &both), Ok(Some("x-mlx5_0-1".to_owned())));
        assert_eq!(of(verbs, "* 0", &both), Ok(Some("x-mlx5_0-1".to_owned())));
        assert!(of(verbs, "* 2", &both).is_err());
        let softrxe = "libdat-provider-softrxe.so.2";
        assert_eq!(of(softrxe, "* 0", &both), Ok(Some("x-eth0-1".to_owned())));
        assert_eq!(of("libmine.so", "* 0", &[]), Ok(None));
    }
}
