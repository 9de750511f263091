//! libdat.so.1: the uDAPL 1.2 C library.
//!
//! Names and the registry are here; everything else is a jump through the function table of the provider that made
//! the handle. Unlike in 2.0 an IA's handle is the provider's own.

#[macro_use]
mod export;
mod ia;
mod redirect;
mod registration;
mod registry;
mod strerror;

/// Out of memory is an error and no end of the process.
#[global_allocator]
static MEMORY: dat_core::reserve::Reserve = dat_core::reserve::Reserve;
