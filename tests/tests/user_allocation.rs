//! Posting, progress and dequeueing on the user engine do not allocate. Every `malloc` of this process is counted,
//! including the provider's, which is a shared object.

use std::cell::Cell;
use std::ffi::c_void;
use std::time::Instant;

use dat::{CompletionFlags, DtoStatus, Event, Streams};
use dat_tests::engine::{Endpoint, Limits, TIMEOUT, with_engine};

thread_local! {
    /// Number of allocations of this thread.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: usize) -> *mut c_void;
}

fn count() {
    COUNT.set(COUNT.get() + 1);
}

// The dynamic linker prefers the program's functions of these names to libc's, for all shared objects.

// SAFETY: the only function of this name in the program; it is libc's.
#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    count();
    // SAFETY: the arguments are handed on.
    unsafe { __libc_malloc(size) }
}

// SAFETY: the only function of this name in the program; it is libc's.
#[unsafe(no_mangle)]
extern "C" fn calloc(number: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: the arguments are handed on.
    unsafe { __libc_calloc(number, size) }
}

// SAFETY: the only function of this name in the program; it is libc's.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    count();
    // SAFETY: the arguments are handed on.
    unsafe { __libc_realloc(old, size) }
}

const WINDOW: usize = 20_000;
const MESSAGE: std::ops::Range<usize> = 0..64;
const RECEIVE: u64 = 1;
const REQUEST: u64 = 2;

fn open(name: &str) -> Endpoint {
    let limits = Limits {
        receives: 4,
        requests: 8,
        reads: 2,
        memory: WINDOW,
    };
    Endpoint::open(name, limits)
}

/// Polls or waits until `cookies` have completed.
fn complete(endpoint: &Endpoint, cookies: &[u64], waits: bool) {
    let begin = Instant::now();
    let (mut left, mut sum) = (cookies.len(), 0);
    while left > 0 {
        let event = if waits {
            Some(endpoint.completions.wait(TIMEOUT).expect("an event"))
        } else {
            endpoint.completions.poll().expect("polled")
        };
        match event {
            Some(Event::Completion(done)) => {
                assert_eq!(done.status, DtoStatus::Success);
                left -= 1;
                sum += done.cookie;
            }
            Some(other) => panic!("no completion: {other:?}"),
            None => assert!(begin.elapsed() < TIMEOUT, "{left} completions missing"),
        }
    }
    assert_eq!(sum, cookies.iter().sum::<u64>());
}

#[test]
fn posts_progress_and_completions_allocate_nothing() {
    let name = "posts_progress_and_completions_allocate_nothing";
    with_engine(name, "127.66.9", count_allocations);
}

fn count_allocations() {
    let (a, b) = (open("a"), open("b"));
    a.connect(&b);
    let remote = b.memory.remote(0..WINDOW);
    let round = |waits: bool| {
        let (from, into) = ([a.memory.slice(MESSAGE)], [b.memory.slice(MESSAGE)]);
        let (all, none) = ([a.memory.slice(0..WINDOW)], CompletionFlags::empty());
        b.ep.post_recv(&into, RECEIVE).expect("posted");
        a.ep.post_send(&from, REQUEST).expect("posted");
        complete(&b, &[RECEIVE], waits);
        complete(&a, &[REQUEST], waits);
        a.ep.post_rdma_write(&all, remote, 3, none).expect("posted");
        a.ep.post_rdma_read(&all, remote, 4, none).expect("posted");
        complete(&a, &[3, 4], waits);
    };
    for waits in [false, true] {
        // Lists grow to their final size, some only when a thread happens to sleep. If something allocated for every
        // operation, no batch would be free of allocations.
        let batch = || {
            let before = COUNT.get();
            for _ in 0..30 {
                round(waits);
            }
            COUNT.get() - before
        };
        let counts: Vec<usize> = (0..5).map(|_| batch()).collect();
        assert!(counts[1..].contains(&0), "waiting: {waits}: {counts:?}");
    }
    // Checks that the provider's allocations are counted.
    let before = COUNT.get();
    let _evd = a.ia.create_evd(64, Streams::DTO).expect("an EVD");
    assert!(COUNT.get() > before);
}
