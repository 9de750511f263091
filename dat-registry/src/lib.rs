//! dat.conf, provider loading and the registry of interface adapters.

pub mod catalog;
pub mod conf;
pub mod search;
