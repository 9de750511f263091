//! The smallest registry that a provider can register with.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use dat_abi::export::INTERFACE;
use dat_abi::types::DatProviderInfo;
use dat_abi::{v1_2, v2_0};

use crate::api::{Api, Table};

/// Registered tables by IA name and major version.
static REGISTERED: LazyLock<Mutex<HashMap<(String, u32), Table>>> = LazyLock::new(Mutex::default);

/// The function that a provider registers with. A program that loads classic providers exports it as
/// `dat_registry_add_provider`; our providers receive it as an argument.
///
/// # Safety
/// `info` is NULL or valid; `table` is NULL or one of the version in `info`, and lives as long as the provider is
/// loaded.
pub unsafe extern "C" fn add_provider(table: *const c_void, info: *const DatProviderInfo) -> u32 {
    // SAFETY: guaranteed by the caller.
    let Some(info) = (unsafe { info.as_ref() }) else {
        return 0;
    };
    // SAFETY: guaranteed by the caller; a provider is never unloaded.
    let table = unsafe {
        match info.dapl_version_major {
            1 => table
                .cast::<v1_2::table::DatProvider>()
                .as_ref()
                .map(Table::V1_2),
            2 => table
                .cast::<v2_0::table::DatProvider>()
                .as_ref()
                .map(Table::V2_0),
            _ => None,
        }
    };
    if let Some(table) = table {
        let key = (info.name(), info.dapl_version_major);
        let mut all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(key, table);
    }
    0
}

type Init = unsafe extern "C" fn(*const DatProviderInfo, *const c_char);
type InitWith = unsafe extern "C" fn(
    *const DatProviderInfo,
    *const c_char,
    unsafe extern "C" fn(*const c_void, *const DatProviderInfo) -> u32,
    u32,
) -> u32;

/// Loads a provider permanently, and lets it register `name` for a version.
///
/// # Errors
/// The loader's error, or that the provider registered nothing.
pub fn load(path: &Path, name: &str, params: &str, api: Api) -> Result<Table, String> {
    let why = |error: libloading::Error| {
        let source = std::error::Error::source(&error).map(ToString::to_string);
        source.unwrap_or_else(|| error.to_string())
    };
    let params = CString::new(params).map_err(|e| e.to_string())?;
    let (major, minor) = api.version();
    let info = DatProviderInfo::new(name, major, minor, true);
    // SAFETY: the caller that names a library trusts its constructors.
    let library = unsafe { libloading::Library::new(path) }.map_err(why)?;
    // SAFETY: the names have these types in every provider (dat_registry.h, docs/provider-rules.md); entry and C
    // string are valid, as the functions require.
    unsafe {
        if let Ok(init) = library.get::<InitWith>(b"dat_rs_provider_init") {
            init(&raw const info, params.as_ptr(), add_provider, INTERFACE);
        } else {
            let init = library.get::<Init>(b"dat_provider_init").map_err(why)?;
            init(&raw const info, params.as_ptr());
        }
    }
    // The code must stay loaded: it has threads, and the table points into it.
    std::mem::forget(library);
    let all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (name.to_owned(), major);
    all.get(&key)
        .copied()
        .ok_or_else(|| "dat_provider_init registered nothing; see its log".into())
}
