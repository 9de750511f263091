//! Exports the registry's functions from the program: a provider registers with the process that exports them.

fn main() {
    for name in ["dat_registry_add_provider", "dat_registry_remove_provider"] {
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol={name}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
