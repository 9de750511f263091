//! Several threads free handles that other threads use, while new objects take their place.

use std::sync::atomic::{AtomicUsize, Ordering};

use dat_core::error::{Error, Kind};
use dat_core::flags::{EvdFlags, MemPriv};

use crate::dat::{Dat, Post};
use crate::fixture::{MOMENT, Side, expect_ok};
use crate::verdict::{Check, broken};

/// Number of object kinds: PZ, EVD, CNO, EP, LMR, RMR, PSP, SRQ.
const KINDS: usize = 8;

/// Creates and frees every kind of handle `rounds` times in one thread, while `threads - 1` others use and free the
/// same handles. A late call must get `DAT_INVALID_HANDLE`, and exactly one free of an object may succeed.
///
/// # Errors
/// The first unexpected code, or an object that was freed twice or never.
pub fn storm(dat: &Dat, threads: usize, rounds: usize) -> Check {
    let side = Side::open(dat)?;
    let present: [AtomicUsize; KINDS] = Default::default();
    let freed: [AtomicUsize; KINDS] = Default::default();
    let over = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map(|seed| {
                let (present, freed, over) = (&present, &freed, &over);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed as u64);
                    while over.load(Ordering::Acquire) == 0 {
                        let kind = random.usize(..KINDS);
                        let handle = present[kind].load(Ordering::Acquire);
                        if handle == 0 {
                            std::thread::yield_now();
                            continue;
                        }
                        if random.bool() {
                            allowed(use_of(dat, kind, handle))?;
                        } else if free(dat, kind, handle)? {
                            freed[kind].fetch_add(1, Ordering::AcqRel);
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let made = (0..rounds).try_for_each(|_| {
            for kind in 0..KINDS {
                let Some(handle) = make(&side, kind)? else {
                    continue;
                };
                let before = freed[kind].load(Ordering::Acquire);
                present[kind].store(handle, Ordering::Release);
                std::thread::yield_now();
                let own = usize::from(free(dat, kind, handle)?);
                // Freed by this thread, or by another that is about to count it.
                while freed[kind].load(Ordering::Acquire) - before + own == 0 {
                    if over.load(Ordering::Acquire) != 0 {
                        return broken("an object was never freed successfully");
                    }
                    if others
                        .iter()
                        .any(std::thread::ScopedJoinHandle::is_finished)
                    {
                        return Ok(());
                    }
                    std::thread::yield_now();
                }
                let frees = freed[kind].load(Ordering::Acquire) - before + own;
                if frees != 1 {
                    return broken(format!("an object of kind {kind} was freed {frees} times"));
                }
                present[kind].store(0, Ordering::Release);
            }
            Ok(())
        });
        over.store(1, Ordering::Release);
        let others: Check = others.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| broken("a thread panicked"))
        });
        made.and(others)
    })
}

/// Creates an object; `None` if the provider lacks the kind.
fn make(side: &Side<'_>, kind: usize) -> Check<Option<usize>> {
    let dat = side.dat;
    Ok(match kind {
        0 => Some(expect_ok(dat.pz_create(side.ia), "dat_pz_create")?),
        1 => Some(side.evd(EvdFlags::SOFTWARE | EvdFlags::DTO)?),
        2 => Some(expect_ok(dat.cno_create(side.ia), "dat_cno_create")?),
        3 => Some(side.ep()?),
        4 => Some(side.memory(64, MemPriv::ALL.bits())?.region.lmr),
        5 => dat.rmr_create(side.pz).ok(),
        6 => Some(side.listen()?.0),
        _ => dat.srq_create(side.ia, side.pz, 4).ok(),
    })
}

fn use_of(dat: &Dat, kind: usize, handle: usize) -> u32 {
    match kind {
        0 => dat.pz_query(handle).err(),
        1 => match dat.evd_dequeue(handle) {
            Ok(_) => None,
            Err(_) => Some(dat.evd_post_se(handle, 1)),
        },
        2 => dat.cno_wait(handle, MOMENT / 100).err(),
        3 => Some(dat.post(handle, Post::Recv, &[], 1, 0)),
        4 => dat.lmr_query(handle).err(),
        5 => dat.rmr_query(handle).err(),
        6 => dat.psp_query(handle).err(),
        _ => Some(dat.srq_post_recv(handle, &[], 1)),
    }
    .unwrap_or(0)
}

/// Frees an object; true if the free succeeded.
fn free(dat: &Dat, kind: usize, handle: usize) -> Check<bool> {
    loop {
        let code = match kind {
            0 => dat.pz_free(handle),
            1 => dat.evd_free(handle),
            2 => dat.cno_free(handle),
            3 => dat.ep_free(handle),
            4 => dat.lmr_free(handle),
            5 => dat.rmr_free(handle),
            6 => dat.psp_free(handle),
            _ => dat.srq_free(handle),
        };
        match Error::from_code(code).map(Error::kind) {
            None => return Ok(true),
            Some(Some(Kind::InvalidHandle)) => return Ok(false),
            // A call of another thread uses the object at this moment.
            Some(Some(Kind::InvalidState)) => std::thread::yield_now(),
            Some(_) => return broken(format!("freeing kind {kind} returned {code:#x}")),
        }
    }
}

/// Checks that `code` is allowed for a use of a handle that may be freed at any moment.
fn allowed(code: u32) -> Check {
    let Some(error) = Error::from_code(code) else {
        return Ok(());
    };
    match error.kind() {
        Some(
            Kind::InvalidHandle
            | Kind::TimeoutExpired
            | Kind::QueueEmpty
            | Kind::QueueFull
            | Kind::InsufficientResources
            | Kind::InvalidState
            | Kind::Abort,
        ) => Ok(()),
        _ => broken(format!("a use returned {error}")),
    }
}
