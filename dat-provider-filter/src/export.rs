//! The symbols of the shared object. A registry of ours initialises it by `dat_rs_provider_init`, others by `dat_provider_init`
//! (docs/provider-rules.md).

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use dat_abi::export::{CORE_SETTINGS, INTERFACE, RegistryFn, Reserve, joined, joined_length};
use dat_abi::ret::DAT_SUCCESS;
use dat_abi::types::DatProviderInfo;
use dat_core::error::{Error, Kind};

use crate::slots::REGISTERED;
use crate::{entry, inner, settings};

#[global_allocator]
static RESERVE: Reserve = Reserve;

const SETTINGS: &[&str] = &[settings::DECLARED, CORE_SETTINGS];

/// The settings of `ia_params`, which dat-registry reads from the file.
#[unsafe(no_mangle)]
#[allow(
    non_upper_case_globals,
    reason = "a name for C and for readers of the file"
)]
pub static dat_rs_settings: [u8; joined_length(SETTINGS)] = joined(SETTINGS);

/// Version of the interface with a registry of ours.
#[unsafe(no_mangle)]
#[allow(
    non_upper_case_globals,
    reason = "a name for C and for readers of the file"
)]
pub static dat_rs_interface: u32 = INTERFACE;

/// Tells this library from its file, without loading it: a filter serves the filters that it wraps itself.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a name for readers of the file")]
pub static dat_rs_filter: u32 = 1;

/// Registers the table for an entry.
///
/// # Safety
/// `info` is NULL or valid; `params` is NULL or a C string; `add` registers a table.
unsafe fn init(info: *const DatProviderInfo, params: *const c_char, add: RegistryFn) {
    // SAFETY: NULL or valid by the caller's promise.
    let Some(given) = (unsafe { info.as_ref() }) else {
        return;
    };
    if given.dapl_version_major != 2 {
        let major = given.dapl_version_major;
        tracing::error!(
            name = given.name(),
            major,
            "filters have tables of uDAPL 2.0 only: write u2.0 in dat.conf"
        );
        return;
    }
    let params = if params.is_null() {
        String::new()
    } else {
        // SAFETY: not NULL, so a C string by the caller's promise.
        unsafe { CStr::from_ptr(params) }
            .to_string_lossy()
            .into_owned()
    };
    if let Err(error) = entry::add(&given.name(), given.is_thread_safe != 0, &params) {
        tracing::error!(name = given.name(), %error, "the entry in dat.conf cannot be used");
        return;
    }
    // SAFETY: a table that is never freed, and the info that the registry passed.
    let code = unsafe { add((&raw const REGISTERED).cast(), info) };
    if code != DAT_SUCCESS {
        tracing::error!(
            name = given.name(),
            code = format_args!("{code:#x}"),
            "the registry refused this provider"
        );
    }
}

/// Returns a registry's function from the global scope of the process.
fn registry(name: &CStr) -> Option<RegistryFn> {
    // SAFETY: dlsym only looks up a symbol.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: NULL, or the function of a registry, which has this signature (dat_registry.h).
    unsafe { std::mem::transmute::<*mut c_void, Option<RegistryFn>>(at) }
}

/// Called by a registry that is none of ours, once for each entry that names this library.
///
/// # Safety
/// `info` is NULL or valid; `params` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_provider_init(info: *const DatProviderInfo, params: *const c_char) {
    dat_abi::log::install();
    let _ = catch_unwind(AssertUnwindSafe(|| {
        match registry(c"dat_registry_add_provider") {
            // SAFETY: the caller's promise.
            Some(add) => unsafe { init(info, params, add) },
            None => tracing::error!("no library of this process exports dat_registry_add_provider"),
        }
    }));
}

/// Called by a registry of ours, with the function that registers a table.
///
/// # Safety
/// `info` is NULL or valid; `params` is NULL or a C string; `add` registers a table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_rs_provider_init(
    info: *const DatProviderInfo,
    params: *const c_char,
    add: RegistryFn,
    interface: u32,
) -> u32 {
    dat_abi::log::install();
    if interface != INTERFACE {
        tracing::error!(
            "this filter and the registry that loads it are from different versions: install both from one"
        );
        return Error::of(Kind::ModelNotSupported).code();
    }
    // SAFETY: the caller's promise.
    match catch_unwind(AssertUnwindSafe(|| unsafe { init(info, params, add) })) {
        Ok(()) => DAT_SUCCESS,
        Err(_) => Error::of(Kind::InternalError).code(),
    }
}

/// Returns true if a number is a handle that a filter knows: one of a provider of ours that it wraps.
#[unsafe(no_mangle)]
pub extern "C" fn dat_rs_owns(handle: usize) -> bool {
    catch_unwind(|| inner::owns(handle)).unwrap_or(false)
}

/// Called by a registry that is none of ours, after the last IA of the entry was closed.
///
/// # Safety
/// `info` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_provider_fini(info: *const DatProviderInfo) {
    if let Some(remove) = registry(c"dat_registry_remove_provider") {
        // SAFETY: the arguments that registered this entry.
        unsafe { remove((&raw const REGISTERED).cast(), info) };
    }
}

/// Writes the reports of IAs that are still open when the process ends by exit(3).
extern "C" fn at_exit() {
    let _ = catch_unwind(|| {
        for entry in entry::all() {
            entry.filter.report();
        }
    });
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
