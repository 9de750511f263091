//! A peer writes without pause while the right to is taken away.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat_core::flags::MemPriv;

use crate::dat::{Dat, Post};
use crate::event::SUCCESS;
use crate::fixture::{Pair, made};
use crate::verdict::{Check, broken, holds, ok};

/// How the right is taken away.
#[derive(Clone, Copy, Debug)]
enum How {
    FreeLmr,
    FreeRmr,
    Unbind,
}

const BYTES: usize = 20_000;
/// Longer than any wait on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// In microseconds.
const WAIT: u32 = 10_000_000;
/// Writes on their way at a time.
const DEPTH: usize = 4;

/// `rounds` times each: one thread writes into a region or window of the other side as fast as it can, the other takes the right away at
/// any moment. From the moment that dat_lmr_free or dat_rmr_free returned, or an unbinding dat_rmr_bind completed, no byte changes any
/// more, and the writer gets an error.
///
/// # Errors
/// A byte that changed, or a writer that is never refused.
pub fn revoke(dat: &Dat, rounds: usize) -> Check {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..rounds {
        for how in [How::FreeLmr, How::FreeRmr, How::Unbind] {
            round(dat, how, Duration::from_micros(random.u64(..2000)))?;
        }
    }
    Ok(())
}

fn round(dat: &Dat, how: How, delay: Duration) -> Check {
    let pair = Pair::connected(dat)?;
    let (a, b) = (&pair.a, &pair.b);
    let own = a.memory(BYTES, MemPriv::ALL.bits())?;
    let far = b.memory(BYTES, MemPriv::ALL.bits())?;
    let rights = MemPriv::REMOTE_WRITE.bits();
    let rmr = made(dat.rmr_create(b.pz), "dat_rmr_create")?;
    let target = match how {
        How::FreeLmr => far.remote(),
        How::FreeRmr | How::Unbind => {
            let bound = dat.rmr_bind(rmr, far.region.lmr, &far.local(), rights, pair.to, 1);
            let key = made(bound, "dat_rmr_bind")?;
            b.completes(b.request, 1, SUCCESS)?;
            far.under(key)
        }
    };
    own.fill(9);
    let begun = AtomicBool::new(false);
    let (from, requests, source) = (pair.from, a.request, [own.local()]);
    std::thread::scope(|scope| {
        // Until a write fails; how long it kept writing does not matter.
        let writer = scope.spawn(|| {
            let begin = Instant::now();
            let mut under_way = 0;
            while begin.elapsed() < PATIENCE {
                if under_way < DEPTH {
                    let posted = dat.post(from, Post::Write(target), &source, 2, 0);
                    ok(posted, "dat_ep_post_rdma_write")?;
                    under_way += 1;
                    continue;
                }
                let seen = made(dat.evd_wait(requests, WAIT, 1), "dat_evd_wait (10 s)")?.0;
                let (_, status) = seen.completion().unwrap_or((0, SUCCESS));
                under_way -= 1;
                begun.store(true, Ordering::Release);
                if status != SUCCESS {
                    return Ok(());
                }
            }
            broken("writes go on although the right is gone")
        });
        let begin = Instant::now();
        while !begun.load(Ordering::Acquire) && begin.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        let begin = Instant::now();
        while begin.elapsed() < delay {
            std::thread::yield_now();
        }
        match how {
            How::FreeLmr => ok(dat.lmr_free(far.region.lmr), "dat_lmr_free")?,
            How::FreeRmr => ok(dat.rmr_free(rmr), "dat_rmr_free")?,
            How::Unbind => {
                let mut nothing = far.local();
                nothing.segment_length = 0;
                let bound = dat.rmr_bind(rmr, far.region.lmr, &nothing, rights, pair.to, 3);
                made(bound, "dat_rmr_bind of nothing")?;
                b.completes(b.request, 3, SUCCESS)?;
            }
        }
        far.fill(5);
        // While writes go on, and until none can be on its way any more.
        let mut untouched = true;
        while !writer.is_finished() {
            untouched &= far.is_all(5);
        }
        let refused = writer
            .join()
            .unwrap_or_else(|_| broken("the writer panicked"));
        refused?;
        holds(
            untouched && far.is_all(5),
            "bytes arrived after the right was gone",
        )
    })
}
