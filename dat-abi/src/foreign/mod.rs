//! Safe calls into a 2.0 function table, whoever made it: our providers or classic C ones.
//!
//! A classic provider follows whatever handle it is given, so here a handle cannot outlive its object: each value
//! owns its object, and keeps alive what that stands on (an [`Ep`] its PZ and EVDs, everything the [`Ia`], the IA its
//! provider's library). Dropping the last clone frees the object. Clones and threads may share everything.

mod connection;
mod event;
mod ia;
mod memory;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use dat_core::error::{Error, Kind, Result};

pub use connection::{Cr, Ep, EpParts, Psp, Remote, Request, Rsp};
pub use event::{Cno, Completion, ConnectionEvent, EpId, Evd, Event};
pub use ia::{Attributes, Ia};
pub use memory::{Lmr, Pz, Segment, Srq};

use crate::ret::unpack_v2_0;
use crate::types::DatHandle;
use crate::v2_0::table::DatProvider;

/// Frees an object through its table; the code of the function.
type Free = fn(&DatProvider, DatHandle) -> u32;

/// An object of a provider, freed when this is dropped. Made by `owned!` and [`Ia::adopt`] only: `handle` is a live
/// object of a 2.0 provider that nobody else frees, on nothing but `_under`.
struct Object {
    handle: DatHandle,
    free: Free,
    /// What the object stands on, freed (if nobody else has it) after it.
    _under: Vec<Arc<Self>>,
    /// Whatever else must outlive the object: for an IA, the library that its code is in; for an LMR, its memory.
    keep: Option<Box<dyn Any + Send + Sync>>,
}

impl Object {
    /// The object's function table.
    fn table(&self) -> &DatProvider {
        // SAFETY: the object lives as long as `self`, and the first word of every object points to its
        // provider's table, which stays as long as the library is loaded.
        unsafe { &**(self.handle as *const *const DatProvider) }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let code = (self.free)(self.table(), self.handle);
        if let Err(error) = unpack_v2_0(code) {
            // It is still there, and so must be what it uses.
            std::mem::forget(self.keep.take());
            tracing::warn!(%error, handle = format_args!("{:#x}", self.handle), "an object could not be freed");
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.handle)
    }
}

/// A slot of a table.
///
/// # Errors
/// `DAT_NOT_IMPLEMENTED` for one that the provider left NULL.
fn slot<F>(slot: Option<F>) -> Result<F> {
    slot.ok_or(Error::of(Kind::NotImplemented))
}

/// Calls a slot of an object's table; an error of its code.
///
/// The arguments are the slot's contract: every caller in this module gives pointers to its own locals and handles of
/// objects that it holds.
macro_rules! call {
    ($object:expr, $slot:ident($($arg:expr),* $(,)?)) => {{
        let function = $crate::foreign::slot($object.table().$slot)?;
        // SAFETY: live handles and valid pointers, see the macro's text.
        $crate::ret::unpack_v2_0(unsafe { function($($arg),*) })
    }};
}
use call;

/// Owns an object that was just made: `owned!(handle, its free slot, what it stands on, what else it keeps)`.
macro_rules! owned {
    ($handle:expr, $slot:ident, $under:expr $(,)?) => {
        $crate::foreign::owned!($handle, $slot, $under, None)
    };
    ($handle:expr, $slot:ident, $under:expr, $keep:expr $(,)?) => {{
        let free: $crate::foreign::Free = |table, handle| match table.$slot {
            // SAFETY: called once, by the object's drop, with a live handle.
            Some(free) => unsafe { free(handle) },
            None => dat_core::error::Error::of(dat_core::error::Kind::NotImplemented).code(),
        };
        std::sync::Arc::new($crate::foreign::Object {
            handle: $handle,
            free,
            _under: $under,
            keep: $keep,
        })
    }};
}
use owned;

/// Declares what holds an object.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(pub(super) std::sync::Arc<$crate::foreign::Object>);

        impl $name {
            /// The handle, for calls that this module lacks. Valid as long as a clone of this is.
            #[must_use]
            pub fn raw(&self) -> $crate::types::DatHandle {
                self.0.handle
            }
        }
    )*};
}
use kinds;
