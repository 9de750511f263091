//! Endpoints that other threads end while they are being connected.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{JoinHandle, sleep, spawn, yield_now};
use std::time::{Duration, Instant};

use dat_core::error::{Error, Kind};
use dat_core::event::ConnectionEvent;

use super::functions::FUNCTIONS;
use super::world::{CR_WORD, Target, World};
use crate::api::Table;
use crate::verdict::{Check, broken};

/// Number of requests to accept, within [`LONGEST`].
const ACCEPTED: usize = 150;
const LONGEST: Duration = Duration::from_secs(8);
/// Interval of the checks for that number.
const LOOK: Duration = Duration::from_millis(200);
/// Timeout of an attempt in microseconds, longer than a connection takes: attempts without an answer end.
const TIMEOUT: usize = 500_000;

/// State shared by the threads: the two endpoints that they connect and end, which change, and the progress.
struct Shared {
    table: Table,
    ends: [AtomicUsize; 2],
    accepted: AtomicUsize,
    /// A quarter of the longest pause before an end, in microseconds. It grows when hardly any request is answered.
    pause: AtomicU64,
    over: AtomicBool,
}

impl Shared {
    /// Makes a call without pointers, or with valid ones; true if it succeeded.
    fn call(&self, name: &str, words: &[usize]) -> Result<bool, String> {
        // SAFETY: the callers in this file pass handles, numbers, and places on their stacks or of the world.
        let code = unsafe { self.table.call(name, words) };
        let Some(error) = code.and_then(Error::from_code) else {
            return Ok(true);
        };
        let function = FUNCTIONS.iter().find(|function| function.name == name);
        let named = |kind| function.is_some_and(|function| function.may_answer(kind));
        let expected = |kind: &Kind| *kind != Kind::InternalError && named(*kind);
        if error.kind().as_ref().is_some_and(expected) {
            return Ok(false);
        }
        Err(format!(
            "dat_{name} returned {error}, which its page does not name"
        ))
    }

    fn end(&self, which: usize) -> usize {
        self.ends[which].load(Ordering::Acquire)
    }

    /// Starts a thread that repeats `step`.
    fn repeat(
        self: &Arc<Self>,
        mut step: impl FnMut(&Self, usize) -> Result<(), String> + Send + 'static,
    ) -> JoinHandle<Result<(), String>> {
        let shared = Arc::clone(self);
        spawn(move || {
            let mut round = 0;
            while !shared.over.load(Ordering::Acquire) {
                step(&shared, round)?;
                round += 1;
                yield_now();
            }
            Ok(())
        })
    }

    /// Dequeues an event; returns the word that holds the CR of a request.
    fn take(&self, evd: usize) -> Result<Option<usize>, String> {
        let mut event = [0_u64; 16];
        let words = [evd, event.as_mut_ptr() as usize];
        let taken = self.call("evd_dequeue", &words)?;
        Ok(taken.then_some(event[CR_WORD] as usize))
    }
}

/// Ends endpoints while they are being connected. One thread connects an endpoint, one accepts with another, and two
/// disconnect, reset and free both at random moments. Every call returns a code that its page names, and at the end
/// both endpoints can be connected. Returns the number of accepted requests.
///
/// # Errors
/// The first call that returned another code, or a connection that fails afterwards.
pub fn ends_during_connect(target: &Target) -> Check<usize> {
    let world = World::open(target)?;
    let shared = Arc::new(Shared {
        table: world.table,
        ends: [world.endpoint()?, world.endpoint()?].map(AtomicUsize::new),
        accepted: AtomicUsize::new(0),
        pause: AtomicU64::new(0),
        over: AtomicBool::new(false),
    });
    let (address, qual) = (world.address, world.qual as usize);
    let (requests, events) = (world.cr_evd, world.conn);
    let mut threads = vec![
        shared.repeat(move |shared, _| {
            let words = [shared.end(0), address, qual, TIMEOUT, 0, 0, 0, 0];
            shared.call("ep_connect", &words).map(drop)
        }),
        shared.repeat(move |shared, _| {
            if let Some(cr) = shared.take(requests)? {
                let accepted = shared.call("cr_accept", &[cr, shared.end(1), 0, 0])?;
                shared
                    .accepted
                    .fetch_add(usize::from(accepted), Ordering::Relaxed);
                if !accepted {
                    shared.call("cr_reject", &[cr, 0, 0])?;
                }
            }
            Ok(())
        }),
        shared.repeat(move |shared, _| shared.take(events).map(drop)),
    ];
    let parts = world.parts();
    for which in 0..2 {
        threads.push(shared.repeat(move |shared, round| {
            let pause = shared.pause.load(Ordering::Relaxed) * (round as u64 % 5);
            if pause != 0 {
                sleep(Duration::from_micros(pause));
            }
            let ep = shared.end(which);
            shared.call("ep_disconnect", &[ep, 0])?;
            if round % 3 != 0 {
                shared.call("ep_reset", &[ep])?;
            }
            if round % 7 == 0 && shared.call("ep_free", &[ep])? {
                let mut made = 0_usize;
                let mut words = parts.to_vec();
                words.push(std::ptr::from_mut(&mut made) as usize);
                if !shared.call("ep_create", &words)? {
                    return Err("dat_ep_create returned no endpoint".into());
                }
                shared.ends[which].store(made, Ordering::Release);
            }
            Ok(())
        }));
    }
    let (begun, mut before) = (Instant::now(), 0);
    let mut next_look = LOOK;
    loop {
        sleep(Duration::from_millis(5));
        let (accepted, elapsed) = (shared.accepted.load(Ordering::Relaxed), begun.elapsed());
        if accepted >= ACCEPTED || elapsed >= LONGEST || threads.iter().any(JoinHandle::is_finished)
        {
            break;
        }
        if elapsed >= next_look {
            if accepted < before + ACCEPTED / 20 {
                let longer = (2 * shared.pause.load(Ordering::Relaxed)).clamp(50, 10_000);
                shared.pause.store(longer, Ordering::Relaxed);
            }
            (before, next_look) = (accepted, elapsed + LOOK);
        }
    }
    shared.over.store(true, Ordering::Release);
    let ended: Result<(), String> = threads
        .into_iter()
        .try_for_each(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())));
    ended.or_else(broken)?;
    connect_once(&world, &shared)?;
    Ok(shared.accepted.load(Ordering::Relaxed))
}

/// Checks that a connection works after all that.
fn connect_once(world: &World, shared: &Shared) -> Check {
    let again = |e: String| broken::<()>(e);
    for which in 0..2 {
        let ep = shared.end(which);
        for call in ["ep_disconnect", "ep_reset"] {
            shared.call(call, &[ep, 0]).map(drop).or_else(again)?;
        }
    }
    // A new EVD: requests of ended attempts may still arrive at the other one.
    let requests = world.make("evd_create", &[world.ia, 4, 0, 0x10])?;
    let (mut psp, mut qual) = (0_usize, 0_u64);
    let qual_place = std::ptr::from_mut(&mut qual) as usize;
    let psp_place = std::ptr::from_mut(&mut psp) as usize;
    let words = [world.ia, qual_place, requests, 0, psp_place];
    world.call("psp_create_any", &words)?;
    while shared.take(world.conn).or_else(broken)?.is_some() {}
    let (address, patience) = (world.address, 10_000_000);
    let words = [shared.end(0), address, qual as usize, patience, 0, 0, 0, 0];
    world.call("ep_connect", &words)?;
    let (_, cr) = world.event(requests)?;
    world.call("cr_accept", &[cr, shared.end(1), 0, 0])?;
    let mut established = 0;
    while established < 2 {
        // The last event of an ended attempt of another thread may be late.
        let (number, _) = world.event(world.conn)?;
        established += usize::from(number == ConnectionEvent::Established as u32);
    }
    Ok(())
}
