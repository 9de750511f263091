//! Threads that are cancelled in every part of a wait.

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::permit::Permit;
use crate::sleep::Slept;

/// A thread that C functions start and join; Rust's standard library does not support cancellation.
struct Thread(libc::pthread_t);

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attr: *const c_void,
        start: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
}

impl Thread {
    fn start(start: extern "C-unwind" fn(*mut c_void) -> *mut c_void, on: &World) -> Self {
        let mut thread = 0;
        let on = std::ptr::from_ref(on).cast_mut().cast();
        // SAFETY: the thread is joined before `on` is dropped.
        let code = unsafe { pthread_create(&raw mut thread, std::ptr::null(), start, on) };
        assert_eq!(code, 0);
        Self(thread)
    }

    fn cancel(&self) {
        // SAFETY: the thread is not joined yet.
        assert_eq!(unsafe { pthread_cancel(self.0) }, 0);
    }

    fn join(self) -> *mut c_void {
        let mut value = std::ptr::null_mut();
        // SAFETY: the thread was started by `start`, and is joined once.
        assert_eq!(unsafe { libc::pthread_join(self.0, &raw mut value) }, 0);
        value
    }
}

#[derive(Default)]
struct World {
    lock: Mutex<()>,
    permit: Permit,
    /// Number of waits that returned to their caller.
    returned: AtomicU32,
    inside: AtomicBool,
    dropped: AtomicU32,
}

/// A guard that counts its drop.
struct Held<'a>(&'a AtomicU32);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn world_of(on: *mut c_void) -> &'static World {
    // SAFETY: `Thread::start` passed this pointer, and the object outlives the thread.
    unsafe { &*on.cast::<World>() }
}

/// Imitates a wait of the API: a boundary that catches panics, and frames with values to drop.
fn wait(world: &World, end: Option<Instant>) -> Slept {
    let _held = Held(&world.dropped);
    world.inside.store(true, Ordering::SeqCst);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.permit.wait(end))).unwrap()
}

extern "C-unwind" fn waits_without_limit(on: *mut c_void) -> *mut c_void {
    let world = world_of(on);
    // SAFETY: this frame has no destructors.
    unsafe { point(|| wait(world, None)) };
    world.returned.fetch_add(1, Ordering::SeqCst);
    std::ptr::null_mut()
}

extern "C-unwind" fn waits_with_cancellation_disabled(on: *mut c_void) -> *mut c_void {
    let world = world_of(on);
    set_state(c::DISABLE);
    // SAFETY: as above.
    let slept = unsafe { point(|| wait(world, None)) };
    world
        .returned
        .fetch_add(u32::from(slept == Slept::Woken), Ordering::SeqCst);
    std::ptr::null_mut()
}

extern "C-unwind" fn calls_repeatedly(on: *mut c_void) -> *mut c_void {
    let world = world_of(on);
    loop {
        let step = || {
            let _deferred = Deferred::new();
            let _locked = world.lock.lock().unwrap();
            let _held = Held(&world.dropped);
            world.inside.store(true, Ordering::SeqCst);
            // This is a cancellation point of libc.
            std::thread::sleep(Duration::from_micros(1));
        };
        step();
        let soon = Instant::now() + Duration::from_micros(50);
        // SAFETY: as above.
        unsafe { point(|| wait(world, Some(soon))) };
        world.returned.fetch_add(1, Ordering::SeqCst);
    }
}

fn cancelled() -> *mut c_void {
    c::CANCELED
}

fn wait_until(happens: impl Fn() -> bool) {
    while !happens() {
        std::thread::yield_now();
    }
}

#[test]
fn a_request_before_or_during_a_sleep_ends_the_thread_after_its_frames_returned() {
    for round in 0..200 {
        let world = World::default();
        let thread = Thread::start(waits_without_limit, &world);
        if round % 2 == 0 {
            wait_until(|| world.inside.load(Ordering::SeqCst));
        }
        thread.cancel();
        assert_eq!(thread.join(), cancelled());
        assert_eq!(world.returned.load(Ordering::SeqCst), 0);
        let waits = u32::from(world.inside.load(Ordering::SeqCst));
        assert_eq!(world.dropped.load(Ordering::SeqCst), waits);
        // The next thread is woken as usual.
        let next = Thread::start(waits_without_limit, &world);
        world.permit.give();
        assert!(next.join().is_null());
    }
}

#[test]
fn a_request_stays_pending_where_the_program_disabled_cancellation() {
    let world = World::default();
    let thread = Thread::start(waits_with_cancellation_disabled, &world);
    wait_until(|| world.inside.load(Ordering::SeqCst));
    thread.cancel();
    world.permit.give();
    assert!(thread.join().is_null());
    assert_eq!(world.returned.load(Ordering::SeqCst), 1);
}

#[test]
fn a_request_at_any_moment_finds_no_lock_held() {
    for round in 0..500 {
        let world = World::default();
        let thread = Thread::start(calls_repeatedly, &world);
        wait_until(|| world.returned.load(Ordering::SeqCst) >= round % 7);
        thread.cancel();
        assert_eq!(thread.join(), cancelled());
        drop(world.lock.try_lock().expect("no thread holds the lock"));
    }
}

#[test]
fn a_permit_ends_one_wait() {
    let permit = Permit::default();
    permit.give();
    permit.give();
    assert_eq!(permit.wait(None), Slept::Woken);
    let soon = Instant::now() + Duration::from_millis(1);
    assert_eq!(permit.wait(Some(soon)), Slept::TimedOut);
    permit.give();
    assert!(permit.take());
    assert!(!permit.take());
}
