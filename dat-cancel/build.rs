//! Compiles the one function that Rust cannot express: it returns a second time, as `setjmp` does.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/sleep.c");
    if env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu") {
        cc::Build::new()
            .file("src/sleep.c")
            // The C library's unwinder starts at any instruction of it.
            .flag("-fasynchronous-unwind-tables")
            // With -fexceptions pthread.h declares other cleanup functions.
            .flag("-fno-exceptions")
            .warnings_into_errors(true)
            .compile("dat_cancel_sleep");
    }
}
