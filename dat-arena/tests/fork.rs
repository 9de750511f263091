//! A process forks while threads wait for a lock. `parking_lot` kept them in a table of the process, with addresses in their stacks. The child
//! gives these stacks to other threads or unmaps them, and it crashed when its own threads made the table grow.

#![cfg(not(miri))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use dat_arena::BiasedMutex;

/// Longer than a thread spins before it sleeps.
const ASLEEP: Duration = Duration::from_millis(100);
/// The C library unmaps a stack of this size at once when its thread has ended, or a child's thread that got it.
const LARGE: usize = 64 << 20;
const SMALL: usize = 256 << 10;
const PARENTS_THREADS: u32 = 6;
const CHILDS_THREADS: u32 = 48;

fn start(stack: usize, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let builder = Builder::new().stack_size(stack);
    builder.spawn(body).expect("a thread")
}

/// Starts `count` threads, which wait for `lock` once they `may_begin`, and add 1.
fn waiters(
    lock: &Arc<BiasedMutex<u32>>,
    stack: usize,
    count: u32,
    may_begin: &Arc<AtomicBool>,
) -> Vec<JoinHandle<()>> {
    let wait = |_| {
        let (lock, may_begin) = (Arc::clone(lock), Arc::clone(may_begin));
        start(stack, move || {
            while !may_begin.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            *lock.lock() += 1;
        })
    };
    (0..count).map(wait).collect()
}

/// Returns whether threads that wait for a lock get it.
fn childs_threads_wait_and_go_on() -> bool {
    let (lock, may_begin) = (Arc::new(BiasedMutex::new(0)), Arc::default());
    let held = lock.lock();
    let threads = waiters(&lock, SMALL, CHILDS_THREADS, &may_begin);
    // These get the stacks of the parent's threads, which are unmapped then.
    let large: Vec<_> = (0..PARENTS_THREADS).map(|_| start(LARGE, || {})).collect();
    for thread in large {
        let _ = thread.join();
    }
    may_begin.store(true, Ordering::SeqCst);
    std::thread::sleep(ASLEEP);
    drop(held);
    threads.into_iter().all(|thread| thread.join().is_ok()) && *lock.lock() == CHILDS_THREADS
}

#[test]
fn a_child_forked_while_threads_wait_for_a_lock_uses_locks_of_its_own() {
    let lock = Arc::new(BiasedMutex::new(0));
    let held = lock.lock();
    let threads = waiters(&lock, LARGE, PARENTS_THREADS, &Arc::new(true.into()));
    std::thread::sleep(ASLEEP);
    // SAFETY: the child ends without a return from here. Its calls take no lock that a thread of the parent has: these sleep.
    let status = unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::alarm(30);
            libc::_exit(i32::from(!childs_threads_wait_and_go_on()));
        }
        assert!(pid > 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        status
    };
    assert_eq!(status, 0, "wait status of the child");
    drop(held);
    for thread in threads {
        thread.join().expect("the thread ends");
    }
    assert_eq!(*lock.lock(), PARENTS_THREADS);
}
