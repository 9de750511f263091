//! A context of C's, and the function that frees it.

use std::ptr::null_mut;

use dat_core::error::Result;

use crate::convert::result;
use crate::table::{Code, Context, table};

/// A context of C's.
#[derive(Debug)]
pub struct Object {
    pub(crate) context: Context,
    free: Option<unsafe extern "C" fn(Context)>,
}

// SAFETY: the header demands that contexts may be used by any thread.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    /// Makes the object of a function that returns its context by a pointer.
    pub(crate) fn made(
        slot: &'static str,
        free: Option<unsafe extern "C" fn(Context)>,
        make: impl FnOnce(*mut Context) -> Code,
    ) -> Result<Self> {
        let mut context = null_mut();
        result(make(&raw mut context), slot)?;
        Ok(Self { context, free })
    }

    /// Returns the context for a call that takes the object.
    pub(crate) fn taken(mut self) -> Context {
        self.free = None;
        self.context
    }

    /// Makes the object of a request that a report brings.
    pub(crate) fn request(context: Context) -> Self {
        Self {
            context,
            free: table().free_request,
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: a context that the transport made; this is its last use.
            unsafe { free(self.context) }
        }
    }
}
