//! The registry's C functions.

use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Once;

use dat_abi::ret::{DAT_SUCCESS, from_v1_2, unpack_v2_0};
use dat_abi::types::{DatCount, DatProviderInfo};
use dat_core::error::{Error, Kind, Result};
use dat_registry::loaded::{RegisterError, Registered, Table};
use dat_registry::registry::Registry;

use crate::redirect;

static REGISTRY: Registry = Registry::new();
static STARTED: Once = Once::new();

/// The registry of this process, which on first use learns where this library lies.
pub(crate) fn registry() -> &'static Registry {
    STARTED.call_once(|| {
        dat_abi::log::install();
        if let Some(path) = own_path() {
            REGISTRY.set_beside(path);
        }
        make_global();
    });
    &REGISTRY
}

/// Where this shared object was loaded from.
fn own_path() -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: all-zero is a valid Dl_info, and dladdr only fills it.
    let info = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(std::ptr::from_ref(&STARTED).cast(), &raw mut info) == 0
            || info.dli_fname.is_null()
        {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    Some(std::ffi::OsStr::from_bytes(info.to_bytes()).into())
}

/// Classic providers find `dat_registry_add_provider` in the global scope. A program that loaded this library with
/// `RTLD_LOCAL` (some MPIs do) gets it made global here; for all others nothing changes.
fn make_global() {
    // SAFETY: RTLD_NOLOAD only changes the scope of what is mapped already.
    let done = unsafe {
        libc::dlopen(
            c"libdat2.so.2".as_ptr(),
            libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_GLOBAL,
        )
    };
    if done.is_null() {
        tracing::debug!(
            "libdat2.so.2 is loaded under another name; classic providers may not find the registry"
        );
    }
}

/// Runs a cold function's body; a panic is `DAT_INTERNAL_ERROR`.
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => DAT_SUCCESS,
        Ok(Err(error)) => error.code(),
        Err(_) => Error::of(Kind::InternalError).code(),
    }
}

/// A function of the registry: table and info to a code.
type RegistryFn = unsafe extern "C" fn(*const c_void, *const DatProviderInfo) -> u32;

/// The function `name` of the 1.2 library of this process, if `info` is of that version and the library loaded. With
/// both libraries in the global scope a 1.2 provider's call may arrive here.
///
/// # Safety
/// `info` is NULL or valid.
unsafe fn of_libdat1(name: &CStr, info: *const DatProviderInfo) -> Option<RegistryFn> {
    // SAFETY: NULL or valid by the caller's promise.
    if unsafe { info.as_ref() }?.dapl_version_major != 1 {
        return None;
    }
    // SAFETY: RTLD_NOLOAD only looks for what is mapped already; dlsym only looks up.
    let at = unsafe {
        let library = libc::dlopen(c"libdat.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        libc::dlsym(library, name.as_ptr())
    };
    // SAFETY: every libdat exports that name with this signature (dat_registry.h).
    (!at.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, RegistryFn>(at) })
}

/// The registration that a C caller describes.
///
/// # Safety
/// `info` is NULL or valid.
unsafe fn registered(table: *const c_void, info: *const DatProviderInfo) -> Result<Registered> {
    if table.is_null() {
        return Err(Error::arg(1));
    }
    if info.is_null() {
        return Err(Error::arg(2));
    }
    // SAFETY: not NULL, so valid by the caller's promise.
    let info = unsafe { &*info };
    Ok(Registered {
        name: info.name(),
        major: info.dapl_version_major,
        minor: info.dapl_version_minor,
        thread_safe: info.is_thread_safe != 0,
        table: Table(table as usize),
        open: 0,
    })
}

fn refused(error: RegisterError) -> Error {
    Error::of(match error {
        RegisterError::Already => Kind::ProviderAlreadyRegistered,
        RegisterError::NotFound => Kind::ProviderNotFound,
        RegisterError::InUse => Kind::ProviderInUse,
    })
}

/// Given to providers of ours at their init: registers without making them foreign.
pub(crate) unsafe extern "C" fn add_ours(
    table: *const c_void,
    info: *const DatProviderInfo,
) -> u32 {
    guard(|| {
        // SAFETY: the provider passes on what the registry gave it.
        let new = unsafe { registered(table, info)? };
        registry().loaded.add(new).map_err(refused)
    })
}

export! {
    /// Registers a provider's table (dat_registry_add_provider).
    fn dat_registry_add_provider(table: *const c_void, info: *const DatProviderInfo) -> u32 {
        guard(|| {
            // SAFETY: the contract of the function.
            if let Some(theirs) = unsafe { of_libdat1(c"dat_registry_add_provider", info) } {
                // SAFETY: as above.
                return unpack_v2_0(from_v1_2(unsafe { theirs(table, info) }));
            }
            // SAFETY: the contract of the function.
            let new = unsafe { registered(table, info)? };
            registry().loaded.add(new).map_err(refused)?;
            redirect::foreign();
            Ok(())
        })
    }

    /// Takes a registration back (dat_registry_remove_provider).
    fn dat_registry_remove_provider(table: *const c_void, info: *const DatProviderInfo) -> u32 {
        guard(|| {
            // SAFETY: the contract of the function.
            if let Some(theirs) = unsafe { of_libdat1(c"dat_registry_remove_provider", info) } {
                // SAFETY: as above.
                return unpack_v2_0(from_v1_2(unsafe { theirs(table, info) }));
            }
            // SAFETY: the contract of the function.
            let old = unsafe { registered(table, info)? };
            registry().loaded.remove(&old).map_err(refused)
        })
    }

    /// Lists providers (dat_registry_list_providers): `number` is always set to how many there are; an array too small
    /// for them is filled as far as it goes and refused as argument 1.
    fn dat_registry_list_providers(
        room: DatCount,
        number: *mut DatCount,
        list: *const *mut DatProviderInfo,
    ) -> u32 {
        guard(|| {
            if number.is_null() {
                return Err(Error::arg(2));
            }
            let all = registry().list(2);
            // SAFETY: not NULL, so valid by the contract of the function.
            unsafe { number.write(DatCount::try_from(all.len()).unwrap_or(DatCount::MAX)) };
            let Ok(room) = usize::try_from(room) else { return Err(Error::arg(1)) };
            if room > 0 && list.is_null() {
                return Err(Error::arg(3));
            }
            for (at, (name, major, minor, thread_safe)) in all.iter().take(room).enumerate() {
                // SAFETY: `list` has `room` pointers, each NULL or valid, by the contract of the function.
                unsafe {
                    let to = *list.add(at);
                    if to.is_null() {
                        return Err(Error::arg(3));
                    }
                    to.write(DatProviderInfo::new(name, *major, *minor, *thread_safe));
                }
            }
            if all.len() > room { Err(Error::arg(1)) } else { Ok(()) }
        })
    }
}
