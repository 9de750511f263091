//! In which order, and how often, requests complete, and what the completion flags of a request change.

use dat_core::counters::IaCounter;
use dat_core::error::Kind;
use dat_core::flags::{CompletionFlags, MemPriv};

use super::counters::of_ia;
use super::{NOT_INLINE, statements};
use crate::dat::{Dat, Post, field};
use crate::event::{FLUSHED, SUCCESS, Seen};
use crate::fixture::{ABRUPT, Pair, TIMEOUT, expect_ok};
use crate::verdict::{Check, Verdict, broken, holds, ok, refused, same};

statements! {
    "dat_ep_post_send": "A request that fails completes after the requests before it, also if the peer has not answered them." => failure_waits;
    "dat_ep_post_send": "With DAT_COMPLETION_BARRIER_FENCE_FLAG it takes its bytes when the RDMA Reads before it are complete." => fence;
    "dat_ep_post_send": "With DAT_COMPLETION_SOLICITED_WAIT_FLAG it wakes the peer that waits for solicited receives." => solicited;
    "dat_ep_post_send": "Without that flag it does not wake that peer." => unsolicited;
    "dat_ep_post_rdma_read": "Each read completes once, with the number of its bytes." => reads;
    "dat_ep_disconnect": "Each outstanding request and receive, and each one posted later, completes once." => flushes;
    "dat_ep_disconnect": "Requests that wait for a read before them, because of a fence, complete too, once and in order." => flushes_fenced;
}

const ALL: u32 = MemPriv::ALL.bits();

/// Checks that core has not dropped a completion of `side`'s IA that belongs to no request.
fn counts_none(pair: &Pair<'_>, what: &str) -> Check {
    for side in [&pair.a, &pair.b] {
        side.quiet(side.request)?;
        side.quiet(side.recv)?;
        match of_ia(side.dat, side.ia) {
            Ok(counts) => {
                let counter = IaCounter::AsyncError;
                let text = format!("{what} completed twice: {}", counter.name());
                same(&counts[counter as usize], &0, &text)?;
            }
            Err(Verdict::Lacks(_)) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

fn failure_waits(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let gone = pair.a.memory(NOT_INLINE, ALL)?;
    ok(dat.lmr_free(gone.region.lmr), "dat_lmr_free")?;
    // The peer has no receive, so they stay without an answer.
    for cookie in 1..=2 {
        pair.a.post(pair.from, Post::Send, &[], cookie)?;
    }
    let code = dat.post(pair.from, Post::Send, &[gone.local()], 3, 0);
    if code != 0 {
        return refused(code, Kind::ProtectionViolation, "dat_ep_post_send");
    }
    // Time for the third to overtake them. A transport that has not sent it yet takes the receives first.
    if let Ok((seen, _)) = dat.evd_wait(pair.a.request, 100_000, 1) {
        // A device may break the connection at once, and then flushes the first two in order.
        holds(
            seen.completion().is_some_and(|(cookie, _)| cookie == 1),
            "a send with a destroyed LMR completed before the two sends posted before it",
        )?;
        for cookie in 2..=3 {
            pair.a.result(pair.a.request, cookie, "a send")?;
        }
        return Ok(());
    }
    for cookie in 1..=2 {
        // The connection may have ended; then they are flushed.
        pair.b.post(pair.to, Post::Recv, &[], cookie)?;
    }
    for cookie in 1..=3 {
        let name = format!("send {cookie} of three, of which the third has a destroyed LMR");
        let status = pair.a.result(pair.a.request, cookie, &name)?;
        holds(
            (status == SUCCESS) != (cookie == 3) || status == FLUSHED && cookie != 3,
            &format!("{name} completed with {status:?}"),
        )?;
    }
    pair.a.quiet(pair.a.request)
}

fn fence(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let length = pair.a.longest(1 << 20, false)?;
    let (own, far, into) = (
        pair.a.memory(length, ALL)?,
        pair.b.memory(length, ALL)?,
        pair.b.memory(length, ALL)?,
    );
    let fence = CompletionFlags::BARRIER_FENCE.bits();
    for round in 1..=4_u8 {
        far.fill(round);
        pair.b.post(pair.to, Post::Recv, &[into.local()], 1)?;
        let read = Post::Read(far.remote());
        pair.a.post(pair.from, read, &[own.local()], 2)?;
        let code = dat.post(pair.from, Post::Send, &[own.local()], 3, fence);
        ok(code, "dat_ep_post_send with a fence")?;
        pair.a.completes(pair.a.request, 2, SUCCESS)?;
        pair.a.completes(pair.a.request, 3, SUCCESS)?;
        pair.b.completes(pair.b.recv, 1, SUCCESS)?;
        holds(
            into.is_all(round),
            "a send with a fence took its bytes before the RDMA Read before it was complete",
        )?;
    }
    Ok(())
}

/// Connects two endpoints, of which the peer's waits for solicited receives only, and has posted four.
fn with_solicited_waits(dat: &Dat) -> Check<Pair<'_>> {
    let pair = Pair::apart(dat)?;
    let mut param = expect_ok(dat.ep_query(pair.to), "dat_ep_query")?;
    param.ep_attr.recv_completion_flags = CompletionFlags::SOLICITED_WAIT.bits();
    let code = dat.ep_modify(pair.to, field::RECV_FLAGS, &param);
    ok(code, "dat_ep_modify of recv_completion_flags")?;
    pair.join(pair.from, pair.to)?;
    for cookie in 1..=4 {
        pair.b.post(pair.to, Post::Recv, &[], cookie)?;
    }
    Ok(pair)
}

/// Waits on the peer's receive EVD while `sends` runs; returns what the wait did.
fn woken(
    pair: &Pair<'_>,
    microseconds: u32,
    sends: impl FnOnce() -> Check,
) -> Check<Result<(Seen, i32), u32>> {
    let (dat, recv) = (pair.b.dat, pair.b.recv);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            let _awaits = crate::calls::awaits("a solicited message on the receive EVD".into());
            dat.evd_wait(recv, microseconds, 1)
        });
        // The thread waits before the message comes: a message that is there ends any wait.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let sent = sends();
        let waited = waiter.join();
        sent?;
        waited.or_else(|_| broken("the waiting thread panicked"))
    })
}

fn solicited(dat: &Dat) -> Check {
    let pair = with_solicited_waits(dat)?;
    let flag = CompletionFlags::SOLICITED_WAIT.bits();
    let begun = std::time::Instant::now();
    let waited = woken(&pair, TIMEOUT, || {
        let code = dat.post(pair.from, Post::Send, &[], 1, flag);
        ok(code, "dat_ep_post_send, solicited")
    })?;
    let what = "dat_evd_wait (10 s) while a solicited message arrives";
    let (seen, _) = expect_ok(waited, what)?;
    same(&seen.completion(), &Some((1, SUCCESS)), "completion")?;
    holds(
        begun.elapsed().as_micros() < u128::from(TIMEOUT),
        "a message sent with DAT_COMPLETION_SOLICITED_WAIT_FLAG did not wake the peer; the timeout did",
    )
}

fn unsolicited(dat: &Dat) -> Check {
    const WAIT: u32 = 400_000;
    let pair = with_solicited_waits(dat)?;
    let begun = std::time::Instant::now();
    let waited = woken(&pair, WAIT, || {
        pair.a.post(pair.from, Post::Send, &[], 1)?;
        pair.a.completes(pair.a.request, 1, SUCCESS)
    })?;
    // When the time is over, the message may be handed out or not.
    if begun.elapsed().as_micros() >= u128::from(WAIT) {
        return Ok(());
    }
    // A transport may be unable to tell them apart, and then wakes for each.
    let what = "a message sent without DAT_COMPLETION_SOLICITED_WAIT_FLAG woke a peer that waits for solicited ones only";
    expect_ok(waited, "dat_evd_wait")?;
    Err(Verdict::Lacks(what.into()))
}

fn reads(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(4096, ALL)?, pair.b.memory(4096, ALL)?);
    for (cookie, length) in [(1, 1), (2, 4096), (3, 100), (4, 4095)] {
        let mut part = own.local();
        part.segment_length = length;
        let read = Post::Read(far.remote());
        pair.a.post(pair.from, read, &[part], cookie)?;
        let expected = Seen::Dto {
            ep: pair.from,
            cookie,
            status: SUCCESS,
            length,
        };
        let seen = pair.a.wait(pair.a.request)?;
        same(&seen, &expected, "completion of an RDMA Read")?;
    }
    counts_none(&pair, "an RDMA Read")
}

fn flushes(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    // The peer has no receive for the sends, so they are outstanding.
    for cookie in 1..=3 {
        pair.a.post(pair.from, Post::Recv, &[], cookie)?;
        pair.a.post(pair.from, Post::Send, &[], 10 + cookie)?;
    }
    ok(dat.ep_disconnect(pair.from, ABRUPT), "dat_ep_disconnect")?;
    pair.a.ends(pair.from)?;
    for cookie in 4..=5 {
        pair.a.post(pair.from, Post::Recv, &[], cookie)?;
        pair.a.post(pair.from, Post::Send, &[], 10 + cookie)?;
    }
    for cookie in 1..=5 {
        pair.a.completes(pair.a.recv, cookie, FLUSHED)?;
        pair.a.completes(pair.a.request, 10 + cookie, FLUSHED)?;
    }
    pair.b.ends(pair.to)?;
    counts_none(&pair, "a flushed request or receive")
}

fn flushes_fenced(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let length = pair.a.longest(1 << 20, false)?;
    let (own, far) = (pair.a.memory(length, ALL)?, pair.b.memory(length, ALL)?);
    let fence = CompletionFlags::BARRIER_FENCE.bits();
    for pass in 0..4 {
        let read = Post::Read(far.remote());
        pair.a.post(pair.from, read, &[own.local()], 2 * pass)?;
        let code = dat.post(pair.from, Post::Send, &[], 2 * pass + 1, fence);
        ok(code, "dat_ep_post_send with a fence")?;
    }
    ok(dat.ep_disconnect(pair.from, ABRUPT), "dat_ep_disconnect")?;
    for cookie in 0..8 {
        let name = format!("request {cookie} of eight, each second of which has a fence");
        let status = pair.a.result(pair.a.request, cookie, &name)?;
        holds(
            status == FLUSHED || status == SUCCESS && cookie == 0,
            &format!(
                "{name}, completed with {status:?} after a disconnect; expected DAT_DTO_ERR_FLUSHED"
            ),
        )?;
    }
    pair.a.ends(pair.from)?;
    pair.b.ends(pair.to)?;
    counts_none(&pair, "a flushed request")
}
