//! Compiles the shared object of `src/classic/shim.c`, which the crate contains as bytes.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/classic/shim.c");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let to = Path::new(&out).join("libdat-classic.so");
    let compiler = cc::Build::new().opt_level(2).debug(false).get_compiler();
    let done = compiler
        .to_command()
        .args(["-shared", "-fPIC", "-Wl,-soname,libdat-classic.so", "-o"])
        .arg(&to)
        .arg("src/classic/shim.c")
        .status();
    match done {
        Ok(status) if status.success() => {}
        other => panic!(
            "{:?} cannot link a shared object: {other:?}",
            compiler.path()
        ),
    }
}
