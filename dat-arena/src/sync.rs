//! Atomics of the standard library, parking_lot's mutex, and functions that wait; loom's models replace them by loom's types.

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

/// Stores `value` over changes of other threads that are to be discarded. In loom's models it is a swap: loom does not order a
/// read-modify-write before a later store of another thread, and could keep the older value as the last one.
#[inline(always)]
pub(crate) fn overwrite(word: &AtomicU64, value: u64, order: Ordering) {
    #[cfg(not(all(loom, test)))]
    word.store(value, order);
    #[cfg(all(loom, test))]
    word.swap(value, order);
}
