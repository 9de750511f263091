//! A library of rdma-core that is loaded into the process and stays there.

use std::ffi::CStr;
use std::ptr::NonNull;

use libloading::os::unix::{Library, RTLD_NOW};

/// The reason why verbs cannot be used on this machine.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The dynamic linker does not load a library.
    #[error(
        "cannot load {library} ({reason}); install {debian} (Debian, Ubuntu), {fedora} (Fedora, RHEL) or rdma-core (Arch, SUSE)"
    )]
    Missing {
        /// The library's file name.
        library: &'static str,
        /// The text of dlerror(3).
        reason: String,
        /// Debian's packages.
        debian: &'static str,
        /// Fedora's packages.
        fedora: &'static str,
    },
    /// A library lacks a function.
    #[error(
        "{library} has no function {function} of version {version}: it is older than rdma-core 28; update it"
    )]
    Outdated {
        /// The library's file name.
        library: &'static str,
        /// Name of the function.
        function: String,
        /// Its symbol version.
        version: String,
    },
}

/// A loaded library.
pub(super) struct Loaded {
    library: &'static str,
    handle: *mut libc::c_void,
}

impl Loaded {
    /// Loads `library` for the rest of the process's life.
    pub(super) fn open(
        library: &'static str,
        debian: &'static str,
        fedora: &'static str,
    ) -> Result<Self, LoadError> {
        // SAFETY: the initialisers of both libraries need nothing of the caller.
        let loaded = unsafe { Library::open(Some(library), RTLD_NOW) };
        match loaded {
            Ok(loaded) => Ok(Self {
                library,
                handle: loaded.into_raw(),
            }),
            Err(error) => Err(LoadError::Missing {
                library,
                reason: reason(&error),
                debian,
                fedora,
            }),
        }
    }

    /// Returns the function called `name` of the symbol version `version`. libibverbs has most functions twice, for
    /// programs that were linked before its structures changed.
    ///
    /// # Safety
    /// `F` is the type of pointers to that function.
    pub(super) unsafe fn function<F: Copy>(
        &self,
        name: &CStr,
        version: &CStr,
    ) -> Result<F, LoadError> {
        const { assert!(size_of::<F>() == size_of::<*mut libc::c_void>()) };
        // SAFETY: the handle is open, both names are NUL-terminated.
        let found = unsafe { libc::dlvsym(self.handle, name.as_ptr(), version.as_ptr()) };
        let found = NonNull::new(found).ok_or_else(|| LoadError::Outdated {
            library: self.library,
            function: name.to_string_lossy().into_owned(),
            version: version.to_string_lossy().into_owned(),
        })?;
        // SAFETY: the caller guarantees the type; a function pointer has the size of an object pointer.
        Ok(unsafe { std::mem::transmute_copy(&found) })
    }
}

/// Returns the text of dlerror(3), which libloading keeps as the source of its error.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_says_what_to_install() {
        let missing = Loaded::open("libno-such-verbs.so.1", "libibverbs1", "libibverbs");
        let text = missing.err().map(|e| e.to_string()).unwrap_or_default();
        for part in [
            "libno-such-verbs.so.1",
            "No such file",
            "install libibverbs1 (Debian",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_function_has_the_version_that_was_asked_for() {
        let libc = Loaded::open("libc.so.6", "", "").expect("the C library");
        let found = |version| {
            // SAFETY: never called, so any pointer type does.
            unsafe { libc.function::<*const libc::c_void>(c"dlvsym", version) }
        };
        let text = found(c"GLIBC_0.0").unwrap_err().to_string();
        assert!(text.contains("dlvsym of version GLIBC_0.0"), "{text}");
    }
}
