//! The library of this process, and the registry's C functions.

use std::ffi::{c_char, c_void};

use dat_abi::ret::from_v1_2;
use dat_abi::types::{DatCount, DatProviderInfo};
use dat_c_library::{Library, Version};
use dat_registry::registry::Registry;

use crate::{ia, redirect};

pub(crate) static LIBRARY: Library = Library::new(Version {
    major: 2,
    soname: c"libdat2.so.2",
    other: c"libdat.so.1",
    numbers: std::convert::identity,
    from_numbers: std::convert::identity,
    from_other: from_v1_2,
    add_ours,
    foreign: redirect::foreign,
});

/// The registry of this process.
#[inline]
pub(crate) fn registry() -> &'static Registry {
    LIBRARY.registry()
}

/// Given to providers of ours at their init: registers without making them foreign.
pub(crate) unsafe extern "C" fn add_ours(
    table: *const c_void,
    info: *const DatProviderInfo,
) -> u32 {
    // SAFETY: the provider passes on what the registry gave it.
    unsafe { LIBRARY.add(table, info, false) }
}

export! {
    /// Registers a provider's table (dat_registry_add_provider).
    fn dat_registry_add_provider(table: *const c_void, info: *const DatProviderInfo) -> u32 {
        // SAFETY: the contract is the same.
        unsafe { LIBRARY.add(table, info, true) }
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
