//! fork(2) while other threads are in calls: a child would inherit the locks that those threads hold, and nobody to release them. So
//! fork waits until nobody is inside, a second at most, and whoever comes meanwhile waits for fork.
//!
//! Only calls that take locks of the whole process go through here: opening and closing IAs, and what maps an IA's number.

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dat_core::error::{Error, Kind, Result};

/// Threads in calls.
static INSIDE: AtomicU32 = AtomicU32::new(0);
/// A thread is about to fork.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// This process was forked while a thread was inside that did not come out: locks may be held for ever.
static SPOILED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// How often this thread is inside: a provider's init may fork, or call back.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// How long fork waits for a call to end: most take less than a millisecond, closing an IA of the user-space engine whose peers do not
/// answer nearly one second, one that looks for a host name may take long.
const PATIENCE: Duration = Duration::from_secs(3);

const NAP: Duration = Duration::from_micros(50);

/// As long as it lives its thread is in a call.
#[derive(Debug)]
pub(crate) struct Inside(());

/// Enters a call.
///
/// # Errors
/// `DAT_INTERNAL_ERROR` in a child of a fork that did not find the right moment.
pub(crate) fn enter() -> Result<Inside> {
    let outermost = DEPTH.get() == 0;
    loop {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        if !outermost || !CLOSED.load(Ordering::SeqCst) {
            break;
        }
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        std::thread::sleep(NAP);
    }
    DEPTH.set(DEPTH.get() + 1);
    let inside = Inside(());
    if SPOILED.load(Ordering::Relaxed) {
        tracing::error!(
            "this process was forked while another thread was in a DAT call for over three seconds: it cannot use the library, but may exec"
        );
        return Err(Error::of(Kind::InternalError));
    }
    Ok(inside)
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// From now on fork waits.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: glibc drops the registration when this shared object is unloaded; `child` only stores.
        let watched = unsafe { dat_os::fork::at_fork(Some(before), Some(parent), Some(child)) };
        if let Err(error) = watched {
            tracing::warn!(
                %error,
                "pthread_atfork: fork only while no thread is in a DAT call"
            );
        }
    });
}

unsafe extern "C" fn before() {
    CLOSED.store(true, Ordering::SeqCst);
    let mine = DEPTH.get();
    let end = Instant::now() + PATIENCE;
    while INSIDE.load(Ordering::SeqCst) > mine && Instant::now() < end {
        std::thread::sleep(NAP);
    }
}

unsafe extern "C" fn parent() {
    CLOSED.store(false, Ordering::SeqCst);
}

/// Stores only: of the threads only this one is left.
unsafe extern "C" fn child() {
    let mine = DEPTH.get();
    if INSIDE.swap(mine, Ordering::SeqCst) > mine {
        SPOILED.store(true, Ordering::Relaxed);
    }
    CLOSED.store(false, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    /// All in one: the gate is one a process, and other tests may be inside.
    #[test]
    fn fork_waits_for_calls_and_calls_wait_for_fork() {
        // SAFETY: what glibc calls around fork, without one.
        let (before, parent, child) = unsafe { (|| before(), || parent(), || child()) };
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
            before();
            begin.elapsed()
        });
        while !CLOSED.load(Ordering::SeqCst) {
            thread::sleep(NAP);
        }
        let late = thread::spawn(|| enter().map(drop));
        thread::sleep(Duration::from_millis(20));
        assert!(!forker.is_finished() && !late.is_finished());
        leave.send(()).unwrap();
        caller.join().unwrap();
        assert!(forker.join().unwrap() >= Duration::from_millis(20));
        assert!(!late.is_finished());
        parent();
        late.join().unwrap().unwrap();
        // Nobody was inside: a child may go on.
        child();
        enter().unwrap();
        // Somebody was.
        INSIDE.fetch_add(1, Ordering::SeqCst);
        child();
        assert!(enter().is_err());
        assert_eq!(INSIDE.load(Ordering::SeqCst), 0);
    }
}
