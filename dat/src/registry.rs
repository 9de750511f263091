//! The registry of this program: its libraries and the function tables that they register.

use std::sync::Once;

use dat_abi::ret::DAT_SUCCESS;
use dat_abi::types::DatProviderInfo;
use dat_core::error::{Error as Code, Kind};
use dat_registry::classic::RegistryFunctions;
use dat_registry::registrations::{RegisterError, Registered};
use dat_registry::registry::Registry;

use crate::error::Result;

static REGISTRY: Registry = Registry::new();

/// Returns the registry. The first call sets the path of the program, unless it gained rights, so that a prefix works in place.
pub(crate) fn registry() -> &'static Registry {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        REGISTRY.set_own_path_to_program();
        REGISTRY.serve_classic(RegistryFunctions {
            add: add_provider,
            remove: remove_provider,
        });
    });
    &REGISTRY
}

/// Returns the registration that a provider describes; `None` if it passes NULL.
///
/// # Safety
/// `info` is NULL or valid.
unsafe fn registered(
    table: *const std::ffi::c_void,
    info: *const DatProviderInfo,
) -> Option<Registered> {
    if table.is_null() || info.is_null() {
        return None;
    }
    // SAFETY: not NULL, so valid by the caller's promise.
    let info = unsafe { info.read_unaligned() };
    Some(Registered::new(table, &info))
}

/// Returns the code that a provider gets for what the registry did.
fn code_of(done: Option<Result<(), RegisterError>>) -> u32 {
    let kind = match done {
        Some(Ok(())) => return DAT_SUCCESS,
        Some(Err(RegisterError::Already)) => Kind::ProviderAlreadyRegistered,
        Some(Err(RegisterError::NotFound)) => Kind::ProviderNotFound,
        Some(Err(RegisterError::InUse)) => Kind::ProviderInUse,
        None => Kind::InvalidParameter,
    };
    Code::of(kind).code()
}

/// Registers a provider (dat_registry_add_provider); called by it during its init.
pub(crate) unsafe extern "C" fn add_provider(
    table: *const std::ffi::c_void,
    info: *const DatProviderInfo,
) -> u32 {
    // SAFETY: the provider passes the info that the registry gave it.
    let new = unsafe { registered(table, info) };
    code_of(new.map(|new| registry().registrations.add(new)))
}

/// Removes a registration (dat_registry_remove_provider); called by a classic provider when it is unloaded.
unsafe extern "C" fn remove_provider(
    table: *const std::ffi::c_void,
    info: *const DatProviderInfo,
) -> u32 {
    // SAFETY: the provider passes the info that the registry gave it.
    let old = unsafe { registered(table, info) };
    code_of(old.map(|old| registry().registrations.remove(&old)))
}
