//! Code that libdat.so.1 and libdat2.so.2 share: the registry of the process, its C functions, dat_strerror, and the first half of
//! dat_ia_openv. Each library exports its own C functions, which call the methods of its static [`Library`].
//!
//! Begin with [`Library`] and [`Version`], the differences between the two. `registration.rs` has dat_registry_*, `names.rs` finds
//! the provider for dat_ia_openv, `strerror.rs` has dat_strerror. `gate.rs` keeps fork(2) apart from calls; `shared_object.rs` asks
//! the dynamic loader where this library lies.
//!
//! The crate imports dat-registry, dat-abi (C types, return codes), dat-core (errors) and dat-os. Unsafe code reads what C passes.

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

pub use gate::register as register_fork_handlers;
pub use handle::table;
pub use names::Requested;

/// Has the dynamic loader register the fork handlers. A fork that begins before they are registered does not wait for calls.
#[macro_export]
macro_rules! at_load {
    () => {
        #[used]
        #[unsafe(link_section = ".init_array")]
        static AT_LOAD: extern "C" fn() = {
            extern "C" fn at_load() {
                $crate::register_fork_handlers();
            }
            at_load
        };
    };
}

/// The differences between the two libraries.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// Major version of the function tables that the library uses.
    pub major: u32,
    /// Soname of the library.
    pub soname: &'static CStr,
    /// Soname of the other version's library.
    pub other_soname: &'static CStr,
    /// Converts a return code from 2.0's numbers to this library's.
    pub to_own: fn(u32) -> u32,
    /// Converts a return code from this library's numbers to 2.0's.
    pub from_own: fn(u32) -> u32,
    /// Converts a return code from the other library's numbers to 2.0's.
    pub from_other: fn(u32) -> u32,
    /// Registers a provider of ours: calls [`Library::add`] of this library.
    pub add_ours: AddProvider,
}

/// The state of a C library: a static of the shared object. All methods may be called from any thread.
#[derive(Debug)]
pub struct Library {
    version: Version,
    registry: Registry,
    started: Once,
}

impl Library {
    /// Returns the state at the start, without configuration and providers.
    #[must_use]
    pub const fn new(version: Version) -> Self {
        Self {
            version,
            registry: Registry::new(),
            started: Once::new(),
        }
    }

    /// Returns the registry. The first call sets the path of this library.
    #[inline]
    pub fn registry(&'static self) -> &'static Registry {
        if !self.started.is_completed() {
            self.start();
        }
        &self.registry
    }

    #[cold]
    fn start(&'static self) {
        // A child that is forked meanwhile would wait for the end of this without end.
        let _entered = gate::enter();
        self.started.call_once(|| {
            dat_abi::log::install();
            if let Some(path) = shared_object::path_of(self) {
                self.registry.set_own_path(path);
            }
            shared_object::make_global(self.version.soname);
        });
    }

    /// Returns an error as a return code of this library.
    pub fn code(&self, error: Error) -> u32 {
        (self.version.to_own)(error.code())
    }

    /// Runs the body of a function without a fast path. A panic becomes `DAT_INTERNAL_ERROR`; no call in it is a cancellation point.
    pub fn guard(&self, body: impl FnOnce() -> Result<()>) -> u32 {
        let _deferred = dat_os::cancel::Deferred::new();
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(())) => DAT_SUCCESS,
            Ok(Err(error)) => self.code(error),
            Err(_) => self.code(Error::of(Kind::InternalError)),
        }
    }

    /// Runs the body of a function that takes locks of the whole process: like [`Library::guard`], and fork(2) in another thread
    /// waits for its end.
    pub fn guard_from_fork(&self, body: impl FnOnce() -> Result<()>) -> u32 {
        self.guard(|| {
            let _entered = gate::enter()?;
            body()
        })
    }
}
