//! libdat2.so.2: the uDAPL 2.0 C library.
//!
//! Begin with `redirect.rs`, which exports the functions on handles: each jumps through a function table, in as few instructions as possible. `ia.rs`
//! exports the functions on IAs, which are small numbers in 2.0. `extension.rs` has dat_extension_op, `registration.rs` and
//! `strerror.rs` the rest. `registry.rs` holds the state; `export.rs` has the macro that exports a function with its version.
//!
//! The lists of functions in `redirect.rs` and `ia.rs` are generated from `dat-abi/slots/slots.txt`. The crate imports dat-c-library
//! (shared with libdat.so.1), dat-registry, dat-abi and dat-core; no crate imports it.

#[macro_use]
mod export;
mod extension;
mod ia;
mod redirect;
mod registration;
mod registry;
mod strerror;

/// Keeps a reserve, so that a process without memory gets an error and does not end.
#[global_allocator]
static MEMORY: dat_core::reserve::Reserve = dat_core::reserve::Reserve;

dat_c_library::at_load!();
