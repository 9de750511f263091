//! The smallest registry that a provider can register with.

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use dat_abi::types::DatProviderInfo;
use dat_abi::v2_0::table::DatProvider;

static REGISTERED: OnceLock<&'static DatProvider> = OnceLock::new();

/// Called by the provider from its init.
///
/// # Safety
/// `table` is NULL or lives as long as the provider is loaded.
#[unsafe(no_mangle)]
unsafe extern "C" fn dat_registry_add_provider(
    table: *const DatProvider,
    _info: *const DatProviderInfo,
) -> u32 {
    // SAFETY: the caller's promise; we never unload a provider.
    if let Some(table) = unsafe { table.as_ref() } {
        let _ = REGISTERED.set(table);
    }
    0
}

/// Called by the provider from its fini.
#[unsafe(no_mangle)]
extern "C" fn dat_registry_remove_provider(
    _table: *const DatProvider,
    _info: *const DatProviderInfo,
) -> u32 {
    0
}

type Init = unsafe extern "C" fn(*const DatProviderInfo, *const c_char);

/// Loads a provider for ever, and has it register `name`.
pub(crate) fn load(path: &str, name: &str, params: &str) -> Result<&'static DatProvider, String> {
    let why = |error: libloading::Error| {
        let source = std::error::Error::source(&error).map(ToString::to_string);
        source.unwrap_or_else(|| error.to_string())
    };
    let params = CString::new(params).map_err(|e| e.to_string())?;
    let info = DatProviderInfo::new(name, 2, 0, true);
    // SAFETY: whoever names a library trusts its constructors.
    let library = unsafe { libloading::Library::new(path) }.map_err(why)?;
    {
        // SAFETY: the name has this type in every provider (dat_registry.h).
        let init = unsafe { library.get::<Init>(b"dat_provider_init") }.map_err(why)?;
        // SAFETY: a valid entry and C string, as the function wants them.
        unsafe { init(&raw const info, params.as_ptr()) };
    }
    // Its code must stay: it has threads and a table that we keep.
    std::mem::forget(library);
    REGISTERED
        .get()
        .copied()
        .ok_or_else(|| "dat_provider_init registered nothing; see its log".into())
}
