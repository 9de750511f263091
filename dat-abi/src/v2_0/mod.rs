//! uDAPL 2.0: layouts, function table, and the thunks that differ from 1.2's.

pub(crate) mod convert;
pub(crate) mod extension_event;
pub mod table;
pub mod tables;
pub(crate) mod thunk;
pub mod types;
