//! What libdat.so.1 and libdat2.so.2 have alike: the registry of the process, its C functions, dat_strerror, and the
//! first half of dat_ia_openv. Nothing is exported here: each library exports its own functions, which end here.

mod gate;
mod handle;
mod names;
mod registration;
mod shared_object;
mod strerror;

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use dat_abi::ret::DAT_SUCCESS;
use dat_core::error::{Error, Kind, Result};
use dat_registry::loader::AddProvider;
use dat_registry::registry::Registry;

pub use handle::table;
pub use names::Asked;

/// In which a library differs from the other.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// The major version whose tables it understands.
    pub major: u32,
    /// Its soname.
    pub soname: &'static CStr,
    /// The other library's.
    pub other: &'static CStr,
    /// A return code of 2.0's numbers in its own.
    pub numbers: fn(u32) -> u32,
    /// A return code of its own numbers in 2.0's.
    pub from_numbers: fn(u32) -> u32,
    /// A return code of the other library's numbers in 2.0's.
    pub from_other: fn(u32) -> u32,
    /// Registers a provider of ours: an exported function that ends in [`Library::add`].
    pub add_ours: AddProvider,
}

/// A C library: a static of the shared object. All methods may be called from any thread.
#[derive(Debug)]
pub struct Library {
    version: Version,
    registry: Registry,
    started: Once,
}

impl Library {
    /// As yet without configuration and providers.
    #[must_use]
    pub const fn new(version: Version) -> Self {
        Self {
            version,
            registry: Registry::new(),
            started: Once::new(),
        }
    }

    /// The registry, which on first use learns where this library lies.
    #[inline]
    pub fn registry(&'static self) -> &'static Registry {
        self.started.call_once(|| self.start());
        &self.registry
    }

    #[cold]
    fn start(&'static self) {
        dat_abi::log::install();
        if let Some(path) = shared_object::path_of(self) {
            self.registry.set_beside(path);
        }
        shared_object::make_global(self.version.soname);
        gate::watch();
    }

    /// The library's number of an error.
    pub fn code(&self, error: Error) -> u32 {
        (self.version.numbers)(error.code())
    }

    /// Runs a cold function's body; a panic is `DAT_INTERNAL_ERROR`, and no call in it is a cancellation point.
    pub fn guard(&self, body: impl FnOnce() -> Result<()>) -> u32 {
        let _deferred = dat_os::cancel::Deferred::new();
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(())) => DAT_SUCCESS,
            Ok(Err(error)) => self.code(error),
            Err(_) => self.code(Error::of(Kind::InternalError)),
        }
    }

    /// The same for one that takes locks of the whole process: fork(2) in another thread waits for its end.
    pub fn guard_from_fork(&self, body: impl FnOnce() -> Result<()>) -> u32 {
        self.guard(|| {
            let _inside = gate::enter()?;
            body()
        })
    }
}
