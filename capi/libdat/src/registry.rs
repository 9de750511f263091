//! The library's state: one static with the registry of this process. Imports nothing else of this crate.

use std::ffi::c_void;

use dat_abi::ret::{from_v1_2, to_v1_2};
use dat_abi::types::DatProviderInfo;
use dat_c_library::{Library, Version};
use dat_registry::registry::Registry;

pub(crate) static LIBRARY: Library = Library::new(Version {
    major: 1,
    soname: c"libdat.so.1",
    other_soname: c"libdat2.so.2",
    to_own: to_v1_2,
    from_own: from_v1_2,
    from_other: std::convert::identity,
    add_ours,
});

/// Returns the registry of this process.
#[inline]
pub(crate) fn registry() -> &'static Registry {
    LIBRARY.registry()
}

/// Registers a provider of ours, which gets this function at its init. It does not count as foreign.
unsafe extern "C" fn add_ours(table: *const c_void, info: *const DatProviderInfo) -> u32 {
    // SAFETY: the provider passes the info that the registry gave it.
    unsafe { LIBRARY.add(table, info, None) }
}
