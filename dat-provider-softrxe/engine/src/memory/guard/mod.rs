//! Copies to and from memory that may have lost its mapping: a fault is an answer here and not the end of the process.
//!
//! There are two ways to copy. [`Way::Direct`] is as quick as a plain copy: the instructions that may fault lie in one place, and a
//! signal handler of ours makes a fault there an answer (`signals`, `x86_64`). That works while the handler is ours and the
//! copying thread does not block the signals; both belong to the application. [`Way::Kernel`] asks the kernel to copy
//! (process_vm_readv(2)), which answers EFAULT: about half a microsecond a copy, and always right. [`Watch`] decides.

mod kernel;
mod signals;

#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod machine;
#[cfg(not(target_arch = "x86_64"))]
#[path = "portable.rs"]
mod machine;

use std::cell::Cell;

use softrxe_proto::Time;

pub(crate) use signals::install;

/// The memory is not mapped, or not with the right that it was registered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fault;

/// How memory of the consumer is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// By instructions of this thread; the signal of a fault is caught.
    Direct,
    /// By system calls.
    Kernel,
}

/// How long it counts that the signals of a thread were found as they should be, in nanoseconds.
const TRUST: u64 = 1_000_000;
/// Threads whose signals are remembered.
const THREADS: usize = 4;

/// Knows which way the present thread can go. Not `Sync`: the engine's lock is around it.
#[derive(Debug)]
pub(crate) struct Watch {
    way: Cell<Way>,
    /// Thread, way, and until when that counts.
    seen: [Cell<(usize, Way, u64)>; THREADS],
    next: Cell<usize>,
}

impl Watch {
    /// Before the first [`look`](Self::look) nothing is known: the kernel copies.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self {
            way: Cell::new(Way::Kernel),
            seen: [const { Cell::new((0, Way::Kernel, 0)) }; THREADS],
            next: Cell::new(0),
        }
    }

    /// The way that the last look found.
    #[must_use]
    pub(crate) fn way(&self) -> Way {
        self.way.get()
    }

    /// The calling thread is about to copy. What it was found to do with the signals counts for a millisecond: asking takes
    /// three system calls.
    pub(crate) fn look(&self, now: Time) {
        // SAFETY: always right.
        let thread = unsafe { libc::pthread_self() } as usize;
        let now = now.as_nanos();
        for seen in &self.seen {
            let (of, way, until) = seen.get();
            if of == thread && now < until {
                self.way.set(way);
                return;
            }
        }
        self.ask(thread, now);
    }

    #[cold]
    fn ask(&self, thread: usize, now: u64) {
        let way = if machine::CATCHES && signals::are_caught() {
            Way::Direct
        } else {
            Way::Kernel
        };
        let known = self.seen.iter().position(|seen| seen.get().0 == thread);
        let place = known.unwrap_or_else(|| {
            let next = self.next.get();
            self.next.set((next + 1) % THREADS);
            next
        });
        self.seen[place].set((thread, way, now + TRUST));
        self.way.set(way);
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

/// Copies `into.len()` bytes from `from`, which need not be mapped.
///
/// # Safety
/// Where `from` is mapped, reading it disturbs no Rust reference: it is memory that the consumer registered.
pub(crate) unsafe fn read(way: Way, from: usize, into: &mut [u8]) -> Result<(), Fault> {
    let (to, length) = (into.as_mut_ptr() as usize, into.len());
    match way {
        // SAFETY: the destination is ours; the source is the caller's promise.
        Way::Direct => unsafe { machine::copy(to, from, length) },
        Way::Kernel => kernel::read(from, into),
    }
}

/// Copies `bytes` to `to`, which need not be mapped. If it fails part of them may be there.
///
/// # Safety
/// Where `to` is mapped, it is memory that the consumer registered for writing.
pub(crate) unsafe fn write(way: Way, to: usize, bytes: &[u8]) -> Result<(), Fault> {
    match way {
        // SAFETY: the source is ours; the destination is the caller's promise.
        Way::Direct => unsafe { machine::copy(to, bytes.as_ptr() as usize, bytes.len()) },
        Way::Kernel => kernel::write(to, bytes),
    }
}

/// Stores `bytes`, 1, 2, 4 or 8 of them, to `to`, a multiple of their number, in one store.
///
/// # Safety
/// As [`write()`].
pub(crate) unsafe fn store(way: Way, to: usize, bytes: &[u8]) -> Result<(), Fault> {
    match way {
        // SAFETY: as for `write`.
        Way::Direct => unsafe { machine::store(to, bytes) },
        Way::Kernel => kernel::write(to, bytes),
    }
}

/// Replaces the 8 bytes at `at`, a multiple of 8, by what `f` makes of them; returns the old value. Whatever the way, this is
/// atomic towards the consumer's processors.
///
/// # Safety
/// As [`write()`].
pub(crate) unsafe fn update(
    way: Way,
    at: usize,
    mut f: impl FnMut(u64) -> u64,
) -> Result<u64, Fault> {
    match way {
        // SAFETY: as for `write`.
        Way::Direct => unsafe { machine::update(at, f) },
        // The kernel has no atomic for this. SAFETY: as for `write`.
        Way::Kernel => signals::while_caught(|| unsafe { machine::update(at, &mut f) })
            .unwrap_or_else(|| kernel::update(at, f)),
    }
}

/// A place where a computation that may fault notes how to get out of it.
#[derive(Debug)]
pub(crate) struct Exit(Option<&'static machine::Frame>);

impl Exit {
    /// One of a limited number, or one with which nothing can be computed.
    #[must_use]
    pub(crate) fn take() -> Self {
        Self(machine::Frame::take())
    }

    /// Runs `compute` over the `length` bytes at `from`. `None`: that cannot be done here, or the memory is not there.
    ///
    /// # Safety
    /// The range is memory that the consumer registered. `compute` reads it and nothing else that may fault, and leaves nothing to
    /// drop or unlock where it is abandoned.
    pub(crate) unsafe fn over<R>(
        &self,
        from: usize,
        length: usize,
        compute: impl FnOnce() -> R,
    ) -> Option<Result<R, Fault>> {
        let frame = self.0?;
        // SAFETY: the caller's promises; the engine's lock lets one thread at a time compute here.
        Some(unsafe { frame.run(from..from + length, compute) })
    }
}

impl Drop for Exit {
    fn drop(&mut self) {
        if let Some(frame) = self.0 {
            frame.give_back();
        }
    }
}
