//! Gives the shared object its soname. Symbols have no version: the node's name in OFED's library is not known, and
//! a symbol without version satisfies any reference.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}
