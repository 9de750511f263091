//! Concurrent destruction: two calls that end the same object, and closing an IA while other threads use it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{JoinHandle, sleep, spawn, yield_now};
use std::time::{Duration, Instant};

use dat_core::error::{Error, Kind, Subtype};

use super::functions::Thing;
use super::valid::triplet;
use super::world::{Target, World};
use crate::api::{Api, Table};
use crate::verdict::{Check, broken};

/// Pairs of calls that end an object; true if both may succeed, because the second has no effect.
const ENDS: &[([&str; 2], Thing, bool)] = &[
    (["ia_close", "ia_close"], Thing::Ia, false),
    (["pz_free", "pz_free"], Thing::Pz, false),
    (["evd_free", "evd_free"], Thing::Evd, false),
    (["cno_free", "cno_free"], Thing::Cno, false),
    (["ep_free", "ep_free"], Thing::Ep, false),
    (["lmr_free", "lmr_free"], Thing::Lmr, false),
    (["rmr_free", "rmr_free"], Thing::Rmr, false),
    (["psp_free", "psp_free"], Thing::Psp, false),
    (["csp_free", "csp_free"], Thing::Csp, false),
    (["rsp_free", "rsp_free"], Thing::Rsp, false),
    (["srq_free", "srq_free"], Thing::Srq, false),
    (["cr_reject", "cr_reject"], Thing::Cr, false),
    (["cr_accept", "cr_reject"], Thing::Cr, false),
    (["cr_accept", "cr_accept"], Thing::Cr, false),
    (["ep_disconnect", "ep_disconnect"], Thing::Ep, true),
    (["ep_disconnect", "ep_free"], Thing::Ep, true),
];

/// Ends one object of each kind from two threads at the same moment, `rounds` times: exactly one call succeeds, the
/// other returns `DAT_INVALID_HANDLE`.
///
/// # Errors
/// The first other pair of codes.
pub fn two_ends(target: &Target, rounds: usize) -> Check {
    for (calls, thing, both) in ENDS {
        if *thing == Thing::Csp && target.opener.api() == Api::V1_2 {
            continue;
        }
        for round in 0..rounds {
            let world = World::open(target)?;
            let handle = match thing {
                Thing::Pz => world.make("pz_create", &[world.ia])?,
                Thing::Ep if *both => world.joined[0],
                _ => world.one(*thing, Subtype::NoSubtype),
            };
            let codes = at_once(&world, *calls, handle);
            let told = codes.map(|code| code.and_then(Error::from_code));
            let lost = |error: Option<Error>| {
                error.is_some_and(|error| error.kind() == Some(Kind::InvalidHandle))
            };
            let fine = match told {
                [None, None] => *both,
                [None, late] | [late, None] => lost(late),
                _ => false,
            };
            if !fine {
                let [one, two] = calls;
                return broken(format!(
                    "dat_{one} and dat_{two} of one handle at once, round {round}: {told:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Makes both calls from two threads at the same moment.
fn at_once(world: &World, calls: [&'static str; 2], handle: usize) -> [Option<u32>; 2] {
    let start = Arc::new(Barrier::new(2));
    let (table, ep) = (world.table, world.ep);
    calls
        .map(|name| {
            let start = Arc::clone(&start);
            spawn(move || {
                // Third words: the endpoint of an accept, the flags of a close, the size of private data.
                let words = [handle, if name == "cr_accept" { ep } else { 0 }, 0, 0];
                start.wait();
                // SAFETY: no pointers but NULL.
                unsafe { table.call(name, &words) }
            })
        })
        .map(|thread| thread.join().unwrap_or(None))
}

/// Time limit for threads to detect that their IA is closed.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Number of agent calls.
static CALLED: AtomicUsize = AtomicUsize::new(0);
/// The table that the agent calls.
static CALLBACK: AtomicUsize = AtomicUsize::new(0);

/// A consumer's agent, which dequeues the EVD's events as agents do. `instance` is the function.
extern "C" fn agent(instance: usize, evd: usize) {
    CALLED.fetch_add(1, Ordering::Relaxed);
    if instance != 0 && evd != 0 {
        let mut event = [0_u64; 16];
        // SAFETY: the test passes dat_evd_dequeue of the table as the agent's data, and there is room for an event.
        unsafe {
            let dequeue: extern "C" fn(usize, *mut u64) -> u32 = std::mem::transmute(instance);
            dequeue(evd, event.as_mut_ptr());
        }
    }
    CALLBACK.fetch_add(1, Ordering::Relaxed);
}

/// Closes an IA abruptly, `rounds` times, while messages are in flight, threads wait on every EVD and on a CNO, and an
/// agent is called. Every call must return with an appropriate code. Returns the number of agent calls.
///
/// # Errors
/// Another code, or a thread that does not return.
pub fn close_under_way(target: &Target, rounds: usize) -> Check<usize> {
    let before = CALLED.load(Ordering::Relaxed);
    for round in 0..rounds {
        one_close(target, round)?;
    }
    if CALLED.load(Ordering::Relaxed) != CALLBACK.load(Ordering::Relaxed) {
        return broken("an agent was still running when dat_ia_close returned");
    }
    Ok(CALLED.load(Ordering::Relaxed) - before)
}

/// Checks the code of a call on an object whose IA is closed concurrently.
fn allowed(name: &str, code: u32) -> Result<bool, String> {
    let Some(error) = Error::from_code(code) else {
        return Ok(true);
    };
    match error.kind() {
        Some(Kind::InvalidHandle | Kind::Abort) => Ok(false),
        Some(
            Kind::InvalidState
            | Kind::QueueEmpty
            | Kind::QueueFull
            | Kind::TimeoutExpired
            | Kind::InsufficientResources,
        ) => Ok(true),
        _ => Err(format!("dat_{name} under dat_ia_close returned {error}")),
    }
}

/// Repeats a call until the handle is invalid.
fn repeat(
    table: Table,
    name: &'static str,
    words: impl Fn(usize, usize) -> Vec<usize> + Send + 'static,
) -> JoinHandle<Result<(), String>> {
    spawn(move || {
        let mut event = [0_u64; 16];
        let mut more = 0_u64;
        loop {
            let words = words(&raw mut event as usize, &raw mut more as usize);
            // SAFETY: places for an event and a number, and memory that stays for ever.
            let code = unsafe { table.call(name, &words) };
            if !allowed(name, code.unwrap_or(0))? {
                return Ok(());
            }
            yield_now();
        }
    })
}

fn one_close(target: &Target, round: usize) -> Check {
    let mut world = World::open(target)?;
    let table = world.table;
    let api = table.api();
    let callback = table.slot("evd_dequeue").unwrap_or(0);
    let cno = world.make(
        "cno_create",
        &[
            world.ia,
            callback,
            agent as extern "C" fn(usize, usize) as usize,
        ],
    )?;
    let noisy = world.make("evd_create", &[world.ia, 64, cno, 0x01])?;
    let quiet = world.one(Thing::Cno, Subtype::NoSubtype);
    let memory = world.memory.as_ptr() as u64;
    let iov: &'static [u64] = triplet(api, memory, 64, world.lmr_context).leak();
    let remote: &'static [u64] = triplet(api, memory + 2048, 64, world.rmr_context).leak();
    let (iov, remote) = (iov.as_ptr() as usize, remote.as_ptr() as usize);
    let software: &'static [u64] = vec![0x1_0001, 0, 7, 0].leak();
    let software = software.as_ptr() as usize;
    let [from, to] = world.joined;
    let mut threads = vec![
        repeat(table, "ep_post_recv", move |_, _| vec![to, 1, iov, 1, 0]),
        repeat(table, "ep_post_send", move |_, _| vec![from, 1, iov, 2, 0]),
        repeat(table, "ep_post_rdma_write", move |_, _| {
            vec![from, 1, iov, 3, remote, 0]
        }),
        repeat(table, "evd_post_se", move |_, _| vec![noisy, software]),
        repeat(table, "cno_wait", move |evd, _| {
            vec![quiet, u32::MAX as usize, evd]
        }),
    ];
    for evd in world.evds() {
        threads.push(repeat(table, "evd_wait", move |event, more| {
            vec![evd, u32::MAX as usize, 1, event, more]
        }));
    }
    let busy = Arc::new(AtomicBool::new(true));
    let closer = {
        let (ia, busy) = (world.ia, Arc::clone(&busy));
        spawn(move || {
            // The rounds close at different moments of the traffic.
            sleep(Duration::from_micros(300 * round as u64));
            // SAFETY: no pointers.
            let code = unsafe { table.call("ia_close", &[ia, 0]) };
            busy.store(false, Ordering::Release);
            code
        })
    };
    world.ia = 0;
    let begun = Instant::now();
    while !(closer.is_finished() && threads.iter().all(JoinHandle::is_finished)) {
        if begun.elapsed() > TIMEOUT {
            let who = if busy.load(Ordering::Acquire) {
                "dat_ia_close has"
            } else {
                "calls on its objects have"
            };
            return broken(format!("{who} not returned within {TIMEOUT:?}"));
        }
        sleep(Duration::from_millis(1));
    }
    if closer.join().ok().flatten() != Some(0) {
        return broken("dat_ia_close failed during traffic");
    }
    let ended: Result<(), String> = threads
        .into_iter()
        .try_for_each(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())));
    ended.or_else(broken)
}
