//! Keeps fork(2) and calls of other threads apart. A child would inherit the locks that those threads hold, without the threads
//! that release them. So fork waits until no thread is in a call, at most [`FORK_TIMEOUT`], and calls that begin meanwhile wait
//! for fork.
//!
//! Only calls that take locks of the whole process enter the gate: those that open and close IAs, and those that map an IA's number.

use std::cell::Cell;
use std::process;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dat_core::error::{Error, Kind, Result};
use dat_registry::forked::CHILDREN;

/// Number of calls under way, nested ones included, in the lower half, and of threads that are about to fork, for which calls wait, in
/// the upper half. One word: a call that finds the gate closed has never been counted.
static GATE: AtomicU64 = AtomicU64::new(0);
/// A thread that is about to fork.
const FORK: u64 = 1 << 32;
/// Whether this process was forked while another thread was in a call: its locks may be held for ever.
static LOCKS_LOST: AtomicBool = AtomicBool::new(false);

/// The process whose calls are counted: a child notices a fork for which the C library did not run [`child`], as one that began before
/// [`register`].
static PROCESS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Number of nested calls of this thread: a provider's init may fork, or call the library.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Time that fork waits for calls to end. Most take less than a millisecond. Closing an IA of the user-space engine whose peers do
/// not answer takes nearly one second, or several on a host with a load of 25; a call that resolves a host name may take longer.
const FORK_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval at which fork and calls look whether they may proceed.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// A call under way; dropping it ends the call.
#[derive(Debug)]
pub(crate) struct Entered(());

/// Begins a call. Waits while another thread forks.
///
/// # Errors
/// `DAT_INTERNAL_ERROR` in a child that was forked while another thread was in a call.
pub(crate) fn enter() -> Result<Entered> {
    notice_fork();
    let outermost = DEPTH.get() == 0;
    // First: a handler of a signal may fork here, and does not wait for this call then.
    DEPTH.set(DEPTH.get() + 1);
    let may_enter = |gate: u64| (!outermost || gate < FORK).then_some(gate + 1);
    while GATE
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, may_enter)
        .is_err()
    {
        std::thread::sleep(POLL_INTERVAL);
    }
    let entered = Entered(());
    if LOCKS_LOST.load(Ordering::Relaxed) {
        tracing::error!(
            "this process was forked while another thread was in a DAT call for over ten seconds: it cannot use the library, but may exec"
        );
        return Err(Error::of(Kind::InternalError));
    }
    Ok(entered)
}

impl Drop for Entered {
    fn drop(&mut self) {
        GATE.fetch_sub(1, Ordering::SeqCst);
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Returns the number of calls under way.
fn calls() -> u32 {
    GATE.load(Ordering::SeqCst) as u32
}

fn notice_fork() {
    let own = process::id();
    let counted = PROCESS.load(Ordering::Relaxed);
    if counted == own {
        return;
    }
    let first = PROCESS.compare_exchange(counted, own, Ordering::SeqCst, Ordering::SeqCst);
    if first.is_ok() && counted != 0 {
        // SAFETY: this is a child, and no other of its threads has got here.
        unsafe { child() };
    }
}

/// Registers the fork handlers, once: when the library is loaded, so that each fork during a call knows them.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        PROCESS.store(process::id(), Ordering::SeqCst);
        // SAFETY: glibc removes the handlers when this shared object is unloaded; `child` does what a
        // signal handler may do.
        let registered = unsafe { dat_os::fork::at_fork(Some(prepare), Some(parent), Some(child)) };
        if let Err(error) = registered {
            tracing::warn!(
                %error,
                "pthread_atfork failed: fork only while no thread is in a DAT call"
            );
        }
    });
}

unsafe extern "C" fn prepare() {
    GATE.fetch_add(FORK, Ordering::SeqCst);
    let mine = DEPTH.get();
    let end = Instant::now() + FORK_TIMEOUT;
    while calls() > mine && Instant::now() < end {
        std::thread::sleep(POLL_INTERVAL);
    }
}

unsafe extern "C" fn parent() {
    GATE.fetch_sub(FORK, Ordering::SeqCst);
}

/// Runs in the child, where only this thread exists. It takes no lock and no memory.
unsafe extern "C" fn child() {
    PROCESS.store(process::id(), Ordering::SeqCst);
    let mine = DEPTH.get();
    let counted = calls();
    if counted > mine {
        LOCKS_LOST.store(true, Ordering::Relaxed);
    }
    // A handler of a signal may have forked before this thread's call was counted.
    GATE.store(u64::from(counted.min(mine)), Ordering::SeqCst);
    // SAFETY: fork has not returned yet in this child.
    unsafe { CHILDREN.run() };
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    /// One test for all: a process has one gate, and other tests may be in calls.
    #[test]
    fn fork_waits_for_calls_and_calls_wait_for_fork() {
        // SAFETY: the handlers that glibc calls around fork, called without a fork.
        let (prepare, parent, child) = unsafe { (|| prepare(), || parent(), || child()) };
        let (inside, is_inside) = channel();
        let (leave, may_leave) = channel::<()>();
        let caller = thread::spawn(move || {
            let held = enter().unwrap();
            // Nested calls do not wait.
            inside.send(()).unwrap();
            may_leave.recv().unwrap();
            drop(enter().unwrap());
            drop(held);
        });
        is_inside.recv().unwrap();
        let forker = thread::spawn(move || {
            let begin = Instant::now();
            prepare();
            begin.elapsed()
        });
        while GATE.load(Ordering::SeqCst) < FORK {
            thread::sleep(POLL_INTERVAL);
        }
        let late = thread::spawn(|| enter().map(drop));
        thread::sleep(Duration::from_millis(20));
        assert!(!forker.is_finished() && !late.is_finished());
        leave.send(()).unwrap();
        caller.join().unwrap();
        assert!(forker.join().unwrap() >= Duration::from_millis(20));
        assert!(!late.is_finished());
        // Another thread forks as well: the gate opens behind the last one.
        prepare();
        parent();
        thread::sleep(Duration::from_millis(20));
        assert!(!late.is_finished());
        parent();
        late.join().unwrap().unwrap();
        // No thread was in a call, though some wait to begin one: the child may make calls.
        prepare();
        let waiting = thread::spawn(|| enter().map(drop));
        thread::sleep(Duration::from_millis(20));
        assert_eq!(calls(), 0);
        parent();
        waiting.join().unwrap().unwrap();
        child();
        enter().unwrap();
        // A thread was in a call, and the C library ran no handler.
        GATE.fetch_add(1, Ordering::SeqCst);
        PROCESS.store(1, Ordering::SeqCst);
        assert!(enter().is_err());
        assert_eq!(GATE.load(Ordering::SeqCst), 0);
        assert_eq!(PROCESS.load(Ordering::SeqCst), process::id());
        // A thread was in a call.
        GATE.fetch_add(1, Ordering::SeqCst);
        child();
        assert!(enter().is_err());
        assert_eq!(GATE.load(Ordering::SeqCst), 0);
    }
}
