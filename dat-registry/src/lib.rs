//! dat.conf, provider loading and the registry of interface adapters.
//!
//! [`registry::Registry`] is the whole; the rest are its parts: [`conf`] the grammar, [`search`] where the file is,
//! [`catalog`] which entry satisfies a request, [`loader`] the only dlopen, [`registrations`] what is registered, [`handles`] the small
//! integers that 2.0 consumers hold for IAs.

pub mod catalog;
pub mod conf;
pub mod handles;
pub mod loader;
pub mod registrations;
pub mod registry;
pub mod search;
