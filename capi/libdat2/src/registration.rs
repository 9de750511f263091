//! The registry's C functions (dat_registry_*).

use std::ffi::{c_char, c_void};

use dat_abi::types::{DatCount, DatProviderInfo};

use crate::registry::LIBRARY;
use crate::{ia, redirect};

export! {
    /// Registers a provider's table (dat_registry_add_provider).
    fn dat_registry_add_provider(table: *const c_void, info: *const DatProviderInfo) -> u32 {
        // SAFETY: the contract is the same.
        unsafe { LIBRARY.add(table, info, Some(redirect::foreign)) }
    }

    /// Takes a registration back (dat_registry_remove_provider).
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

    /// Whether two IAs stand in for each other (dat_registry_providers_related), by what the providers of those that are
    /// open say. They must not be closed meanwhile.
    fn dat_registry_providers_related(
        one: *const c_char,
        other: *const c_char,
        answer: *mut u32,
    ) -> u32 {
        // SAFETY: the contract is the same.
        unsafe { LIBRARY.related(one, other, answer, ia::says_related) }
    }
}
