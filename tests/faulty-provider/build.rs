//! Sets the soname of the shared object, and keeps it loaded (`nodelete`), because the transport's thread never ends.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat-faulty-provider.so.2");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
