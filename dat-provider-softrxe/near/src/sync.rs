//! Atomics of the standard library, which loom's models replace by loom's types.

#[cfg(all(loom, test))]
pub(crate) use dat_loom::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
