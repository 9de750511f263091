//! Sets the soname of the shared object, and keeps it loaded (`nodelete`), because its threads may outlive an adapter.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat-pipe.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
