//! The dat.conf that this project installs.

use std::path::Path;

use dat_registry::catalog::{Catalog, Request};
use dat_registry::conf::{ConfErrorKind, parse};
use dat_registry::settings::Declared;

const SHIPPED: &str = include_str!("../../dat.conf");

fn catalog() -> Catalog {
    let parsed = parse(SHIPPED.as_bytes(), Path::new("dat.conf"));
    assert_eq!(parsed.errors, []);
    Catalog::new(parsed, vec!["dat.conf".into()])
}

#[test]
fn names_of_the_field_are_there() {
    let catalog = catalog();
    assert_eq!(catalog.faults(), []);
    for (name, major, params) in [
        ("ofa-v2-ib0", 2, "ib0 0"),
        ("ofa-v2-mlx4_0-1", 2, "mlx4_0 1 cm=socket"),
        ("ofa-v2-mlx4_0-1u", 2, "mlx4_0 1"),
        ("ofa-v2-mlx5_1-2s", 2, "mlx5_1 2 cm=socket"),
        ("ofa-v2-qib0-2m", 2, "qib0 2"),
        ("ofa-v2-cma-roe-eth2", 2, "eth2 0"),
        ("ofa-v2-scm-roe-mlx4_0-2", 2, "mlx4_0 2 cm=socket"),
        ("OpenIB-cma", 1, "ib0 0"),
        ("OpenIB-cma", 2, "ib0 0"),
        ("OpenIB-cma-1", 1, "ib1 0"),
        ("OpenIB-mthca0-1", 1, "mthca0 1 cm=socket"),
        ("OpenIB-bond", 1, "bond0 0"),
    ] {
        let request = Request {
            name,
            major,
            minor: if major == 1 { 2 } else { 0 },
            thread_safe: false,
        };
        let found = catalog.find(&request).expect(name);
        assert_eq!((&*found.name, &*found.ia_params), (name, params));
    }
}

#[test]
fn programs_are_not_shown_names_without_a_device() {
    let listed = catalog();
    let listed = listed.entries().iter().filter(|e| e.default);
    assert!(
        listed
            .into_iter()
            .all(|e| !e.is_pattern() && !e.name.starts_with("OpenIB"))
    );
}

#[test]
fn the_manual_page_has_every_key_of_the_toml_form() {
    const PAGE: &str = include_str!("../../docs/man/dat.conf.5");
    for text in ["x = 1", "[defaults]\nx = 1", "[[ia]]\nx = 1"] {
        let parsed = parse(text.as_bytes(), Path::new("t.toml"));
        let ConfErrorKind::UnknownKey { known, .. } = &parsed.errors[0].kind else {
            panic!("{:?}", parsed.errors)
        };
        for key in *known {
            assert!(PAGE.contains(key), "dat.conf(5) lacks {key}");
        }
    }
}

#[test]
fn settings_are_declared_with_the_strict_one() {
    let declared = Declared::parse(dat_core::ia_params::CORE_SETTINGS);
    let text = "a u2.0 threadsafe default l v.1.0 \"strict=length\" \"\"";
    let parsed = parse(text.as_bytes(), Path::new("c"));
    let said = declared.check(&parsed.entries[0])[0].to_string();
    assert!(said.contains("did you mean \"lengths\"?"), "{said}");
}
