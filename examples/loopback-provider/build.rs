//! Gives the shared object its soname, and keeps it loaded: the transport has a thread that never ends.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat-loopback-provider.so.2");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
