//! A DAT transport in C: `include/dat_transport.h` has a table of functions with the meaning of
//! [`Transport`](dat_core::transport::Transport)'s methods. The static library of this crate makes a provider of it.
//!
//! The author's shared object exports the functions of a provider by the macro `DAT_TRANSPORT_EXPORT`, and contains this library. So it is
//! loaded by our registry and by the classic one, like every provider, and needs no file of ours at run time.
//!
//! It imports `dat-core`, `dat-abi` and `dat-provider-parts`. Begin reading at the header; `table` has its structures, `transport` calls
//! the table with the requests of `post` and the contexts of `object`, `report` and `memory` are what C calls, `convert` checks what C
//! says. `examples/c-transport` is a transport.

mod attributes;
pub mod context;
pub mod convert;
pub mod memory;
pub mod object;
mod post;
pub mod report;
pub mod table;
mod transport;

use std::ffi::c_char;

use dat_abi::export;
use dat_abi::types::DatProviderInfo;
use dat_core::reserve::Reserve;

use table::{Code, Table};

/// The transport of the table.
#[derive(Debug)]
pub struct CTransport;

#[global_allocator]
static RESERVE: Reserve = Reserve;

/// `dat_transport_init`: what the shared object's `dat_provider_init` and `dat_rs_provider_init` call. `add` is `None` in the first.
///
/// # Safety
/// `from` is a table, `info` valid, `params` NULL or a C string; `add` registers a table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_transport_init(
    from: *const Table,
    info: *const DatProviderInfo,
    params: *const c_char,
    add: Option<export::RegistryFn>,
    registry: u32,
) -> Code {
    dat_abi::log::install();
    // SAFETY: the caller's promise is the same.
    unsafe {
        if let Err(error) = table::take(from) {
            return error.code();
        }
        match add {
            Some(add) => export::init_with::<CTransport>(info, params, add, registry),
            None => export::init::<CTransport>(info, params, None),
        }
    }
}

/// `dat_transport_fini`: what the shared object's `dat_provider_fini` calls.
///
/// # Safety
/// `info` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_transport_fini(info: *const DatProviderInfo) {
    // SAFETY: the caller's promise is the same.
    unsafe { export::fini::<CTransport>(info) }
}

/// `dat_transport_forked`: what the shared object's `dat_rs_forked` calls.
///
/// # Safety
/// This process is a forked child, in which fork has not returned yet, or has just returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_transport_forked() {
    // SAFETY: the caller's promise is the same.
    unsafe { export::run_child_functions() };
}

/// `dat_transport_owns`: what the shared object's `dat_rs_owns` calls.
#[unsafe(no_mangle)]
pub extern "C" fn dat_transport_owns(handle: usize) -> bool {
    export::owns::<CTransport>(handle)
}
