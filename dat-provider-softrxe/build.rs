//! Names the shared object as a distribution would: entries of dat.conf and packages refer to its SONAME.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat-provider-softrxe.so.2");
}
