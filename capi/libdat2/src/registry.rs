//! The library's state: one static with the registry of this process. Imports nothing else of this crate.

use std::ffi::c_void;

use dat_abi::ret::from_v1_2;
use dat_abi::types::DatProviderInfo;
use dat_c_library::{Library, Version};
use dat_registry::registry::Registry;

pub(crate) static LIBRARY: Library = Library::new(Version {
    major: 2,
    soname: c"libdat2.so.2",
    other_soname: c"libdat.so.1",
    to_own: std::convert::identity,
    from_own: std::convert::identity,
    from_other: from_v1_2,
    add_ours,
});

/// Returns the registry of this process.
#[inline]
pub(crate) fn registry() -> &'static Registry {
    LIBRARY.registry()
}

/// Registers a provider of ours, which gets this function at its init. It does not count as foreign.
pub(crate) unsafe extern "C" fn add_ours(
    table: *const c_void,
    info: *const DatProviderInfo,
) -> u32 {
    // SAFETY: the provider passes the info that the registry gave it.
    unsafe { LIBRARY.add(table, info, None) }
}
