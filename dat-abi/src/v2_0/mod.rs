//! uDAPL 2.0: layouts, function table, thunks.

pub mod table;
pub mod types;
