//! Gives the shared object its soname and its version node. The symbols of the node are named in the sources, by one
//! `.symver` beside each function.

use std::env;

fn main() {
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat2.so.2");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={here}/nodes.map");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=nodes.map");
}
