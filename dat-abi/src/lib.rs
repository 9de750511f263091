//! C layouts, handles and function tables of uDAPL 1.2 and 2.0: everything between a C caller and dat-core.
//!
//! Begin with `slots/slots.txt`, the list of all functions, then `v2_0/tables.rs`, the constant table of thunks, and `thunk/`, the
//! thunks that both versions share; each version's `thunk/` has those that differ. A thunk converts C arguments (`boundary.rs`,
//! `handle.rs`, `segments.rs`, `v*/convert.rs`) and calls an object of dat-core. `thunk/post.rs` and `thunk/event.rs` have the fast paths.
//! A transport becomes a provider by [`export_provider!`] (`export.rs`, `provider.rs`).
//!
//! The crate imports dat-core, dat-arena and dat-os. All unsafe code between C and the core is here: thunks trust pointers as the
//! manual pages say, and check handles.

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
