//! Files of the engine import from each other without circles: each imports only from files above it in [`ORDER`].

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");

/// All modules that contain code, each after those that it may import from.
const ORDER: &[&str] = &[
    // Leaves.
    "user_engine",
    "clock",
    "secrets",
    "settings",
    "wait",
    "address::interface",
    "address::local_address",
    "adaptive::oversubscription",
    "adaptive::empty_polls",
    "adaptive::loop_exit",
    "adaptive::ring_copies",
    "adaptive::pull_choice",
    "adaptive::socket_cadence",
    "adaptive::stream_pace",
    "adaptive",
    // Registered memory.
    "memory::probe",
    "memory::keys",
    "memory::guard",
    "memory::record_bytes",
    "memory::range",
    "memory::range::tests",
    "memory::lending",
    "memory::payload_refs",
    "memory::entries",
    "memory::table",
    "memory::windows",
    "memory::regions",
    "memory::regions::tests",
    // Paths for packets.
    "link",
    "link::capture",
    "link::udp",
    "link::mailbox",
    "link::near",
    // Owners of an adapter's state.
    "adapter::descriptors",
    "adapter::udp_datagrams",
    "adapter::near",
    "adapter::near_fallback",
    "adapter::near_dial",
    "adapter::ports",
    "adapter::ports::takeover",
    "adapter::peers",
    "adapter::datagram",
    "adapter::upcall",
    "adapter::pending",
    "adapter::notices",
    "adapter::connections",
    "adapter::driver::roles",
    "adapter::driver::state",
    // Their wiring.
    "adapter::events",
    "adapter::poll_turns",
    "adapter::contention",
    "adapter::state",
    "adapter::hub",
    "adapter::open",
    "adapter::lanes",
    "adapter::services",
    "adapter::near_wait",
    "adapter::process_ends",
    "adapter::own_end",
    // Threads.
    "adapter::driver::closing",
    "adapter::driver::helper",
    "adapter::driver::consumer",
    "adapter::driver::waiter",
    // What core calls.
    "transport::named_attributes",
    "transport::convert",
    "transport::queue",
    "transport::objects",
    "transport::window",
    "transport::run_upcall",
    "transport::open",
    "transport::datagram",
    "transport::connect",
    "transport",
    // Tests with whole engines.
    "adapter::near::tests",
    "adapter::own_end::tests",
    "adapter::process_ends::tests",
    "adapter::driver::helper::tests",
    "adapter::near_dial::tests",
];

/// Modules whose files import from their parent: one concept in several files.
const PARTS: &[&str] = &["memory::guard", "memory::regions"];

/// Returns the module path of a source file.
fn module(file: &Path) -> String {
    let relative = file.strip_prefix(SOURCES).unwrap().with_extension("");
    let names = relative.iter().map(|name| name.to_str().unwrap());
    let names: Vec<&str> = names.filter(|name| *name != "mod").collect();
    names.join("::")
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Returns the paths that the `use` declarations of `text` name, absolute in the crate; `module` is where they stand.
fn imports(module: &str, text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let mut found = Vec::new();
    let declarations = code.split('\n').enumerate().filter(|(_, line)| {
        let line = line.trim_start_matches("pub(crate) ");
        line.starts_with("use ")
    });
    for (number, _) in declarations {
        let rest: Vec<&str> = code.split('\n').skip(number).collect();
        let declaration = rest.join(" ");
        let declaration = declaration.split(';').next().unwrap();
        let path = declaration.split("use ").nth(1).unwrap();
        expand(path.trim(), &mut found);
    }
    found
        .iter()
        .filter_map(|path| absolute(module, path))
        .collect()
}

/// Resolves the braces of a `use` declaration.
fn expand(path: &str, into: &mut Vec<String>) {
    let Some((prefix, list)) = path.split_once('{') else {
        into.push(path.to_owned());
        return;
    };
    let list = list.trim_end().trim_end_matches('}');
    for item in list.split(',').map(str::trim).filter(|i| !i.is_empty()) {
        into.push(format!("{prefix}{item}"));
    }
}

fn absolute(module: &str, path: &str) -> Option<String> {
    if let Some(path) = path.strip_prefix("crate::") {
        return Some(path.to_owned());
    }
    if let Some(path) = path.strip_prefix("self::") {
        return Some(format!("{module}::{path}"));
    }
    let (mut base, mut rest) = (module, path.strip_prefix("super::")?);
    loop {
        base = base.rsplit_once("::").map_or("", |(parent, _)| parent);
        match rest.strip_prefix("super::") {
            Some(more) => rest = more,
            None => return Some(format!("{base}::{rest}").trim_start_matches(':').to_owned()),
        }
    }
}

#[test]
fn files_import_only_from_files_before_them() {
    let rank: BTreeMap<&str, usize> = ORDER.iter().enumerate().map(|(n, m)| (*m, n)).collect();
    let mut files = Vec::new();
    sources(Path::new(SOURCES), &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let name = module(&file);
        if name == "lib" || name == "link::tests" {
            continue;
        }
        let part = PARTS
            .iter()
            .find(|parent| name.starts_with(&format!("{parent}::")));
        let name = part.map_or(name.as_str(), |parent| parent);
        let text = fs::read_to_string(&file).unwrap();
        let imported = imports(name, &text);
        let Some(own) = rank.get(name) else {
            if !imported.is_empty() || text.contains("fn ") {
                wrong.push(format!("{name} is not in ORDER"));
            }
            continue;
        };
        for path in imported {
            // The longest module that is a prefix of the path.
            let modules = ORDER
                .iter()
                .filter(|m| path == **m || path.starts_with(&format!("{m}::")));
            let to = modules.max_by_key(|m| m.len());
            match to {
                Some(to) if *to != name && rank[to] >= *own => {
                    wrong.push(format!("{name} -> {to}"));
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn use_declarations_are_read() {
    let text = "use crate::memory::guard;\nuse super::hub::{Hub,\n    State};\npub(crate) use self::x::Y;\nuse super::super::z;\nuse std::io;\n";
    let read = imports("adapter::events", text);
    let expected = [
        "memory::guard",
        "adapter::hub::Hub",
        "adapter::hub::State",
        "adapter::events::x::Y",
        "z",
    ];
    assert_eq!(read, expected);
}
