//! libdat2.so.2: the uDAPL 2.0 C library.
//!
//! Names, IA numbers and the registry are here; everything else is a jump through the function table of the
//! provider that made the handle.

#[macro_use]
mod export;
mod extension;
mod ia;
mod redirect;
mod registration;
mod registry;
mod strerror;

/// Out of memory is an error and no end of the process.
#[global_allocator]
static MEMORY: dat_core::reserve::Reserve = dat_core::reserve::Reserve;
