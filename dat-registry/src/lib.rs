//! dat.conf, the loader of providers, and the registry of interface adapters (IAs).
//!
//! Begin with [`registry::Registry`], which puts the other modules together:
//! * [`search`] finds the file, [`conf`] parses it, [`catalog`] selects the entry that satisfies a request;
//! * [`library`] finds the entry's library, [`elf`] reads it without loading it, [`settings`] checks an entry against what it declares;
//! * [`loader`] loads and initialises the entry's library; no other code of the project calls dlopen for a provider;
//! * [`classic`] exports the registry of a statically linked program to classic providers;
//! * [`registrations`] holds the function tables that are registered, [`handles`] the small integers that 2.0 consumers get for IAs.
//!
//! The crate imports dat-core (error codes), dat-abi (C types) and dat-os (fork). The C libraries (`capi/`) and the Rust API (`dat`) use it.
//! Unsafe code is in `loader.rs` and `classic/`, and one call of getauxval in `search.rs`.

pub mod catalog;
pub mod classic;
pub mod conf;
pub mod elf;
pub mod forked;
pub mod handles;
pub mod library;
pub mod loader;
pub mod registrations;
pub mod registry;
pub mod search;
pub mod settings;
