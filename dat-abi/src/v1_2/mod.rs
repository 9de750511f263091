//! uDAPL 1.2 as OFED's libdat.so.1 has it: layouts, function table, thunks.

pub(crate) mod convert;
pub mod table;
pub mod tables;
pub(crate) mod thunk;
pub mod types;
