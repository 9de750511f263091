//! Runs each body for a few seconds on mutated captures, always the same ones, with a limit for its memory.
//!
//! `DAT_FUZZ_SECONDS` and `DAT_FUZZ_SEED` set the time and the seed. `make fuzz` runs the bodies for hours.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use dat_fuzz::captures;
use dat_fuzz::mutate::Mutator;

/// Seconds per body.
const SECONDS: u64 = 5;
/// Limit of the bytes that a run holds: buffers of 64 KiB, the engines and their memory.
const ROOM: isize = 4 << 20;

/// Counts the bytes that this thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: both calls go to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.set(HELD.get() + layout.size() as isize);
        MOST.set(MOST.get().max(HELD.get()));
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.set(HELD.get() - layout.size() as isize);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn fuzz(name: &str) {
    let body = dat_fuzz::body(name).expect("it has a name");
    let seeds = captures::seeds(name).expect("the captures");
    let seed = number("DAT_FUZZ_SEED").unwrap_or(1);
    let limit = Duration::from_secs(number("DAT_FUZZ_SECONDS").unwrap_or(SECONDS));
    for seed in &seeds {
        body(seed);
    }
    let mut mutator = Mutator::new(seed, seeds);
    let (begin, mut runs) = (Instant::now(), 0);
    while begin.elapsed() < limit {
        let input = mutator.input();
        let before = HELD.get();
        MOST.set(before);
        if let Err(panic) = std::panic::catch_unwind(|| body(&input)) {
            let file = std::env::temp_dir().join(format!("finding-{name}-{seed}-{runs}"));
            std::fs::write(&file, &input).expect("writes");
            eprintln!(
                "cargo run -p dat-fuzz -- --replay {name} {} shows it again",
                file.display()
            );
            std::panic::resume_unwind(panic);
        }
        let most = MOST.get() - before;
        assert!(most < ROOM, "run {runs} of seed {seed} held {most} bytes");
        runs += 1;
    }
    println!("{name}: {runs} runs");
    assert!(runs > 20, "{runs} runs only");
}

#[test]
fn wire() {
    fuzz("wire");
}

#[test]
fn cm() {
    fuzz("cm");
}

#[test]
fn responder() {
    fuzz("responder");
}

#[test]
fn requester() {
    fuzz("requester");
}

#[test]
fn near() {
    fuzz("near");
}

#[test]
fn pair() {
    fuzz("pair");
}

#[test]
fn conf() {
    fuzz("conf");
}

#[test]
fn scm() {
    fuzz("scm");
}

#[test]
fn port() {
    fuzz("port");
}

#[test]
fn private() {
    fuzz("private");
}

#[test]
fn ring() {
    fuzz("ring");
}
