//! What stays behind: descriptors, threads and memory of the process must not grow with objects that are gone.

use std::time::{Duration, Instant};

use dat_core::flags::{EvdFlags, MemPriv};

use super::statements;
use crate::dat::{Dat, Post, Source};
use crate::event::SUCCESS;
use crate::fixture::{ABRUPT, Pair, Side, expect_ok};
use crate::verdict::{Check, broken, ok};

statements! {
    "dat_ep_free": "Descriptors and threads of the process do not grow with connections that have ended." => connections;
    "dat_psp_free": "Descriptors of the process do not grow with service points that were freed." => service_points;
    "dat_ep_free": "Memory of the process does not grow with endpoints that were freed." => endpoints;
    "dat_ep_post_send": "Memory of the process does not grow with messages that have arrived." => messages;
    "dat_lmr_free": "Memory of the process does not grow with LMRs that were freed." => regions;
    "dat_evd_free": "Memory of the process does not grow with EVDs that were freed." => dispatchers;
}

const ALL: u32 = MemPriv::ALL.bits();
/// Time for threads to end, and for descriptors of connections to close.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the numbers of descriptors and threads of this process.
fn held() -> [usize; 2] {
    let count = |folder| std::fs::read_dir(folder).map_or(0, Iterator::count);
    [count("/proc/self/fd"), count("/proc/self/task")]
}

/// Does something `rounds` times, and again; broken if each of those leaves a descriptor or a thread. Half of that many may stay:
/// other statements run at the same time in a program with threads.
fn leaves_nothing(dat: &Dat, rounds: usize, what: &str, mut round: impl FnMut() -> Check) -> Check {
    let mut all = |times: usize| -> Check {
        for _ in 0..times {
            dat.report_progress();
            round()?;
        }
        Ok(())
    };
    // What lives as long as the process is there after these.
    all(4)?;
    let before = held();
    all(rounds)?;
    let begun = Instant::now();
    loop {
        let after = held();
        let more = |n: usize| after[n].saturating_sub(before[n]);
        if more(0).max(more(1)) < rounds / 2 {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return broken(format!(
                "{rounds} {what} that are gone left {} descriptors and {} threads in the process; expected none",
                more(0),
                more(1)
            ));
        }
        dat.report_progress();
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn connections(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (a, b) = (&pair.a, &pair.b);
    leaves_nothing(dat, 40, "connections", || {
        let (from, to) = (a.ep()?, b.ep()?);
        pair.join(from, to)?;
        ok(dat.ep_disconnect(from, ABRUPT), "dat_ep_disconnect")?;
        a.ends(from)?;
        b.ends(to)?;
        [from, to]
            .into_iter()
            .try_for_each(|ep| ok(dat.ep_free(ep), "dat_ep_free"))
    })
}

fn service_points(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    leaves_nothing(dat, 40, "service points", || side.unused().map(drop))
}

/// Returns the bytes of memory that this process has in use.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
    // SAFETY: a plain call.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages.unwrap_or(0) * u64::try_from(size).unwrap_or(4096)
}

/// Times that something is done, each a number of rounds, until the memory does not grow.
const WINDOWS: usize = 8;
/// Bytes for each freed LMR that say nothing: a provider may keep the memory of a handle, so that a stale one is an error. Ours reuses
/// that of an endpoint within the windows, and that of an LMR later.
const KEPT: u64 = 512;
/// The same where there are too few objects for the first of them to be reused, or where other threads take memory too.
const KEPT_OF_FEW: u64 = 8192;
/// Rounds in which the objects of all windows are so many that they are reused.
const MANY: usize = 1000;
/// Growth that says nothing: an allocator takes memory in such pieces.
const NOISE: u64 = 64 << 10;

/// Does something many times; broken if the memory grows each time, by more than `kept` bytes in each round.
fn does_not_grow(dat: &Dat, what: &str, kept: u64, mut round: impl FnMut() -> Check) -> Check {
    let rounds = dat.load();
    let kept = if rounds < MANY || !dat.is_alone() {
        KEPT_OF_FEW
    } else {
        kept
    };
    let mut growths = Vec::new();
    for window in 0..WINDOWS {
        let before = resident();
        for n in 0..rounds {
            if n % 16 == 0 {
                dat.report_progress();
            }
            round()?;
        }
        let growth = resident().saturating_sub(before);
        // The first window fills what is kept for reuse.
        if window > 0 && growth < NOISE.max(rounds as u64 * kept) {
            return Ok(());
        }
        growths.push(growth / rounds as u64);
    }
    broken(format!(
        "the memory of the process grows with each of many {what}, by these bytes: {:?}; expected 0",
        &growths[1..]
    ))
}

fn endpoints(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    does_not_grow(dat, "endpoints that were freed", 0, || {
        ok(dat.ep_free(side.ep()?), "dat_ep_free")
    })
}

fn messages(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (a, b) = (&pair.a, &pair.b);
    let (own, far) = (a.memory(4096, ALL)?, b.memory(4096, ALL)?);
    does_not_grow(dat, "messages of 4,096 bytes", KEPT, || {
        b.post(pair.to, Post::Recv, &[far.local()], 1)?;
        a.post(pair.from, Post::Send, &[own.local()], 2)?;
        b.completes(b.recv, 1, SUCCESS)?;
        a.completes(a.request, 2, SUCCESS)
    })
}

fn regions(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let memory = side.memory(4096, ALL)?;
    does_not_grow(dat, "LMRs that were freed", KEPT, || {
        let source = Source::Virtual(memory.bytes());
        let region = dat.lmr_create(side.ia, source, side.pz, ALL);
        let region = expect_ok(region, "dat_lmr_create")?;
        ok(dat.lmr_free(region.lmr), "dat_lmr_free")
    })
}

fn dispatchers(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    // The handles of so many EVDs are not used again within the windows.
    does_not_grow(dat, "EVDs that were freed", KEPT_OF_FEW, || {
        ok(dat.evd_free(side.evd(EvdFlags::DTO)?), "dat_evd_free")
    })
}
