//! What the build scripts of both C libraries give the linker: the soname, and the version node of the exported symbols.
//!
//! Each function has a `.symver` beside it, and `nodes.map` declares the node. rustc passes the linker a version script
//! of its own, which lists the exported symbols without a node. lld accepts both scripts. GNU ld refuses them together,
//! and rustc uses it wherever it comes without lld. Therefore gcc finds a script called `ld` before the linker
//! (`-B`), which names the node in rustc's list and leaves ours out. With `-fuse-ld=lld` gcc does not look for `ld`.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// The script. `NODE`, `EXTRA`, `OURS` and `LINKER` are replaced.
const LD: &str = r#"#!/bin/sh
# Written by capi/version_node.rs.
for argument do
    shift
    case $argument in
        '--version-script=OURS') continue ;;
        --version-script=*)
            list=${argument#*=}
            sed -e '1s/^{/NODE {/' -e 's/^ *global:/global: EXTRA/' "$list" >"$list.node" || exit
            argument=--version-script=$list.node ;;
    esac
    set -- "$@" "$argument"
done
exec 'LINKER' "$@"
"#;

/// Returns the linker that the compiler driver of this build would run.
fn linker() -> String {
    let driver = env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(driver).arg("-print-prog-name=ld").output();
    let path = output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    path.ok()
        .filter(|path| !path.is_empty())
        .unwrap_or_else(|| "ld".to_owned())
}

/// Prints the instructions for cargo. `in_assembly` is a function that rustc's list lacks, as assembly defines it.
pub(crate) fn link(soname: &str, node: &str, in_assembly: Option<&str>) {
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let ours = format!("{here}/nodes.map");
    let script = Path::new(&out).join("ld");
    let text = LD
        .replace("NODE", node)
        .replace(
            "EXTRA",
            &in_assembly.map_or_else(String::new, |name| format!("{name};")),
        )
        .replace("OURS", &ours)
        .replace("LINKER", &linker());
    fs::write(&script, text).expect("OUT_DIR can be written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    println!("cargo::rustc-cdylib-link-arg=-B{out}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={ours}");
    for file in ["build.rs", "../version_node.rs", "nodes.map"] {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    // Cargo sets that one from this variable or its configuration, and only sees a change of what it did not set itself.
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let target = target.to_uppercase().replace(['-', '.'], "_");
    println!("cargo::rerun-if-env-changed=CARGO_TARGET_{target}_LINKER");
}
