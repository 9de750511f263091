//! The registry's C functions (dat_registry_*).

use std::ffi::{c_char, c_void};

use dat_abi::types::{DatCount, DatProviderInfo};

use crate::registry::LIBRARY;
use crate::{ia, redirect};

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

    /// Returns true if two IAs are related for high availability (dat_registry_providers_related), by the answers of the providers of
    /// open IAs. The IAs must not be closed during the call.
    fn dat_registry_providers_related(
        one: *const c_char,
        other: *const c_char,
        answer: *mut u32,
    ) -> u32 {
        // SAFETY: the contract is the same.
        unsafe { LIBRARY.related(one, other, answer, ia::query_related) }
    }
}
