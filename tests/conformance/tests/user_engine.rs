//! The statements, put to softrxe's user engine: RoCEv2 over UDP between two IAs of this process, each group at an
//! address of its own.

use std::path::Path;
use std::process::Command;

use dat_conformance::{Api, Dat, STATEMENTS, Statement, host, judge};

/// The provider's shared object, which tests reach as programs do: as a file.
fn provider() -> std::path::PathBuf {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--offline",
            "-p",
            "dat-provider-softrxe",
        ])
        .current_dir(top)
        .output()
        .expect("cargo runs");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    // Where cargo put this test, less `deps/NAME`.
    let here = std::env::current_exe().expect("this test has a path");
    here.ancestors()
        .nth(2)
        .expect("a target folder")
        .join("libdat_provider_softrxe.so")
}

fn all_hold(group: &[Statement], name: &str, address: &str) {
    let library = provider();
    for api in Api::ALL {
        let params = format!("{address} 0 engine=user");
        let table = host::load(&library, name, &params, api).expect("the provider registers");
        let dat = Dat::new(table, name);
        let broken: Vec<_> = group
            .iter()
            .filter_map(|s| Some((s.page, s.says, judge(s, &dat).err()?)))
            .collect();
        assert!(broken.is_empty(), "uDAPL {api}: {broken:#?}");
    }
}

macro_rules! groups {
    ($($name:ident = $index:literal;)*) => {
        $(#[test]
        fn $name() {
            all_hold(STATEMENTS[$index], stringify!($name), concat!("127.0.5.", $index));
        })*

        #[test]
        fn every_group_has_a_test() {
            assert_eq!(STATEMENTS.len(), [$($index),*].len());
        }
    };
}

groups! {
    regions = 0;
    windows = 1;
    disconnect = 2;
    endpoints = 3;
    connections = 4;
    completions = 5;
    events = 6;
    adapters = 7;
    handles = 8;
}
