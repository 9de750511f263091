//! The shared object that we are part of, as the dynamic loader has it, and the other version's beside it.

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Where the shared object that holds `part` was loaded from.
pub(crate) fn path_of<T>(part: &'static T) -> Option<PathBuf> {
    // SAFETY: all-zero is a valid Dl_info, and dladdr only fills it.
    let info = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(std::ptr::from_ref(part).cast(), &raw mut info) == 0
            || info.dli_fname.is_null()
        {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    Some(OsStr::from_bytes(info.to_bytes()).into())
}

/// Classic providers find `dat_registry_add_provider` in the global scope. A program that loaded this library with
/// `RTLD_LOCAL` (some MPIs do) gets it made global here; for all others nothing changes.
pub(crate) fn make_global(soname: &CStr) {
    // SAFETY: RTLD_NOLOAD only changes the scope of what is mapped already.
    let done = unsafe {
        libc::dlopen(
            soname.as_ptr(),
            libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_GLOBAL,
        )
    };
    if done.is_null() {
        tracing::debug!(
            ?soname,
            "loaded under another name; classic providers may not find the registry"
        );
    }
}

/// The function `name` of the library `soname` of this process; NULL if that is not loaded.
pub(crate) fn function(soname: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: RTLD_NOLOAD only looks for what is mapped already; dlsym only looks up.
    unsafe {
        let library = libc::dlopen(soname.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        if library.is_null() {
            return std::ptr::null_mut();
        }
        libc::dlsym(library, name.as_ptr())
    }
}
