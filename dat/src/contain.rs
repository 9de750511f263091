//! Panics of a program's closures, which must not pass into the library's callers.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `code`, and logs that `what` panicked if it does.
pub(crate) fn contain(what: &str, code: impl FnOnce()) {
    if let Err(value) = catch_unwind(AssertUnwindSafe(code)) {
        // Its drop may panic too.
        std::mem::forget(value);
        tracing::error!("{what} panicked");
    }
}
