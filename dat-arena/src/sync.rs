//! Atomics of the standard library, parking_lot's mutex, and functions that wait; loom's models replace them by loom's types.

#[cfg(all(loom, test))]
pub(crate) use dat_loom::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, sleep, spin_loop,
    yield_now,
};
#[cfg(not(all(loom, test)))]
pub(crate) use {
    parking_lot::{Mutex, MutexGuard},
    std::hint::spin_loop,
    std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    std::thread::yield_now,
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

/// Sleeps for about `time`, less than a second. Unlike the standard library's sleep it is no cancellation point (`pthread_cancel`): the
/// thread may hold other locks.
#[cfg(not(all(loom, test)))]
pub(crate) fn sleep(time: std::time::Duration) {
    if cfg!(any(miri, not(target_pointer_width = "64"))) {
        return std::thread::sleep(time);
    }
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: time.subsec_nanos() as _,
    };
    let rest = std::ptr::null_mut::<libc::timespec>();
    // SAFETY: the kernel reads `time` during the call, and writes nothing.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, rest) };
}
