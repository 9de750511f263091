//! What the scheduler is asked for by a thread, and what it tells of it. All of it works without privileges.

use std::cell::Cell;

/// The length of [`Slice::Short`]: the least that Linux takes.
const SHORT_NANOSECONDS: u64 = 100_000;

/// How long a thread wants to run at a time. One that asks for less is let in earlier when it wakes up (sched_setattr(2), Linux 6.12 and later; other
/// kernels have no such thing and ignore it).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slice {
    /// As the system has it.
    Usual,
    /// A tenth of a millisecond.
    Short,
}

impl Slice {
    /// Asks for it for the calling thread. A thread of a real-time or idle class is left as it is, and so is one whose scheduling may not
    /// be changed (seccomp).
    pub(crate) fn ask(self) {
        let size = size_of::<libc::sched_attr>() as u32;
        // SAFETY: all-zero is a value of this structure of numbers.
        let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
        // SAFETY: `attr` has room for `size` bytes; 0 is the calling thread.
        let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0u32) };
        let normal = [libc::SCHED_OTHER, libc::SCHED_BATCH].map(|policy| policy as u32);
        if got != 0 || !normal.contains(&attr.sched_policy) {
            return;
        }
        attr.sched_runtime = match self {
            Self::Usual => 0,
            Self::Short => SHORT_NANOSECONDS,
        };
        // SAFETY: `attr` is what the kernel filled in, and lives until the return.
        let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0u32) };
        if set != 0 {
            let error = std::io::Error::last_os_error();
            tracing::debug!(%error, "sched_setattr refused a time slice of {self:?} length");
        }
    }
}

/// Makes the calling thread's short sleeps as short as it asks: by default the kernel adds 50 us.
pub(crate) fn sleep_exactly() {
    let nanoseconds: libc::c_ulong = 1000;
    // SAFETY: a plain system call; it changes the calling thread only, and cannot fail.
    let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanoseconds) };
}

/// Returns true if the scheduler took the processor from the calling thread since it last asked.
pub(crate) fn preempted() -> bool {
    thread_local! {
        static COUNTED: Cell<libc::c_long> = const { Cell::new(0) };
    }
    // SAFETY: all-zero is a value of this structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` has room for the answer; the calling thread's can always be had.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    COUNTED.replace(usage.ru_nivcsw) != usage.ru_nivcsw
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn slice() -> u64 {
        // SAFETY: as above.
        unsafe {
            let mut attr: libc::sched_attr = std::mem::zeroed();
            let size = size_of::<libc::sched_attr>() as u32;
            let got = libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0u32);
            assert_eq!(got, 0);
            attr.sched_runtime
        }
    }

    #[test]
    fn a_thread_asks_for_a_short_slice_and_gives_it_back() {
        std::thread::spawn(|| {
            let before = slice();
            Slice::Short.ask();
            let short = slice();
            Slice::Usual.ask();
            // Kernels without slices of one's own tell nothing.
            assert!(
                before == 0 || short == SHORT_NANOSECONDS,
                "{before} {short}"
            );
            assert_eq!(slice(), before);
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn a_thread_that_others_push_aside_learns_of_it_once() {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let processor = pin(None);
                preempted();
                // To yield to another thread on its processor counts as being pushed aside.
                let stop = &stop;
                scope.spawn(move || {
                    pin(Some(processor));
                    while !stop.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                });
                while !preempted() {
                    std::thread::yield_now();
                }
                stop.store(true, Ordering::Relaxed);
            });
        });
    }

    /// Keeps the calling thread on `processor`, or where it is; returns the number.
    fn pin(processor: Option<usize>) -> usize {
        // SAFETY: an all-zero set is an empty one; the set lives until the return.
        unsafe {
            let here = || usize::try_from(libc::sched_getcpu()).expect("a processor");
            let processor = processor.unwrap_or_else(here);
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(processor, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
            processor
        }
    }
}
