//! Judges entries of dat.conf without running a library's code: whether the library is there and for this machine, exports a
//! provider's init, and has the entry's settings.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Mutex;

use dat_os::mutex::lock;
use dat_registry::catalog::{Catalog, Request};
use dat_registry::conf::{ConfError, ConfErrorKind, Entry, Origin, Place};
use dat_registry::library::{self, Library, LibraryError};
use dat_registry::search;
use dat_registry::settings::Declared;

use crate::machine::{self, Device};
use crate::{read, wrapped};

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
    match library::locate(&entry.library, &folders(entry)) {
        Err(error) => {
            let text = format!("{error}{}", hint(&error, entry));
            verdict.faults.push(at(entry.places.library, text));
        }
        Ok(found) => {
            verdict
                .faults
                .extend(init(&found).map(|text| at(entry.places.library, text)));
            if entry.api.major == 1 && wrapped::is_filter(&entry.library) {
                let text = "a filter is of u2.0 only; write u2.0, or leave this entry out";
                verdict.faults.push(at(entry.places.name, text.to_owned()));
            }
            if let Some(declared) = Declared::of(&found.object) {
                verdict.faults.extend(declared.check(entry));
                verdict.warnings.extend(declared.warnings(entry));
            }
            verdict.library = Some(found.path.display().to_string());
        }
    }
    verdict
}

/// Returns the folders that are searched for an entry's library besides those of the dynamic loader.
fn folders(entry: &Entry) -> Vec<PathBuf> {
    search::library_folders(read::own_path().as_deref(), &entry.origin.path)
}

/// Returns what [`library_hint`] does; `error` is what the search for the library ended with.
fn hint(error: &LibraryError, entry: &Entry) -> String {
    // One name is often that of many entries, and the search lists folders with thousands of files.
    static FOUND: Mutex<BTreeMap<String, Option<String>>> = Mutex::new(BTreeMap::new());
    if !matches!(error, LibraryError::Missing { .. }) {
        return String::new();
    }
    let mut all = lock(&FOUND);
    let near = all
        .entry(entry.library.clone())
        .or_insert_with(|| library::nearest(&entry.library, &folders(entry)));
    near.as_ref()
        .map_or_else(String::new, |name| format!("; did you mean {name:?}?"))
}

/// Returns `; did you mean "..."?` where the library of an entry is missing and another has nearly its name.
pub(crate) fn library_hint(entry: &Entry) -> String {
    let missing = library::locate(&entry.library, &folders(entry)).err();
    missing.map_or_else(String::new, |error| hint(&error, entry))
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

/// Returns the names of the IAs that a pattern stands for on this machine, one for each device: `ofa-v2-mlx5_0-1` for `ofa-v2-*-1`. None if
/// only the library knows what its devices are.
///
/// # Errors
/// This machine has no such device; the text says so.
pub(crate) fn of_pattern(entry: &Entry, devices: &[Device]) -> Result<Vec<String>, String> {
    let name_with = |part: &str| entry.name.replacen('*', part, 1);
    let mut words = entry.ia_params.split_whitespace();
    let device = words.next().filter(|word| !word.contains('='));
    let Some((start, end)) = device.and_then(|word| word.split_once('*')) else {
        // The device is the same for each name, so any name will do.
        return match missing_device(entry, devices) {
            Some(none) => Err(none),
            None => Ok(device.map(name_with).into_iter().collect()),
        };
    };
    let kind = match &entry.library {
        library if library.contains("softrxe") => "netdev",
        library if library.contains("ibverbs") || library.contains("libdapl") => "verbs",
        _ => return Ok(Vec::new()),
    };
    let port: Option<u32> = words.next().and_then(|word| word.parse().ok());
    let port = port.filter(|number| *number != 0);
    let mut names: Vec<String> = Vec::new();
    for device in devices {
        let has_port = port.is_none_or(|port| device.port.unwrap_or(1) == port);
        let is_candidate = device.kind == kind && device.why_not.is_none() && has_port;
        let part = device.name.strip_prefix(start);
        let part = part.and_then(|part| part.strip_suffix(end));
        if let Some(name) = part.filter(|_| is_candidate).map(name_with)
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    if names.is_empty() {
        let with_port = port.map_or_else(String::new, |port| format!(" with port {port}"));
        return Err(format!(
            "this machine has no {kind} device{with_port} for the *"
        ));
    }
    Ok(names)
}

/// Returns the names of 2.0 that the patterns of a configuration stand for on this machine, as far as their entries have no fault.
pub(crate) fn names_of_patterns(catalog: &Catalog, devices: &[Device]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for one in patterns(catalog).filter(|one| entry(one).faults.is_empty()) {
        for name in of_pattern(one, devices).unwrap_or_default() {
            if !all.contains(&name) {
                all.push(name);
            }
        }
    }
    all
}

/// Returns the patterns of a configuration that programs of 2.0 can use.
pub(crate) fn patterns(catalog: &Catalog) -> impl Iterator<Item = &Entry> {
    let entries = catalog.entries().iter();
    entries.filter(|e| e.is_pattern() && !e.api.kernel && e.api.major == 2)
}

/// Says why no entry has the name, and which names patterns stand for on this machine.
pub(crate) fn explain_missing(catalog: &Catalog, name: &str) -> String {
    let mut text = catalog.explain_missing(&Request::new(name, (2, 0)));
    let devices = machine::devices().unwrap_or_default();
    if let Some(pattern) = patterns(catalog).find(|pattern| pattern.name == name) {
        return match of_pattern(pattern, &devices) {
            Ok(names) if names.is_empty() => text,
            Ok(names) => format!("{text}; on this machine {}", names.join(" or ")),
            Err(none) => format!("{text}; {none}"),
        };
    }
    let names = names_of_patterns(catalog, &devices);
    if !names.is_empty() {
        text += &format!(
            "; on this machine its patterns stand for {}",
            names.join(", ")
        );
    }
    text
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
        let one = |name: &str| Ok(vec![name.to_owned()]);
        assert_eq!(of(verbs, "* 1", &both), one("x-mlx5_0-1"));
        assert_eq!(of(verbs, "* 0", &both), one("x-mlx5_0-1"));
        assert!(of(verbs, "* 2", &both).is_err());
        let softrxe = "libdat-provider-softrxe.so.2";
        assert_eq!(of(softrxe, "* 0", &both), one("x-eth0-1"));
        assert_eq!(of(softrxe, "eth* 0", &both), one("x-0-1"));
        assert_eq!(of(softrxe, "eth0 0 mtu=1024", &both), one("x-eth0-1"));
        assert_eq!(of("libmine.so", "* 0", &[]), Ok(Vec::new()));
        assert_eq!(of(softrxe, "engine=user", &[]), Ok(Vec::new()));
        let none = "this machine has no device, netdev or address \"nosuch0\"";
        assert_eq!(of(softrxe, "nosuch0 0", &both), Err(none.to_owned()));
    }
}
