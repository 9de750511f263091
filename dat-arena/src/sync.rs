//! Atomics of the standard library, the mutex of this crate, and functions that wait; loom's models replace them by loom's types.

#[cfg(all(loom, test))]
pub(crate) use dat_loom::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering,
    futex::{wait as sleep_on, wake},
    sleep, spin_loop, yield_now,
};
#[cfg(not(all(loom, test)))]
pub(crate) use {
    crate::mutex::{Mutex, MutexGuard},
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

/// Sleeps while `word` is `value`, until [`wake`]. May return early. It is no cancellation point either.
#[cfg(not(all(loom, test)))]
pub(crate) fn sleep_on(word: &AtomicU32, value: u32) {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let no_limit = std::ptr::null::<libc::timespec>();
    // SAFETY: the word is valid for the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, no_limit) };
}

/// Wakes up to `sleepers` threads that sleep on `word`.
#[cfg(not(all(loom, test)))]
pub(crate) fn wake(word: &AtomicU32, sleepers: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, sleepers) };
}
