//! A provider registers with whoever exports the registry's functions to the process: here the program itself.

fn main() {
    for name in ["dat_registry_add_provider", "dat_registry_remove_provider"] {
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol={name}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
