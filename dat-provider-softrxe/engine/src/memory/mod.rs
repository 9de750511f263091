//! Registered memory: keys, ranges, and copies that survive lost mappings.

pub(crate) mod entries;
pub(crate) mod guard;
mod keys;
pub(crate) mod lending;
pub(crate) mod payload_refs;
mod probe;
pub(crate) mod range;
pub(crate) mod record_bytes;
pub(crate) mod regions;
mod table;
mod windows;
