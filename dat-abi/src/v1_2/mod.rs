//! uDAPL 1.2 in the form of OFED's libdat.so.1: layouts, function table, and the thunks that differ from 2.0's.

pub(crate) mod convert;
pub mod table;
pub mod tables;
pub(crate) mod thunk;
pub mod types;
