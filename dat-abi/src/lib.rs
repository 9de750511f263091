//! C layouts, handles and function tables of uDAPL 1.2 and 2.0.

pub mod ret;
mod table;
pub mod types;
pub mod v2_0;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("layouts are those of LP64");
