//! A barrier of two unequal sides, as of membarrier(2): the frequent side pays nothing, the rare one a system call.
//!
//! Two threads each store to a word and then load the other's. With a full barrier between store and load on both sides, at least one of
//! them sees the other's store. Here one side has [`light`], which only keeps the compiler from changing the order, and the other side
//! has [`heavy`], which makes the kernel execute a full barrier on each processor that runs a thread of this process.

use std::sync::atomic::{AtomicBool, Ordering};

/// The kernel executes the barriers that [`heavy`] requests.
static IS_AVAILABLE: AtomicBool = AtomicBool::new(false);

/// Registers the process with the kernel, so that [`heavy`] works. A process with several threads may wait some milliseconds for it.
///
/// Where the kernel or a filter refuses, [`is_available`] stays false.
pub(crate) fn register() {
    if !is_available() {
        let done = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
        IS_AVAILABLE.store(done, Ordering::Relaxed);
    }
}

/// Returns whether code may rely on [`heavy`].
pub(crate) fn is_available() -> bool {
    cfg!(all(loom, test)) || IS_AVAILABLE.load(Ordering::Relaxed)
}

/// The frequent side's barrier, between its store and its load.
#[inline(always)]
pub(crate) fn light() {
    #[cfg(not(all(loom, test)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(all(loom, test))]
    dat_loom::fence(dat_loom::Ordering::SeqCst);
}

/// The rare side's barrier, between its store and its load.
#[cold]
pub(crate) fn heavy() {
    #[cfg(not(all(loom, test)))]
    if !membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        without_the_kernel();
    }
    #[cfg(all(loom, test))]
    dat_loom::fence(dat_loom::Ordering::SeqCst);
}

/// The kernel has registered the process and refuses the barrier now: it has no memory, or a seccomp filter came after the registration.
/// A store stays in a processor's buffer for less than a microsecond, and no interrupted thread keeps one there. After this sleep, which is
/// ten thousand times as long, each of them is visible.
#[cfg(not(all(loom, test)))]
#[cold]
fn without_the_kernel() {
    IS_AVAILABLE.store(false, Ordering::Relaxed);
    crate::sync::sleep(std::time::Duration::from_millis(10));
    std::sync::atomic::fence(Ordering::SeqCst);
}

/// Returns whether the kernel executed `command`.
fn membarrier(command: libc::c_int) -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: membarrier has no memory operands.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Returns a number of the calling thread that no other living thread has. It is not 0.
#[inline(always)]
#[must_use]
pub fn current_thread() -> usize {
    #[cfg(all(loom, test))]
    return dat_loom::current_thread();
    #[cfg(all(target_arch = "x86_64", not(miri), not(all(loom, test))))]
    {
        let thread: usize;
        // SAFETY: the first word of a thread's control block is its address, as the System V ABI for thread-local storage requires.
        unsafe {
            std::arch::asm!("mov {}, fs:0", out(reg) thread, options(pure, readonly, nostack, preserves_flags));
        }
        thread
    }
    #[cfg(all(target_arch = "aarch64", not(miri), not(all(loom, test))))]
    {
        let thread: usize;
        // SAFETY: the register has the address of the thread's control block, and reading it has no effect.
        unsafe {
            std::arch::asm!("mrs {}, tpidr_el0", out(reg) thread, options(pure, nomem, nostack, preserves_flags));
        }
        thread
    }
    #[cfg(all(
        any(miri, not(any(target_arch = "aarch64", target_arch = "x86_64"))),
        not(all(loom, test))
    ))]
    // SAFETY: pthread_self cannot fail.
    unsafe {
        libc::pthread_self() as usize
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own_number() {
        let mine = current_thread();
        assert_ne!(mine, 0);
        assert_eq!(mine, current_thread());
        std::thread::scope(|scope| {
            let other = scope.spawn(current_thread).join().expect("no panic");
            assert_ne!(mine, other);
        });
    }

    #[cfg(not(miri))]
    #[test]
    fn the_kernel_executes_the_barrier() {
        register();
        assert!(is_available(), "membarrier(2) needs Linux 4.14");
        heavy();
        assert!(is_available());
    }
}
