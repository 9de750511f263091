//! Gives the shared object its soname.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat-loopback-provider.so.2");
    println!("cargo::rerun-if-changed=build.rs");
}
