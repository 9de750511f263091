//! Loads a provider as programs do, by the loader of dat-registry, and finds the table that it registers.

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use dat_abi::types::DatProviderInfo;
use dat_abi::{v1_2, v2_0};
use dat_registry::classic::RegistryFunctions;
use dat_registry::conf::{Api as EntryApi, Entry, Origin, Places, ProviderVersion};
use dat_registry::loader::Loader;

use crate::api::{Api, Table};

/// Registered tables by IA name and major version.
static REGISTERED: LazyLock<Mutex<HashMap<(String, u32), Table>>> = LazyLock::new(Mutex::default);

/// The function that a provider registers with.
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

/// The function by which a provider removes its table.
unsafe extern "C" fn remove_provider(_table: *const c_void, _info: *const DatProviderInfo) -> u32 {
    0
}

/// Loads a provider permanently, and lets it register `name` for a version.
///
/// # Errors
/// The loader's error, or that the provider registered nothing.
pub fn load(path: &Path, name: &str, params: &str, api: Api) -> Result<Table, String> {
    let (major, minor) = api.version();
    let entry = Entry {
        name: name.to_owned(),
        api: EntryApi {
            kernel: false,
            major,
            minor,
        },
        thread_safe: true,
        default: true,
        library: path.display().to_string(),
        provider_version: ProviderVersion {
            vendor: "conformance".into(),
            major: 1,
            minor: 0,
        },
        ia_params: params.to_owned(),
        platform_params: String::new(),
        origin: Origin {
            path: "dat conform".into(),
            line: 0,
        },
        places: Places::default(),
    };
    // A loader of its own for each load: one loader initialises a library once for a name. It is never dropped, because the code
    // must stay mapped: it has threads, and the table points into it.
    let loader: &'static Loader = Box::leak(Box::default());
    loader.serve_classic(RegistryFunctions {
        add: add_provider,
        remove: remove_provider,
    });
    loader.load(&entry, add_provider, &[]).map_err(|error| {
        // No file and no line is at fault.
        let text = error.to_string();
        let place = format!("{}: ", entry.origin);
        text.strip_prefix(&place).unwrap_or(&text).to_owned()
    })?;
    let all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    all.get(&(name.to_owned(), major)).copied().ok_or_else(|| {
        format!(
            "{} registered no IA {name:?} of uDAPL {api}; see its log",
            path.display()
        )
    })
}
