//! Registered memory of the user engine.

pub(crate) mod foreign;
pub(crate) mod guard;
mod keys;
pub(crate) mod payload_refs;
mod probe;
pub(crate) mod regions;
