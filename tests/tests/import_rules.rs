//! Checks that each crate depends only on the crates that ARCHITECTURE.md allows.

use std::collections::BTreeMap;

/// Each crate of the workspace with the workspace crates that it may depend on. Dev-dependencies are not checked.
const ALLOWED: &[(&str, &[&str])] = &[
    ("dat-arena", &[]),
    ("dat-handshake", &[]),
    ("softrxe-proto", &["dat-handshake"]),
    ("softrxe-near", &["dat-os", "softrxe-port"]),
    ("softrxe-port", &["dat-os"]),
    ("dat-os", &[]),
    ("dat-core", &["dat-arena", "dat-os"]),
    ("dat-abi", &["dat-core", "dat-arena", "dat-os"]),
    ("dat-slots", &[]),
    (
        "dat-provider",
        &["dat-core", "dat-abi", "dat-os", "dat-provider-parts"],
    ),
    ("dat-provider-parts", &["dat-core", "dat-os"]),
    (
        "dat-provider-c",
        &["dat-core", "dat-abi", "dat-provider-parts"],
    ),
    ("dat-pipe", &["dat-provider"]),
    ("dat-registry", &["dat-core", "dat-abi", "dat-os"]),
    (
        "udapl",
        &[
            "dat-core",
            "dat-abi",
            "dat-registry",
            "dat-os",
            "softrxe-engine",
        ],
    ),
    (
        "dat-verbs",
        &["dat-arena", "dat-core", "dat-handshake", "dat-os"],
    ),
    ("dat-loopback", &["dat-core", "dat-provider-parts"]),
    ("dat-loopback-provider", &["dat-provider", "dat-loopback"]),
    ("dat-faulty-loopback", &["dat-core", "dat-provider-parts"]),
    (
        "dat-faulty-provider",
        &["dat-provider", "dat-faulty-loopback"],
    ),
    (
        "dat-provider-ibverbs",
        &["dat-core", "dat-abi", "dat-verbs"],
    ),
    (
        "dat-provider-filter",
        &["dat-core", "dat-abi", "dat-registry", "dat-os"],
    ),
    (
        "softrxe-engine",
        &[
            "dat-arena",
            "dat-core",
            "dat-os",
            "dat-handshake",
            "softrxe-near",
            "softrxe-port",
            "softrxe-proto",
        ],
    ),
    (
        "dat-provider-softrxe",
        &["dat-core", "dat-abi", "dat-verbs", "softrxe-engine"],
    ),
    (
        "dat-c-library",
        &["dat-core", "dat-abi", "dat-registry", "dat-os"],
    ),
    (
        "dat2",
        &["dat-core", "dat-abi", "dat-registry", "dat-c-library"],
    ),
    (
        "dat1",
        &["dat-core", "dat-abi", "dat-registry", "dat-c-library"],
    ),
    (
        "dat-tools",
        &[
            "udapl",
            "dat-conformance",
            "dat-os",
            "dat-registry",
            "softrxe-port",
        ],
    ),
    ("dat-conformance", &["dat-core", "dat-abi", "dat-registry"]),
    (
        "dat-bench",
        &["udapl", "dat-abi", "dat-core", "softrxe-port"],
    ),
    (
        "dat-fuzz",
        &[
            "softrxe-proto",
            "softrxe-port",
            "softrxe-near",
            "dat-registry",
            "dat-core",
            "dat-handshake",
        ],
    ),
    ("dat-hostile", &["udapl", "dat-tests", "dat-untested"]),
    ("dat-loom", &[]),
    ("dat-untested", &[]),
    ("dat-tests", &["udapl"]),
];

#[test]
fn every_dependency_is_one_that_the_architecture_allows() {
    let metadata = dat_tests::cargo_metadata(&["--no-deps"]);
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let packages = metadata["packages"].as_array().expect("packages");
    let ours: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().expect("a package has a name");
        let Some(may) = allowed.get(name) else {
            wrong.push(format!(
                "{name} is not in the list of tests/tests/import_rules.rs"
            ));
            continue;
        };
        let mut unused = may.to_vec();
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let to = dependency["name"]
                .as_str()
                .expect("a dependency has a name");
            if ours.contains(&to) && dependency["kind"] != "dev" {
                unused.retain(|allowed| *allowed != to);
                if !may.contains(&to) {
                    wrong.push(format!("{name} -> {to}"));
                }
            }
        }
        for to in unused {
            wrong.push(format!(
                "{name} -> {to} is allowed but is no dependency: remove it from the list"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "ARCHITECTURE.md does not allow: {wrong:#?}"
    );
}
