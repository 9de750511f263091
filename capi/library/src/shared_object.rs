//! Requests to the dynamic loader about this shared object and the other version's library.

use std::ffi::{CStr, OsStr, c_long, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Returns the path from which the shared object was loaded that contains `part`.
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

/// Makes the symbols of this library global. Classic providers look for `dat_registry_add_provider` in the global scope, and some
/// MPIs load this library with `RTLD_LOCAL`. In a namespace of dlmopen(3) glibc crashes at `RTLD_GLOBAL`, so there they do not find it.
pub(crate) fn make_global(soname: &CStr) {
    if !is_in_base_namespace(soname) {
        return;
    }
    // SAFETY: RTLD_NOLOAD only changes the scope of a library that is mapped already.
    let done = unsafe {
        libc::dlopen(
            soname.as_ptr(),
            libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_GLOBAL,
        )
    };
    if done.is_null() {
        tracing::debug!(
            ?soname,
            "this library was loaded under another name; classic providers may not find the registry"
        );
    }
}

/// Returns whether the library `soname` is in the namespace of the program, not in one of dlmopen(3); true if that cannot be known.
fn is_in_base_namespace(soname: &CStr) -> bool {
    let mut namespace: c_long = libc::LM_ID_BASE;
    // SAFETY: RTLD_NOLOAD only finds a library that is mapped already, which dlclose leaves mapped; `namespace` has room for the answer.
    unsafe {
        let library = libc::dlopen(soname.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        if !library.is_null() {
            libc::dlinfo(
                library,
                libc::RTLD_DI_LMID,
                (&raw mut namespace).cast::<c_void>(),
            );
            libc::dlclose(library);
        }
    }
    namespace == libc::LM_ID_BASE
}

/// Returns the address of the function `name` in the library `soname`; NULL if the library is not loaded.
pub(crate) fn function(soname: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: RTLD_NOLOAD only finds a library that is mapped already; dlsym only looks up.
    unsafe {
        let library = libc::dlopen(soname.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        if library.is_null() {
            return std::ptr::null_mut();
        }
        libc::dlsym(library, name.as_ptr())
    }
}
