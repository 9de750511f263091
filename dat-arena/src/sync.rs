//! What loom's models replace: std's atomics, parking_lot's mutex, and the ways to wait.

#[cfg(all(loom, test))]
pub(crate) use dat_loom::{
    AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, sleep, spin_loop, yield_now,
};
#[cfg(not(all(loom, test)))]
pub(crate) use {
    parking_lot::Mutex,
    std::hint::spin_loop,
    std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    std::thread::{sleep, yield_now},
};

/// Stores over changes that other threads made and that do not count. A store, but for the models: loom does not know that a
/// read-modify-write and a later store of another thread have an order, and would take the older for the last one.
#[inline(always)]
pub(crate) fn overwrite(word: &AtomicU64, value: u64, order: Ordering) {
    #[cfg(not(all(loom, test)))]
    word.store(value, order);
    #[cfg(all(loom, test))]
    word.swap(value, order);
}
