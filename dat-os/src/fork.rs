//! Functions that run around fork(2) (pthread_atfork(3)).

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A function that the C library calls around fork.
pub type Handler = unsafe extern "C" fn();

/// The `child` functions of this shared object. A shared object has at most three.
static CHILDREN: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];

fn remember(child: Handler) {
    let function = child as usize;
    for slot in &CHILDREN {
        let placed = slot.compare_exchange(0, function, Ordering::AcqRel, Ordering::Acquire);
        if placed.is_ok() || placed == Err(function) {
            return;
        }
    }
}

/// Runs the `child` functions of this shared object once more. The C library calls only those that were registered before fork began, and
/// a thread may register others while fork waits for it. Only for a child in which fork has not returned yet, or has just returned.
pub fn run_child_functions() {
    for slot in &CHILDREN {
        let function = slot.load(Ordering::Acquire);
        if function != 0 {
            // SAFETY: only `remember` stores here, a function that stays mapped and does what a signal handler may do.
            unsafe { std::mem::transmute::<usize, Handler>(function)() };
        }
    }
}

/// Registers functions for every later fork of this process: `before` runs in the parent before it, `parent` and `child` run after
/// it in the two processes.
///
/// # Safety
/// The functions stay mapped as long as the process may fork, except where the C library drops the registrations of a shared object
/// that it unloads, as glibc does. `child` does only what a signal handler may do: other threads may have held any lock, that of
/// the allocator included, and do not exist in the child. It may run twice.
///
/// # Errors
/// `ENOMEM`.
pub unsafe fn at_fork(
    before: Option<Handler>,
    parent: Option<Handler>,
    child: Option<Handler>,
) -> io::Result<()> {
    if let Some(child) = child {
        remember(child);
    }
    // SAFETY: the caller's promise.
    match unsafe { libc::pthread_atfork(before, parent, child) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static CALLS: AtomicU32 = AtomicU32::new(0);
    static LATE: AtomicU32 = AtomicU32::new(0);

    unsafe extern "C" fn before() {
        CALLS.fetch_add(1, Ordering::SeqCst);
    }
    unsafe extern "C" fn parent() {
        CALLS.fetch_add(10, Ordering::SeqCst);
    }
    unsafe extern "C" fn child() {
        CALLS.fetch_add(100, Ordering::SeqCst);
    }
    unsafe extern "C" fn late() {
        LATE.fetch_add(1, Ordering::SeqCst);
    }
    unsafe extern "C" fn registers_late() {
        // SAFETY: stores only.
        let _ = unsafe { at_fork(None, None, Some(late)) };
    }

    #[test]
    fn each_process_runs_its_functions() {
        // SAFETY: the functions store to an atomic; the child exits at once.
        let status = unsafe {
            at_fork(Some(before), Some(parent), Some(child)).unwrap();
            let pid = libc::fork();
            if pid == 0 {
                libc::_exit(i32::from(CALLS.load(Ordering::SeqCst) != 101));
            }
            assert!(pid > 0);
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            status
        };
        assert_eq!(status, 0, "exit status of the child");
        assert_eq!(CALLS.load(Ordering::SeqCst), 11);
    }

    #[test]
    fn a_function_that_came_during_fork_runs_on_request() {
        // SAFETY: as above.
        let status = unsafe {
            at_fork(Some(registers_late), None, None).unwrap();
            let pid = libc::fork();
            if pid == 0 {
                let before = LATE.load(Ordering::SeqCst);
                run_child_functions();
                let after = LATE.load(Ordering::SeqCst);
                libc::_exit(i32::from((before, after) != (0, 1)));
            }
            assert!(pid > 0);
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            status
        };
        assert_eq!(status, 0, "exit status of the child");
    }
}
