//! Requests of a thread to the scheduler, and what the scheduler reports about it. None of them needs privileges.

use std::cell::Cell;
use std::io;
use std::os::unix::thread::JoinHandleExt as _;
use std::thread::JoinHandle;

/// The length of [`Slice::Short`]: the minimum that Linux accepts.
const SHORT_NANOSECONDS: u64 = 100_000;

/// Length of the time slice in which a thread runs. Among waking threads the scheduler prefers those with a shorter slice
/// (sched_setattr(2), Linux 6.12 and later; older kernels ignore the request).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slice {
    /// The system's default.
    Default,
    /// A tenth of a millisecond.
    Short,
}

impl Slice {
    /// Requests this slice for the calling thread. A thread of a real-time or idle class is left as it is, and so is one whose
    /// scheduling attributes cannot be read.
    ///
    /// # Errors
    /// The errors of `sched_setattr`; a seccomp filter may refuse it.
    pub fn request(self) -> io::Result<()> {
        change(|attr| {
            attr.sched_runtime = match self {
                Self::Default => 0,
                Self::Short => SHORT_NANOSECONDS,
            };
        })
    }
}

/// Makes the calling thread one that does not preempt the thread that wakes it (`SCHED_BATCH`), or an ordinary one again. A thread of a
/// real-time or idle class is left as it is, and so is one whose scheduling attributes cannot be read.
///
/// # Errors
/// The errors of `sched_setattr`; a seccomp filter may refuse it.
pub fn let_wakers_run(on: bool) -> io::Result<()> {
    let policy = if on {
        libc::SCHED_BATCH
    } else {
        libc::SCHED_OTHER
    };
    change(|attr| attr.sched_policy = policy.cast_unsigned())
}

/// Changes the scheduling attributes of the calling thread if it is of an ordinary class.
fn change(act: impl FnOnce(&mut libc::sched_attr)) -> io::Result<()> {
    let normal = [libc::SCHED_OTHER, libc::SCHED_BATCH].map(libc::c_int::cast_unsigned);
    let Some(mut attr) = attributes().filter(|attr| normal.contains(&attr.sched_policy)) else {
        return Ok(());
    };
    act(&mut attr);
    // SAFETY: the kernel filled in `attr`, which is valid for the call; 0 is the calling thread.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0u32) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the scheduling attributes of the calling thread.
fn attributes() -> Option<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: all-zero is a value of this structure of numbers.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: `attr` has room for `size` bytes; 0 is the calling thread.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0u32) };
    (got == 0).then_some(attr)
}

/// Makes the calling thread's short sleeps end on time: by default the kernel may add 50 us to them (timer slack).
pub fn sleep_exactly() {
    let nanoseconds: libc::c_ulong = 1000;
    // SAFETY: the call changes the calling thread only, and cannot fail.
    let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanoseconds) };
}

/// Processors are few if a thread waits for one of them for at least one part in so many of the time that it is runnable.
const CROWDED: u64 = 4;

/// Times of a thread in nanoseconds, from the start of the thread on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Runnable {
    ran: u64,
    waited: u64,
}

impl Runnable {
    /// Returns the times of the calling thread; `None` without /proc, and for a kernel that does not count them. It calls no function of the C
    /// library that is a cancellation point.
    fn now() -> Option<Self> {
        let path = c"/proc/thread-self/schedstat";
        let mut text = [0; 64];
        // SAFETY: `path` is a C string, `text` has room for its length, and the descriptor is closed once.
        let length = unsafe {
            let flags = libc::O_RDONLY | libc::O_CLOEXEC;
            let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags);
            if file < 0 {
                return None;
            }
            let length = libc::syscall(libc::SYS_read, file, text.as_mut_ptr(), text.len());
            libc::syscall(libc::SYS_close, file);
            usize::try_from(length).ok()?
        };
        Self::parse(text.get(..length)?)
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
        let mut next = || words.next()?.parse().ok();
        Some(Self {
            ran: next()?,
            waited: next()?,
        })
    }

    /// Returns whether the thread waited for a processor for a large part of the time since `before`.
    const fn is_crowded_since(self, before: Self) -> bool {
        let ran = self.ran.saturating_sub(before.ran);
        let waited = self.waited.saturating_sub(before.waited);
        waited > 0 && waited >= (ran + waited) / CROWDED
    }
}

/// Returns true if the calling thread waited for a processor for a quarter of the time that it was runnable, or more, since its previous
/// call of this function; false for the first call, as what a starting thread waits for is over. Another thread that runs for some
/// microseconds, and a hypervisor that takes the processor away, do not count.
/// Where the kernel reports no such times, any preemption counts. It takes some microseconds.
pub fn crowded() -> bool {
    thread_local! {
        static BEFORE: Cell<Option<Runnable>> = const { Cell::new(None) };
    }
    match Runnable::now() {
        Some(now) => {
            let before = BEFORE.replace(Some(now));
            before.is_some_and(|before| now.is_crowded_since(before))
        }
        None => preempted(),
    }
}

/// Returns true if the scheduler preempted the calling thread since the thread's previous call of this function.
fn preempted() -> bool {
    thread_local! {
        static COUNTED: Cell<u64> = const { Cell::new(0) };
    }
    let preemptions = preemptions();
    COUNTED.replace(preemptions) != preemptions
}

/// Returns a number that no other living thread has; 0 in a thread that is about to end. `std::thread::current` allocates, and ends the
/// process where no memory is left.
#[must_use]
pub fn thread() -> usize {
    thread_local! {
        static PLACE: u8 = const { 0 };
    }
    PLACE
        .try_with(|place| std::ptr::from_ref(place).addr())
        .unwrap_or(0)
}

/// Returns whether `thread` is the calling thread. `std::thread::current` panics in a destructor of a key (`pthread_key_create`) that runs
/// after those of the standard library, and a program may close an IA there.
#[must_use]
pub fn is_caller<T>(thread: &JoinHandle<T>) -> bool {
    // SAFETY: no pointers are involved.
    thread.as_pthread_t() == unsafe { libc::pthread_self() }
}

/// Returns how often the scheduler preempted the calling thread; a yield to another thread counts.
#[must_use]
pub fn preemptions() -> u64 {
    // SAFETY: all-zero is a value of this structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` has room for the answer; the query for the calling thread cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw.cast_unsigned()
}

/// Returns the number of processors of this machine, not only of those that this process may use: a process that is bound to one
/// processor can still wait for a peer that runs on another.
#[must_use]
pub fn processors() -> usize {
    // SAFETY: no pointers are involved.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn slice() -> u64 {
        attributes().expect("sched_getattr works").sched_runtime
    }

    #[test]
    fn a_thread_requests_a_short_slice_and_returns_to_the_default() {
        std::thread::spawn(|| {
            let before = slice();
            Slice::Short.request().unwrap();
            let short = slice();
            Slice::Default.request().unwrap();
            // Kernels without slices per thread report 0.
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
    fn a_thread_lets_its_wakers_run_and_becomes_ordinary_again() {
        std::thread::spawn(|| {
            let policy = || attributes().expect("sched_getattr works").sched_policy as libc::c_int;
            // The tests may have been started with another policy.
            if policy() == libc::SCHED_OTHER {
                let_wakers_run(true).unwrap();
                assert_eq!(policy(), libc::SCHED_BATCH);
                let_wakers_run(false).unwrap();
                assert_eq!(policy(), libc::SCHED_OTHER);
            }
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn a_preempted_thread_learns_of_it_once() {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let processor = pin(None);
                preempted();
                // Yielding to another thread on the same processor counts as a preemption.
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

    #[test]
    fn a_thread_that_shares_its_processor_finds_it_crowded() {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let processor = pin(None);
                let stop = &stop;
                scope.spawn(move || {
                    pin(Some(processor));
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
                // Each thread runs for a slice of some milliseconds.
                while !crowded() {
                    let begin = std::time::Instant::now();
                    while begin.elapsed().as_millis() < 20 {
                        std::hint::spin_loop();
                    }
                }
                stop.store(true, Ordering::Relaxed);
            });
        });
    }

    #[test]
    fn threads_have_numbers_of_their_own() {
        let own = thread();
        assert_eq!(own, thread());
        let other = std::thread::scope(|scope| scope.spawn(thread).join().unwrap());
        assert!(own != 0 && other != 0 && own != other);
    }

    #[test]
    fn a_quarter_of_the_time_without_a_processor_is_crowded() {
        let times = |text: &str| Runnable::parse(text.as_bytes());
        let before = times("733035 86298 1\n").expect("the text of the kernel");
        assert_eq!((before.ran, before.waited), (733_035, 86_298));
        for (ran, waited, crowded) in [
            (0, 0, false),
            (300, 100, true),
            (301, 100, true),
            (304, 100, false),
            (1_000_000, 20_000, false),
            (0, 1, true),
        ] {
            let now = Runnable {
                ran: before.ran + ran,
                waited: before.waited + waited,
            };
            assert_eq!(now.is_crowded_since(before), crowded, "{ran} {waited}");
        }
        assert!(!Runnable::default().is_crowded_since(before));
        for wrong in ["", "1", "1 x", "\u{ff}", "-1 2"] {
            assert_eq!(times(wrong), None, "{wrong:?}");
        }
        let counted = std::path::Path::new("/proc/thread-self/schedstat").exists();
        assert_eq!(Runnable::now().is_some(), counted);
    }

    /// Binds the calling thread to `processor`, or to the one on which it runs; returns the processor's number.
    fn pin(processor: Option<usize>) -> usize {
        // SAFETY: an all-zero set is an empty one, and is valid for the call.
        unsafe {
            let here = || usize::try_from(libc::sched_getcpu()).expect("a processor");
            let processor = processor.unwrap_or_else(here);
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(processor, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
            processor
        }
    }

    #[test]
    fn a_machine_has_processors() {
        assert!(processors() >= 1);
    }
}
