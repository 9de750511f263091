//! Compiles the one function that Rust cannot express: it returns twice, like `setjmp`.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/sleep.c");
    // Miri calls no C, and there may be no C compiler for the target that it emulates.
    let is_miri = env::var_os("CARGO_CFG_MIRI").is_some();
    if !is_miri && env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu") {
        cc::Build::new()
            .file("src/sleep.c")
            // glibc may start to unwind at any instruction of the function.
            .flag("-fasynchronous-unwind-tables")
            // With -fexceptions pthread.h declares different cleanup functions.
            .flag("-fno-exceptions")
            .warnings_into_errors(true)
            .compile("dat_os_sleep");
    }
}
