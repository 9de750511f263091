//! The registry's C functions (dat_registry_*).

use std::ffi::c_void;

use dat_abi::types::{DatCount, DatProviderInfo};

use crate::redirect;
use crate::registry::LIBRARY;

export! {
    /// Registers a provider's table (dat_registry_add_provider).
    fn dat_registry_add_provider(table: *const c_void, info: *const DatProviderInfo) -> u32 {
        // SAFETY: the contract is the same.
        unsafe { LIBRARY.add(table, info, Some(redirect::foreign_registered)) }
    }

    /// Removes a registration (dat_registry_remove_provider).
    fn dat_registry_remove_provider(table: *const c_void, info: *const DatProviderInfo) -> u32 {
        // SAFETY: the contract is the same.
        unsafe { LIBRARY.remove(table, info) }
    }

    /// Lists providers (dat_registry_list_providers).
    fn dat_registry_list_providers(
        room: DatCount,
        number: *mut DatCount,
        list: *const *mut DatProviderInfo,
    ) -> u32 {
        // SAFETY: the contract is the same.
        unsafe { LIBRARY.list(room, number, list) }
    }
}
