//! The functions that a provider's shared object exports: [`export_provider!`](crate::export_provider) and what is behind it.

use std::ffi::{CStr, c_char, c_void};

#[doc(hidden)]
pub use dat_core::reserve::Reserve;
use dat_core::transport::Transport;

use crate::boundary::{V1_2, V2_0, Version, guard, making};
pub use crate::handle::owns;
pub use crate::provider::{OpenRequest, OpenedIa, Provider};
use crate::ret::{DAT_SUCCESS, DatReturn};
use crate::thunk::{add_entry, remove_entry};
use crate::types::DatProviderInfo;
use crate::{table, v1_2, v2_0};

/// `dat_registry_add_provider` and `dat_registry_remove_provider`, with a table of the version that the info names.
#[doc(hidden)]
pub type RegistryFn = unsafe extern "C" fn(*const c_void, *const DatProviderInfo) -> DatReturn;

/// The registry that loaded this shared object: whoever exports `name` to the whole process. Looked up and not
/// linked, so that a provider loads (and says what is missing) also where there is none.
fn registry(name: &CStr) -> Option<RegistryFn> {
    // SAFETY: dlsym only looks up.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if at.is_null() {
        tracing::error!(
            ?name,
            "no registry in this process exports it: load providers through libdat2 or libdat"
        );
        return None;
    }
    // SAFETY: the registry exports that name with this signature (dat_registry.h).
    Some(unsafe { std::mem::transmute::<*mut libc::c_void, RegistryFn>(at) })
}

/// Body of `dat_provider_init` (`add` `None`: the registry is looked for) and of `dat_rs_provider_init`.
///
/// # Safety
/// `info` is NULL or valid; `params` is NULL or a C string; `add` registers a table.
///
/// Returns `DAT_INSUFFICIENT_RESOURCES` if it registered nothing for want of memory: it may be called again when there is more.
#[doc(hidden)]
pub unsafe fn init<P: Provider>(
    info: *const DatProviderInfo,
    params: *const c_char,
    add: Option<RegistryFn>,
) -> DatReturn {
    crate::log::install();
    making::<V2_0>(|| {
        // SAFETY: NULL or valid by the caller's promise.
        let given = unsafe { crate::boundary::structure(info, 1)? };
        let text = if params.is_null() {
            String::new()
        } else {
            // SAFETY: not NULL, so a C string by the caller's promise.
            unsafe { CStr::from_ptr(params) }
                .to_string_lossy()
                .into_owned()
        };
        table::reserved(P::Transport::arenas().reserve())?;
        let Some(table) = provider_table::<P>(given.dapl_version_major) else {
            tracing::error!(
                name = given.name(),
                major = given.dapl_version_major,
                "this provider has tables of uDAPL 1.2 and 2.0 only"
            );
            return Ok(());
        };
        add_entry(&given, text);
        if let Some(add) = add.or_else(|| registry(c"dat_registry_add_provider")) {
            // SAFETY: a table that lives for ever and the info that the registry gave us.
            let code = unsafe { add(table, info) };
            if code != DAT_SUCCESS {
                tracing::error!(
                    name = given.name(),
                    code = format_args!("{code:#x}"),
                    "the registry refused this provider"
                );
            }
        }
        Ok(())
    })
}

/// Body of `dat_provider_fini`.
///
/// # Safety
/// `info` is NULL or valid.
#[doc(hidden)]
pub unsafe fn fini<P: Provider>(info: *const DatProviderInfo) {
    guard::<V2_0>(|| {
        // SAFETY: NULL or valid by the caller's promise.
        let given = unsafe { crate::boundary::structure(info, 1)? };
        if remove_entry(&given) {
            // The library may be unmapped next: no thread of core may be in it.
            dat_core::timer::shut_down();
        }
        if let (Some(table), Some(remove)) = (
            provider_table::<P>(given.dapl_version_major),
            registry(c"dat_registry_remove_provider"),
        ) {
            // SAFETY: the arguments that registered this entry.
            unsafe { remove(table, info) };
        }
        Ok(())
    });
}

/// The table to register for a major version; `None` for one that we do not speak.
fn provider_table<P: Provider>(major: u32) -> Option<*const c_void> {
    match major {
        V1_2::MAJOR => Some(std::ptr::from_ref(v1_2::tables::provider_table::<P>()).cast()),
        V2_0::MAJOR => Some(std::ptr::from_ref(v2_0::tables::provider_table::<P>()).cast()),
        _ => None,
    }
}

/// Makes a `cdylib` a DAT provider: exports `dat_provider_init` and `dat_provider_fini` for a
/// [`Provider`](crate::export::Provider), which every [`Transport`](dat_core::transport::Transport) is. The library's allocator is
/// [`Reserve`](dat_core::reserve::Reserve), so that a process without memory gets an error and does not end.
#[macro_export]
macro_rules! export_provider {
    ($provider:ty) => {
        #[global_allocator]
        static DAT_RESERVE: $crate::export::Reserve = $crate::export::Reserve;

        /// Called by the registry once for each dat.conf entry that names this library.
        ///
        /// # Safety
        /// `info` is valid; `params` is NULL or a C string.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn dat_provider_init(
            info: *const $crate::types::DatProviderInfo,
            params: *const ::std::ffi::c_char,
        ) {
            // SAFETY: the registry's promise is the same.
            unsafe { $crate::export::init::<$provider>(info, params, None) };
        }

        /// The same for a registry of ours, which brings the function to register with: nothing needs to be
        /// global in the process then. Returns `DAT_INSUFFICIENT_RESOURCES` if nothing was registered for want of memory.
        ///
        /// # Safety
        /// `info` is valid; `params` is NULL or a C string; `add` registers a table.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn dat_rs_provider_init(
            info: *const $crate::types::DatProviderInfo,
            params: *const ::std::ffi::c_char,
            add: $crate::export::RegistryFn,
        ) -> u32 {
            // SAFETY: the registry's promise is the same.
            unsafe {
                $crate::export::init::<$provider>(info, params, ::std::option::Option::Some(add))
            }
        }

        /// Whether a number is a handle of this library, so that a registry of ours may follow it.
        #[unsafe(no_mangle)]
        pub extern "C" fn dat_rs_owns(handle: usize) -> bool {
            <$provider as $crate::export::Provider>::owns(handle)
        }

        /// Called by the registry before it unloads an entry.
        ///
        /// # Safety
        /// `info` is valid.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn dat_provider_fini(info: *const $crate::types::DatProviderInfo) {
            // SAFETY: the registry's promise is the same.
            unsafe { $crate::export::fini::<$provider>(info) }
        }
    };
}
