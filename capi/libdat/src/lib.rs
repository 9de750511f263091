//! libdat.so.1: the uDAPL 1.2 C library.
//!
//! Begin with `redirect.rs`, which exports the functions on handles: each jumps through the function table of its first argument. `ia.rs` opens and
//! closes IAs; unlike in 2.0 an IA's handle is the provider's own. `registration.rs` and `strerror.rs` export the rest.
//! `registry.rs` holds the state; `export.rs` has the macro that exports a function with its version.
//!
//! The list of functions in `redirect.rs` is generated from `dat-abi/slots/slots.txt`. The crate imports dat-c-library (shared with
//! libdat2.so.2), dat-registry, dat-abi and dat-core; no crate imports it.

#[macro_use]
mod export;
mod ia;
mod redirect;
mod registration;
mod registry;
mod strerror;

/// Keeps a reserve, so that a process without memory gets an error and does not end.
#[global_allocator]
static MEMORY: dat_core::reserve::Reserve = dat_core::reserve::Reserve;

dat_c_library::at_load!();
