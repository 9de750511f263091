//! Sets the soname of the shared object, and keeps it loaded (`nodelete`): handles point to its tables, and it writes its report when
//! the process ends.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat-provider-filter.so.2");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
