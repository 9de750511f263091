//! The registry's functions for classic providers in a program that has no libdat2.
//!
//! A classic provider (`libdaplofa.so.2`) calls `dat_registry_add_provider` and finds it in the global scope of the process. libdat2
//! is there; the functions of a statically linked Rust program are not, whatever a library crate does. So this module loads a
//! shared object of three functions (`shim.c`, compiled by `build.rs`), two of which call the program's registry. It comes from an anonymous
//! file in memory, so that a program needs no second file.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::sync::OnceLock;

use dat_abi::types::DatProviderInfo;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// The shared object.
const SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libdat-classic.so"));

/// Function that registers a table. A library of ours gets it at its init, so that it needs no global symbol.
pub type AddProvider = unsafe extern "C" fn(*const c_void, *const DatProviderInfo) -> u32;

/// The registry's functions that a classic provider calls. Both have one signature.
#[derive(Clone, Copy, Debug)]
pub struct RegistryFunctions {
    /// dat_registry_add_provider.
    pub add: AddProvider,
    /// dat_registry_remove_provider.
    pub remove: AddProvider,
}

/// The reason why classic providers cannot find the registry.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "classic providers cannot call this program's registry, because a shared object in memory cannot be loaded: {0}; a program \
     that is linked with libdat2 needs none"
)]
pub struct ClassicError(String);

/// Exports `functions` to classic providers, once per process: a later call does nothing. Does nothing either if the process has the
/// functions already, as one with libdat2 has.
///
/// # Errors
/// [`ClassicError`], if the object cannot be loaded.
pub(crate) fn export(functions: RegistryFunctions) -> Result<(), ClassicError> {
    static DONE: OnceLock<Result<(), ClassicError>> = OnceLock::new();
    DONE.get_or_init(|| {
        if is_exported() {
            return Ok(());
        }
        load(functions).map_err(|error| ClassicError(error.to_string()))
    })
    .clone()
}

/// Returns true if some library of the process exports a registry.
fn is_exported() -> bool {
    let name = c"dat_registry_add_provider";
    // SAFETY: dlsym only looks up a symbol.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
}

fn load(functions: RegistryFunctions) -> Result<(), Box<dyn std::error::Error>> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"libdat-classic.so".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: a new descriptor, which no other value owns.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(SHIM)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // SAFETY: the object has no constructors.
    let shim = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }?;
    for (name, function) in [
        (&b"dat_rs_add_provider\0"[..], functions.add),
        (&b"dat_rs_remove_provider\0"[..], functions.remove),
    ] {
        // SAFETY: the object has a pointer of this type under that name, and no other code uses it yet.
        unsafe { **shim.get::<*mut Option<AddProvider>>(name)? = Some(function) };
    }
    // The object stays for ever: a classic provider may call it when the process ends.
    std::mem::forget(shim);
    Ok(())
}

const _: () = assert!(size_of::<Option<AddProvider>>() == size_of::<*const c_void>());
