//! Posting, progress and dequeueing on the user engine allocate nothing: every `malloc` of this process is counted, the provider's
//! too, which is a shared object.

use std::cell::Cell;
use std::ffi::c_void;
use std::time::{Duration, Instant};

use dat::{Access, CompletionFlags, DtoStatus, Ep, Evd, Event, Ia, Pz, Region, Streams};

thread_local! {
    /// Allocations of this thread.
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

// The dynamic linker takes the program's functions of these names before libc's, for all shared objects.

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

const PATIENCE: Duration = Duration::from_secs(30);
const WINDOW: usize = 20_000;
const MESSAGE: std::ops::Range<usize> = 0..64;
const RECEIVE: u64 = 1;
const REQUEST: u64 = 2;

/// One end.
struct Side {
    ep: Ep,
    done: Evd,
    connections: Evd,
    memory: Region,
    _pz: Pz,
    ia: Ia,
}

impl Side {
    fn open(name: &str) -> Self {
        let ia = Ia::open(name).expect("the IA opens");
        let pz = ia.create_pz().expect("a PZ");
        let done = ia.create_evd(64, Streams::DTO).expect("an EVD");
        let streams = Streams::CR | Streams::CONNECTION;
        let connections = ia.create_evd(16, streams).expect("an EVD");
        let builder = ia.endpoint(&pz).recv_evd(&done).request_evd(&done);
        let builder = builder.connect_evd(&connections).max_recv(4);
        let ep = builder.max_requests(8).max_reads(2).create().expect("EP");
        let memory = pz.allocate(WINDOW, Access::ALL).expect("memory");
        Self {
            ep,
            done,
            connections,
            memory,
            _pz: pz,
            ia,
        }
    }

    /// Polls or waits until `cookies` have completed.
    fn complete(&self, cookies: &[u64], waits: bool) {
        let begin = Instant::now();
        let (mut left, mut sum) = (cookies.len(), 0);
        while left > 0 {
            let event = if waits {
                Some(self.done.wait(PATIENCE).expect("an event"))
            } else {
                self.done.poll().expect("polled")
            };
            match event {
                Some(Event::Completion(done)) => {
                    assert_eq!(done.status, DtoStatus::Success);
                    left -= 1;
                    sum += done.cookie;
                }
                Some(other) => panic!("no completion: {other:?}"),
                None => assert!(begin.elapsed() < PATIENCE, "{left} completions missing"),
            }
        }
        assert_eq!(sum, cookies.iter().sum());
    }
}

#[test]
fn posts_progress_and_completions_allocate_nothing() {
    if !dat_tests::is_inner() {
        let library = dat_tests::softrxe();
        let line = |ia: &str, host: u8| {
            let params = format!("127.66.9.{host} 0 engine=user");
            dat_tests::line(ia, &library, &params)
        };
        let name = "posts_progress_and_completions_allocate_nothing";
        let (mut inner, _conf) = dat_tests::again(name, &(line("a", 1) + &line("b", 2)));
        assert!(inner.status().expect("the test runs").success());
        return;
    }
    let (a, b) = (Side::open("a"), Side::open("b"));
    let listener = b.ia.listen(None, &b.connections).expect("a PSP");
    let address = b.ia.attributes().expect("attributes").address;
    let connect = a.ep.connect(address, listener.conn_qual());
    connect.timeout(PATIENCE).start().expect("started");
    let Event::Request(request) = b.connections.wait(PATIENCE).expect("a request") else {
        panic!("the first event is a request");
    };
    request.accept(&b.ep, b"").expect("accepted");
    for side in [&a, &b] {
        let event = side.connections.wait(PATIENCE).expect("an event");
        assert!(matches!(event, Event::Established { .. }), "{event:?}");
    }
    let remote = b.memory.remote(0..WINDOW);
    let round = |waits: bool| {
        let (from, into) = ([a.memory.slice(MESSAGE)], [b.memory.slice(MESSAGE)]);
        let (all, none) = ([a.memory.slice(0..WINDOW)], CompletionFlags::empty());
        b.ep.post_recv(&into, RECEIVE).expect("posted");
        a.ep.post_send(&from, REQUEST).expect("posted");
        b.complete(&[RECEIVE], waits);
        a.complete(&[REQUEST], waits);
        a.ep.post_rdma_write(&all, remote, 3, none).expect("posted");
        a.ep.post_rdma_read(&all, remote, 4, none).expect("posted");
        a.complete(&[3, 4], waits);
    };
    for waits in [false, true] {
        // Lists grow until they have the size that they keep, some only when a thread happens to sleep. What allocates by the
        // piece never has a batch without.
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
    // The provider's allocations do count.
    let before = COUNT.get();
    let _evd = a.ia.create_evd(64, Streams::DTO).expect("an EVD");
    assert!(COUNT.get() > before);
}
