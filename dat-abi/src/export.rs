//! The functions that a provider's shared object exports: [`export_provider!`](crate::export_provider) and what is behind it.

use std::ffi::{CStr, c_char, c_void};

#[doc(hidden)]
pub use dat_core::ia_params::CORE_SETTINGS;
#[doc(hidden)]
pub use dat_core::reserve::Reserve;
use dat_core::transport::Transport;
pub use dat_os::fork::run_child_functions;

use crate::boundary::{V1_2, V2_0, Version, guard, guard_allocating};
pub use crate::handle::owns;
pub use crate::provider::{OpenRequest, OpenedIa, Provider};
use crate::ret::{DAT_SUCCESS, DatReturn};
use crate::thunk::{add_entry, remove_entry};
use crate::types::DatProviderInfo;
use crate::{table, v1_2, v2_0};

/// Type of `dat_registry_add_provider` and `dat_registry_remove_provider`: a table, and an info that names its version.
#[doc(hidden)]
pub type RegistryFn = unsafe extern "C" fn(*const c_void, *const DatProviderInfo) -> DatReturn;

/// Version of the interface between a registry of ours and a provider: `dat_rs_provider_init`, `dat_rs_interface` and `dat_rs_owns`.
/// The first three bytes are `DAT`, so that a registry that passes no version is found out. The C tables have versions of their own.
pub const INTERFACE: u32 = 0x4441_5401;

/// Returns the error of a registry that has another interface than this provider, in the words of a log line.
fn refusal(registry: u32) -> Option<String> {
    if registry == INTERFACE {
        return None;
    }
    let theirs = if registry >> 8 != INTERFACE >> 8 {
        "a registry from before there were versions".to_owned()
    } else {
        format!("a registry with version {}", registry & 0xff)
    };
    let advice = if registry >> 8 == INTERFACE >> 8 && registry > INTERFACE {
        "build the provider with the kit of the installed libraries"
    } else {
        "install newer libraries (libdat2.so.2, libdat.so.1), or build the program with a newer udapl"
    };
    Some(format!(
        "this provider is built for version {} of the provider interface and was loaded by {theirs}: {advice}",
        INTERFACE & 0xff
    ))
}

/// Runs `dat_rs_provider_init`: [`init`] for a registry that passes the version of its interface. Registers nothing if it is another one.
///
/// # Safety
/// That of [`init`].
#[doc(hidden)]
pub unsafe fn init_with<P: Provider>(
    info: *const DatProviderInfo,
    params: *const c_char,
    add: RegistryFn,
    registry: u32,
) -> DatReturn {
    crate::log::install();
    if let Some(why) = refusal(registry) {
        tracing::error!("{why}");
        return dat_core::error::Error::of(dat_core::error::Kind::ModelNotSupported).code();
    }
    // SAFETY: the caller's promise is the same.
    unsafe { init::<P>(info, params, Some(add)) }
}

/// Returns the registry's function `name` from the global scope of the process. It is looked up and not linked, so that a provider
/// also loads without a registry and logs that it is missing.
fn registry(name: &CStr) -> Option<RegistryFn> {
    // SAFETY: dlsym only looks up a symbol.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if at.is_null() {
        tracing::error!(
            ?name,
            "no library of this process exports this function of a registry: load providers through libdat2 or libdat"
        );
        return None;
    }
    // SAFETY: the registry exports that name with this signature (dat_registry.h).
    Some(unsafe { std::mem::transmute::<*mut libc::c_void, RegistryFn>(at) })
}

/// Runs `dat_provider_init` (`add` is `None`: the registry's function is looked up) and `dat_rs_provider_init`.
///
/// # Safety
/// `info` is NULL or valid; `params` is NULL or a C string; `add` registers a table.
///
/// Returns `DAT_INSUFFICIENT_RESOURCES` if memory was too short to register the provider. A later call may succeed.
#[doc(hidden)]
pub unsafe fn init<P: Provider>(
    info: *const DatProviderInfo,
    params: *const c_char,
    add: Option<RegistryFn>,
) -> DatReturn {
    crate::log::install();
    guard_allocating::<V2_0>(|| {
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
            // SAFETY: a table that is never freed, and the info that the registry passed.
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

/// Runs `dat_provider_fini`.
///
/// # Safety
/// `info` is NULL or valid.
#[doc(hidden)]
pub unsafe fn fini<P: Provider>(info: *const DatProviderInfo) {
    guard::<V2_0>(|| {
        // SAFETY: NULL or valid by the caller's promise.
        let given = unsafe { crate::boundary::structure(info, 1)? };
        if remove_entry(&given) {
            // The library may be unmapped next: core's threads must not run in it.
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

/// Returns the table to register for a major version; `None` for a version that has none.
fn provider_table<P: Provider>(major: u32) -> Option<*const c_void> {
    match major {
        V1_2::MAJOR => Some(std::ptr::from_ref(v1_2::tables::provider_table::<P>()).cast()),
        V2_0::MAJOR => Some(std::ptr::from_ref(v2_0::tables::provider_table::<P>()).cast()),
        _ => None,
    }
}

/// Returns the length of [`joined`].
#[doc(hidden)]
#[must_use]
pub const fn joined_length(texts: &[&str]) -> usize {
    let (mut length, mut at) = (0, 0);
    while at < texts.len() {
        length += texts[at].len();
        at += 1;
    }
    length
}

/// Returns the texts one after the other, as bytes of a variable.
#[doc(hidden)]
#[must_use]
pub const fn joined<const N: usize>(texts: &[&str]) -> [u8; N] {
    let (mut bytes, mut to, mut at) = ([0; N], 0, 0);
    while at < texts.len() {
        let text = texts[at].as_bytes();
        let mut from = 0;
        while from < text.len() {
            bytes[to] = text[from];
            to += 1;
            from += 1;
        }
        at += 1;
    }
    bytes
}

/// Makes a `cdylib` a DAT provider: it exports `dat_provider_init` and `dat_provider_fini` for a
/// [`Provider`](crate::export::Provider), which every [`Transport`](dat_core::transport::Transport) is. The library's allocator is
/// [`Reserve`](dat_core::reserve::Reserve), so that a process without memory gets an error and does not end.
///
/// With `settings: [TEXT, ...]` the library also exports the variable `dat_rs_settings`, which declares the settings of `ia_params`: lines
/// `KEY number LEAST MOST`, `KEY one-of WORD...` or `KEY text`, each with a line break. Behind them, `KEY only OTHER WORD...` says that KEY
/// is refused beside other values of OTHER. `KEY idle OTHER` says that KEY has no effect where OTHER is set. `KEY needed EXAMPLE OTHER...`
/// says that an entry needs KEY or one of OTHER. `dat check` and the typed tables of dat.conf's TOML form compare entries with it, without
/// running the library's code.
#[macro_export]
macro_rules! export_provider {
    ($provider:ty, settings: [$($settings:expr),+ $(,)?]) => {
        $crate::export_provider!($provider);

        const DAT_SETTINGS: &[&str] = &[$($settings,)+ $crate::export::CORE_SETTINGS];

        /// The settings of `ia_params`, which dat-registry reads from the file.
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals, reason = "a name for C and for readers of the file")]
        pub static dat_rs_settings: [u8; $crate::export::joined_length(DAT_SETTINGS)] =
            $crate::export::joined(DAT_SETTINGS);
    };
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

        /// Version of the interface that this library is built for; a registry of ours reads it before it calls the library.
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals, reason = "a name for C and for readers of the file")]
        pub static dat_rs_interface: u32 = $crate::export::INTERFACE;

        /// Called by a registry of ours instead of `dat_provider_init`. It passes the function that registers a table, so that none
        /// needs to be in the global scope, and the version of its interface. Returns `DAT_INSUFFICIENT_RESOURCES` if memory was too
        /// short, and `DAT_MODEL_NOT_SUPPORTED` for a registry with another interface.
        ///
        /// # Safety
        /// `info` is valid; `params` is NULL or a C string; `add` registers a table.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn dat_rs_provider_init(
            info: *const $crate::types::DatProviderInfo,
            params: *const ::std::ffi::c_char,
            add: $crate::export::RegistryFn,
            registry: u32,
        ) -> u32 {
            // SAFETY: the registry's promise is the same.
            unsafe { $crate::export::init_with::<$provider>(info, params, add, registry) }
        }

        /// Returns true if a number is a handle of this library, which a registry of ours may then dereference.
        #[unsafe(no_mangle)]
        pub extern "C" fn dat_rs_owns(handle: usize) -> bool {
            <$provider as $crate::export::Provider>::owns(handle)
        }

        /// Called by a registry of ours in a forked child. The C library's fork handlers do the same, but not those that the library
        /// registered after fork had begun.
        ///
        /// # Safety
        /// This process is a forked child, in which fork has not returned yet, or has just returned.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn dat_rs_forked() {
            // SAFETY: the registry's promise is the same.
            unsafe { $crate::export::run_child_functions() };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_with_another_interface_is_refused_with_the_side_that_is_older() {
        assert_eq!(refusal(INTERFACE), None);
        let newer = refusal(INTERFACE + 1).expect("a newer registry");
        assert!(
            newer.contains("version 2") && newer.contains("build the provider"),
            "{newer}"
        );
        let older = refusal(INTERFACE - 1).expect("an older registry");
        assert!(
            older.contains("version 0") && older.contains("install newer"),
            "{older}"
        );
        for garbage in [0, 1, u32::MAX] {
            let without = refusal(garbage).expect("no version was passed");
            assert!(without.contains("before there were versions"), "{without}");
        }
    }
}
