//! Copies to and from memory that may have lost its mapping. A fault becomes an error and does not end the process.
//!
//! There are two copy methods. [`CopyMethod::Direct`] is as fast as a plain copy: the instructions that may fault are in one place,
//! and a signal handler of this crate turns a fault there into an error (`signals`, `recovery`, `machine`). That works as long as the handler is
//! installed and the copying thread does not block the signals; the application may change both. [`CopyMethod::Kernel`] uses
//! process_vm_readv(2), which returns EFAULT: it takes about half a microsecond a copy and always works. [`MethodCache`] chooses.
//!
//! **Why these are sound in Rust's terms.** The consumer's threads and peers may access the same bytes at the same time. A plain or
//! `memcpy` access would then be a data race, which is undefined behaviour. Here the registered side of a copy is accessed by
//! assembly (`machine`), by the kernel (`kernel`), or by relaxed atomics of one byte (`portable`). For the compiler assembly is code
//! that it does not see; it may do what the processor allows, and for every processor a race of stores and loads of memory yields
//! one of the values of each byte. So its effect is that of relaxed atomic accesses of each byte, which never race.

mod kernel;
mod signals;

/// Makes symbols of `machine` known to this shared object, and to no other one.
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
macro_rules! hidden {
    ($($name:literal),*) => {
        concat!($(".globl dat_softrxe_guard_", $name, "\n.hidden dat_softrxe_guard_", $name, "\n"),*)
    };
}

#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
mod machine;
#[cfg_attr(
    not(any(target_arch = "aarch64", target_arch = "x86_64")),
    path = "portable.rs"
)]
mod recovery;

use std::cell::Cell;

use softrxe_proto::Time;

/// The memory is not mapped, or not with the right with which it was registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fault;

/// How the engine copies to and from the consumer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyMethod {
    /// By instructions of the thread; the signal of a fault is caught.
    Direct,
    /// By system calls.
    Kernel,
}

/// Adapts the copies to the processor, and installs the handler at the first call.
pub(crate) fn install() {
    #[cfg(target_arch = "x86_64")]
    machine::adapt();
    signals::install();
}

/// How long the state of a thread's signals is remembered, in nanoseconds.
const VALIDITY: u64 = 1_000_000;
/// Number of threads whose signals are remembered: those that poll, post and wait on one adapter, and the helper.
const THREADS: usize = 16;

/// Remembers which method the threads can use. Not `Sync`: it is under the engine's lock.
#[derive(Debug)]
pub(crate) struct MethodCache {
    method: Cell<CopyMethod>,
    /// Thread, its method, and the end of validity.
    seen: [Cell<(usize, CopyMethod, u64)>; THREADS],
    next: Cell<usize>,
}

impl MethodCache {
    /// Starts with the kernel's copies, until the first [`update`](Self::update).
    #[must_use]
    pub(crate) fn new() -> Self {
        Self {
            method: Cell::new(CopyMethod::Kernel),
            seen: [const { Cell::new((0, CopyMethod::Kernel, 0)) }; THREADS],
            next: Cell::new(0),
        }
    }

    /// Returns the method that the last update chose.
    #[must_use]
    pub(crate) fn get(&self) -> CopyMethod {
        self.method.get()
    }

    /// Chooses the method for the calling thread, which is about to copy. The state of its signals is remembered for a millisecond, as
    /// to query it takes three system calls.
    #[inline]
    pub(crate) fn update(&self, now: Time) {
        let thread = dat_arena::current_thread();
        let now = now.as_nanos();
        for seen in &self.seen {
            let (of, method, until) = seen.get();
            if of == thread && now < until {
                self.method.set(method);
                return;
            }
        }
        self.query(thread, now);
    }

    #[cold]
    fn query(&self, thread: usize, now: u64) {
        let method = if recovery::RECOVERS_FAULTS && signals::faults_are_caught() {
            CopyMethod::Direct
        } else {
            CopyMethod::Kernel
        };
        let position = self.seen.iter().position(|seen| seen.get().0 == thread);
        let slot = position.unwrap_or_else(|| {
            let next = self.next.get();
            self.next.set((next + 1) % THREADS);
            next
        });
        self.seen[slot].set((thread, method, now + VALIDITY));
        self.method.set(method);
    }
}

impl Default for MethodCache {
    fn default() -> Self {
        Self::new()
    }
}

/// Copies `length` bytes from `from`, which need not be mapped, to `to`.
///
/// # Safety
/// If `from` is mapped, it is memory that the consumer registered, to which there is no Rust reference. `to` is memory of this crate,
/// of that length.
#[inline]
pub(crate) unsafe fn read(
    method: CopyMethod,
    from: usize,
    to: usize,
    length: usize,
) -> Result<(), Fault> {
    match method {
        // SAFETY: the caller's promises.
        CopyMethod::Direct => unsafe { recovery::copy(to, from, length) },
        // SAFETY: the same.
        CopyMethod::Kernel => unsafe { kernel::read(from, to, length) },
    }
}

/// Like [`read`], past the caches where the processor can do that: the destination is to be read by another processor, far from this one.
///
/// # Safety
/// As [`read`].
#[inline]
pub(crate) unsafe fn read_past_caches(
    method: CopyMethod,
    from: usize,
    to: usize,
    length: usize,
) -> Result<(), Fault> {
    match method {
        // SAFETY: the caller's promises.
        CopyMethod::Direct => unsafe { recovery::stream(to, from, length) },
        // SAFETY: the same.
        CopyMethod::Kernel => unsafe { kernel::read(from, to, length) },
    }
}

/// Copies `length` bytes from `from` to `to`, which need not be mapped. After an error a part may have been copied.
///
/// # Safety
/// If `to` is mapped, it is memory that the consumer registered for writing. `from` is memory of this crate, of that length.
#[inline]
pub(crate) unsafe fn write(
    method: CopyMethod,
    to: usize,
    from: usize,
    length: usize,
) -> Result<(), Fault> {
    match method {
        // SAFETY: the caller's promises.
        CopyMethod::Direct => unsafe { recovery::copy(to, from, length) },
        // SAFETY: the same.
        CopyMethod::Kernel => unsafe { kernel::write(to, from, length) },
    }
}

/// Copies `length` bytes between memory of this crate that does not fault. Another process may change the source meanwhile: the copy is
/// made by the same instructions as the others, not by a Rust access.
///
/// # Safety
/// Source and destination are mapped memory of this crate, of that length.
#[inline]
pub(crate) unsafe fn copy_own(to: usize, from: usize, length: usize) {
    // SAFETY: the caller's promises. Neither faults, so the result is always success.
    let _ = unsafe { recovery::copy(to, from, length) };
}

/// Stores `bytes` to `to` in one store. There are 1, 2, 4 or 8 of them, and `to` is a multiple of their number.
///
/// # Safety
/// As [`write()`].
#[inline]
pub(crate) unsafe fn store(method: CopyMethod, to: usize, bytes: &[u8]) -> Result<(), Fault> {
    match method {
        // SAFETY: as for `write`.
        CopyMethod::Direct => unsafe { recovery::store(to, bytes) },
        // SAFETY: as for `write`; the source is `bytes`.
        CopyMethod::Kernel => unsafe { kernel::write(to, bytes.as_ptr() as usize, bytes.len()) },
    }
}

/// Replaces the 8 bytes at `at`, a multiple of 8, by the result of `f`; returns the old value. The direct method is atomic towards the
/// consumer's threads. The kernel's is too as long as the handler is installed.
///
/// # Safety
/// As [`write()`].
pub(crate) unsafe fn update(
    method: CopyMethod,
    at: usize,
    mut f: impl FnMut(u64) -> u64,
) -> Result<u64, Fault> {
    match method {
        // SAFETY: as for `write`.
        CopyMethod::Direct => unsafe { recovery::update(at, f) },
        // The kernel has no system call for this.
        CopyMethod::Kernel => {
            // SAFETY: as for `write`.
            let direct = || unsafe { recovery::update(at, &mut f) };
            let done = signals::with_faults_unblocked(direct);
            // SAFETY: as for `write`.
            done.unwrap_or_else(|| unsafe { kernel::update(at, f) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signals_of_eight_threads_are_remembered() {
        let cache = MethodCache::new();
        // Those of an MPI with seven threads, and the helper.
        let threads = 1..=8;
        for thread in threads.clone() {
            cache.query(thread, 0);
        }
        let of = |seen: &Cell<(usize, CopyMethod, u64)>| seen.get().0;
        assert!(threads.eq(cache.seen.iter().map(of).filter(|of| *of != 0)));
    }

    #[test]
    fn a_threads_signals_are_queried_once_in_a_millisecond() {
        let cache = MethodCache::new();
        for (now, until) in [
            (0, VALIDITY),
            (VALIDITY - 1, VALIDITY),
            (VALIDITY, 2 * VALIDITY),
        ] {
            cache.update(Time::from_nanos(now));
            assert_eq!(cache.seen[0].get().2, until, "{now}");
            assert_eq!(cache.seen[1].get().0, 0);
        }
    }
}
