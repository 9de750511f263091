//! C layouts, handles and function tables of uDAPL 1.2 and 2.0.
//!
//! A transport becomes a provider by [`export_provider!`]; everything between a C caller and
//! `dat_core` is here.

mod attributes;
pub(crate) mod boundary;
pub mod export;
mod fork;
pub(crate) mod handle;
pub(crate) mod intern;
pub mod log;
pub mod provider;
pub mod ret;
mod segments;
pub mod sockaddr;
pub mod strerror;
mod table;
pub(crate) mod thunk;
mod transport_provider;
pub mod types;
pub mod v1_2;
pub mod v2_0;
pub mod va_list;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("layouts are those of LP64");
