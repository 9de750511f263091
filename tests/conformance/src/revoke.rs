//! A peer writes continuously while its access right is removed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat_core::flags::MemPriv;

use crate::dat::{Dat, Post};
use crate::event::SUCCESS;
use crate::fixture::{Pair, expect_ok};
use crate::verdict::{Check, broken, holds, ok};

/// The call that removes the right.
#[derive(Clone, Copy, Debug)]
enum How {
    FreeLmr,
    FreeRmr,
    Unbind,
}

const BYTES: usize = 20_000;
/// Time limit, longer than any wait on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a wait, in microseconds.
const WAIT: u32 = 10_000_000;
/// Number of writes in flight.
const DEPTH: usize = 4;

/// Removes an access right during writes, `rounds` times for each way. One thread writes into a region or window of
/// the other side as fast as it can; the other removes the right at a random moment. From the return of dat_lmr_free
/// or dat_rmr_free, or the completion of an unbinding dat_rmr_bind, no byte changes, and the writer gets an error.
///
/// # Errors
/// A byte that changed, or a writer that got no error.
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
    let rmr = expect_ok(dat.rmr_create(b.pz), "dat_rmr_create")?;
    let target = match how {
        How::FreeLmr => far.remote(),
        How::FreeRmr | How::Unbind => {
            let bound = dat.rmr_bind(rmr, far.region.lmr, &far.local(), rights, pair.to, 1);
            let key = expect_ok(bound, "dat_rmr_bind")?;
            b.completes(b.request, 1, SUCCESS)?;
            far.under(key)
        }
    };
    own.fill(9);
    let begun = AtomicBool::new(false);
    let (from, requests, source) = (pair.from, a.request, [own.local()]);
    std::thread::scope(|scope| {
        // Writes until one fails; the number of writes does not matter.
        let writer = scope.spawn(|| {
            let begin = Instant::now();
            let mut under_way = 0;
            while begin.elapsed() < TIMEOUT {
                if under_way < DEPTH {
                    let posted = dat.post(from, Post::Write(target), &source, 2, 0);
                    ok(posted, "dat_ep_post_rdma_write")?;
                    under_way += 1;
                    continue;
                }
                let seen = expect_ok(dat.evd_wait(requests, WAIT, 1), "dat_evd_wait (10 s)")?.0;
                let (_, status) = seen.completion().unwrap_or((0, SUCCESS));
                under_way -= 1;
                begun.store(true, Ordering::Release);
                if status != SUCCESS {
                    return Ok(());
                }
            }
            broken("writes still succeed after the right was removed")
        });
        let begin = Instant::now();
        while !begun.load(Ordering::Acquire) && begin.elapsed() < TIMEOUT {
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
                expect_ok(bound, "dat_rmr_bind of nothing")?;
                b.completes(b.request, 3, SUCCESS)?;
            }
        }
        far.fill(5);
        // Checked during the writes, and until none can be in flight.
        let mut untouched = true;
        while !writer.is_finished() {
            untouched &= far.is_all(5);
        }
        let refused = writer
            .join()
            .unwrap_or_else(|_| broken("the writing thread panicked"));
        refused?;
        holds(
            untouched && far.is_all(5),
            "the memory changed after the right was removed",
        )
    })
}
