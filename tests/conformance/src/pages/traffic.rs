//! What clients do with connections: many messages, sizes, threads and connections, and waits for them.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_abi::v2_0::types::DatLmrTriplet;
use dat_core::counters::IaCounter;
use dat_core::error::{Error, Kind};
use dat_core::event::ConnectionEvent;
use dat_core::flags::{EvdFlags, MemPriv};

use super::counters::of_ia;
use super::statements;
use crate::dat::{Dat, Post};
use crate::event::{SUCCESS, Seen};
use crate::fixture::{ABRUPT, CONSUMER, GRACEFUL, Pair, Side, TIMEOUT, expect_ok};
use crate::names::EventNumber;
use crate::verdict::{Check, Verdict, broken, holds, ok, refused, same};

statements! {
    "dat_ep_post_send": "Memory without the local read privilege can be sent and written from: a local read is always allowed." => local_read;
    "dat_ep_post_send": "Messages of 0 to 131,072 bytes arrive in order, each with its length and its bytes." => lengths;
    "dat_ep_post_send": "Segments are sent in the order of the list, and received into the segments of the receive." => segments;
    "dat_ep_post_send": "Threads that have an endpoint each send and receive at the same time." => threads;
    "dat_ep_post_send": "Threads post on one endpoint at the same time, and each post completes once." => threads_on_one;
    "dat_ep_post_send": "Each send, each write and each receive completes once, and no asynchronous error is counted." => once;
    "dat_ep_post_recv": "Receives that the active side posts before it connects take messages, in order." => active_receives;
    "dat_ep_post_rdma_write": "The bytes of a write are in place when the receive of a later message completes." => write_before_send;
    "dat_evd_wait": "A threshold of n waits for n completions, of messages too." => threshold;
    "dat_evd_wait": "A thread that waits is woken by each completion of 1,000 round trips." => round_trips;
    "dat_cno_wait": "A completion triggers the CNO of its EVD." => cno;
    "dat_ep_connect": "1,000 endpoints, or as many as the attributes allow, are connected at the same time, and each carries a message." => thousand;
    "dat_ia_close": "After 100 connections, each with memory of its own, all objects are free, and the IA closes gracefully." => churn;
    "every page": "No call returns DAT_INTERNAL_ERROR, whether the provider supports it or not." => no_internal_error;
}

const ALL: u32 = MemPriv::ALL.bits();

fn once(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (from, into) = (pair.a.memory(32, ALL)?, pair.b.memory(32, ALL)?);
    for cookie in 0..20 {
        pair.b.post(pair.to, Post::Recv, &[into.local()], cookie)?;
        let write = Post::Write(into.remote());
        pair.a
            .post(pair.from, write, &[from.local()], 100 + cookie)?;
        pair.a
            .post(pair.from, Post::Send, &[from.local()], cookie)?;
        pair.a.completes(pair.a.request, 100 + cookie, SUCCESS)?;
        pair.a.completes(pair.a.request, cookie, SUCCESS)?;
        pair.b.completes(pair.b.recv, cookie, SUCCESS)?;
    }
    pair.a.quiet(pair.a.request)?;
    pair.b.quiet(pair.b.recv)?;
    for side in [&pair.a, &pair.b] {
        // A core that finds no request for a completion drops it and counts an error.
        match of_ia(dat, side.ia) {
            Ok(counts) => {
                let counter = IaCounter::AsyncError;
                same(&counts[counter as usize], &0, counter.name())?;
            }
            Err(Verdict::Lacks(_)) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

fn local_read(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let writable = pair.a.memory(32, MemPriv::LOCAL_WRITE.bits())?;
    let remote = pair.a.memory(32, MemPriv::REMOTE_READ.bits())?;
    let into = pair.b.memory(32, ALL)?;
    let uses = [
        (5, writable, false),
        (6, writable, true),
        (7, remote, false),
        (8, remote, true),
    ];
    for (byte, source, write) in uses {
        source.fill(byte);
        pair.b.post(pair.to, Post::Recv, &[into.local()], 1)?;
        if write {
            pair.a
                .post(pair.from, Post::Write(into.remote()), &[source.local()], 2)?;
            pair.a.completes(pair.a.request, 2, SUCCESS)?;
            pair.a.post(pair.from, Post::Send, &[], 3)?;
        } else {
            pair.a.post(pair.from, Post::Send, &[source.local()], 3)?;
        }
        pair.a.completes(pair.a.request, 3, SUCCESS)?;
        pair.b.completes(pair.b.recv, 1, SUCCESS)?;
        holds(into.is_all(byte), "the bytes did not arrive")?;
    }
    Ok(())
}

fn lengths(dat: &Dat) -> Check {
    const LENGTHS: [usize; 10] = [0, 1, 7, 1024, 0, 131_072, 1000, 4097, 65_536, 3];
    let pair = Pair::connected(dat)?;
    let mut buffers = Vec::new();
    for (n, length) in LENGTHS.iter().enumerate() {
        // No LMR is empty.
        let (source, into) = (
            pair.a.memory(length + 1, ALL)?,
            pair.b.memory(length + 1, ALL)?,
        );
        source.fill(n as u8 + 1);
        pair.b
            .post(pair.to, Post::Recv, &[into.local()], n as u64)?;
        buffers.push((source, into));
    }
    for (n, (length, (source, _))) in LENGTHS.iter().zip(&buffers).enumerate() {
        let mut part = source.local();
        part.segment_length = *length as u32;
        pair.a.post(pair.from, Post::Send, &[part], n as u64)?;
    }
    for (n, (length, (_, into))) in LENGTHS.iter().zip(&buffers).enumerate() {
        pair.a.completes(pair.a.request, n as u64, SUCCESS)?;
        let expected = Seen::Dto {
            ep: pair.to,
            cookie: n as u64,
            status: SUCCESS,
            length: *length as u32,
        };
        same(
            &pair.b.wait(pair.b.recv)?,
            &expected,
            "completion of a receive",
        )?;
        let seen = into.bytes().iter().map(|b| b.load(Ordering::Relaxed));
        let right = seen
            .enumerate()
            .all(|(at, byte)| byte == if at < *length { n as u8 + 1 } else { 0 });
        holds(
            right,
            &format!("the bytes of message {n} of {length} bytes differ"),
        )?;
    }
    Ok(())
}

fn segments(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (source, into) = (pair.a.memory(24, ALL)?, pair.b.memory(24, ALL)?);
    for (n, byte) in source.bytes().iter().enumerate() {
        byte.store(n as u8, Ordering::Relaxed);
    }
    let part = |mut whole: DatLmrTriplet, at: u64, length: u32| {
        whole.virtual_address += at;
        whole.segment_length = length;
        whole
    };
    // The list names the parts in another order than the memory has them.
    let from = [part(source.local(), 16, 8), part(source.local(), 0, 5)];
    let to = [part(into.local(), 12, 3), part(into.local(), 0, 10)];
    pair.b.post(pair.to, Post::Recv, &to, 1)?;
    pair.a.post(pair.from, Post::Send, &from, 2)?;
    pair.b.completes(pair.b.recv, 1, SUCCESS)?;
    let sent: Vec<u8> = (16..24).chain(0..5).collect();
    let byte = |at: usize| into.bytes()[at].load(Ordering::Relaxed);
    let seen: Vec<u8> = (12..15).chain(0..10).map(byte).collect();
    same(&seen, &sent, "bytes in the order of the receive's segments")
}

/// Posts, for a thread that has no [`Side`].
fn post(dat: &Dat, ep: usize, what: Post, iov: &[DatLmrTriplet], cookie: u64) -> Check {
    ok(dat.post(ep, what, iov, cookie, 0), "dat_ep_post")
}

/// Checks that the next event of `evd` is a success with this cookie, for a thread that has no [`Side`].
fn completes(dat: &Dat, evd: usize, cookie: u64) -> Check {
    let begin = Instant::now();
    let what = format!("the completion with cookie {cookie}");
    let call = format!("dat_evd_wait (10 s) for {what}");
    let _awaits = crate::calls::awaits(what);
    let (seen, _) = expect_ok(dat.evd_wait(evd, TIMEOUT, 1), &call)?;
    same(
        &seen.completion(),
        &Some((cookie, SUCCESS)),
        "completion (cookie, status)",
    )?;
    holds(
        begin.elapsed() < Duration::from_micros(TIMEOUT.into()),
        "the timeout woke the thread, and not the completion",
    )
}

/// Checks that the provider may be called from several threads.
fn thread_safe(dat: &Dat, side: &Side<'_>) -> Check {
    let (_, provider) = expect_ok(dat.ia_query(side.ia), "dat_ia_query")?;
    if provider.is_thread_safe != 0 {
        return Ok(());
    }
    Err(Verdict::Lacks(
        "the provider's attributes say that it is not thread safe".into(),
    ))
}

fn threads(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    thread_safe(dat, &pair.a)?;
    let mut lines = Vec::new();
    for _ in 0..4 {
        let evds = |side: &Side<'_>| Ok([side.evd(EvdFlags::DTO)?, side.evd(EvdFlags::DTO)?]);
        let ([recv_a, request_a], [recv_b, request_b]) = (evds(&pair.a)?, evds(&pair.b)?);
        let (a, b) = (&pair.a, &pair.b);
        let from = expect_ok(
            dat.ep_create(a.ia, a.pz, [recv_a, request_a, a.conn]),
            "dat_ep_create",
        )?;
        let to = expect_ok(
            dat.ep_create(b.ia, b.pz, [recv_b, request_b, b.conn]),
            "dat_ep_create",
        )?;
        pair.join(from, to)?;
        let memory = (a.memory(8, ALL)?, b.memory(8, ALL)?);
        lines.push((from, to, request_a, recv_b, memory));
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = lines
            .iter()
            .enumerate()
            .map(|(n, line)| {
                scope.spawn(move || {
                    let (from, to, request, recv, (source, into)) = *line;
                    for round in 0..100 {
                        let word = ((n as u64) << 32) | round;
                        source.set_word(word);
                        post(dat, to, Post::Recv, &[into.local()], word)?;
                        post(dat, from, Post::Send, &[source.local()], word)?;
                        completes(dat, recv, word)?;
                        completes(dat, request, word)?;
                        same(&into.word(), &word, "message")?;
                    }
                    Ok(())
                })
            })
            .collect();
        all_joined(threads)
    })
}

/// Waits for threads; returns the first failure.
fn all_joined(threads: Vec<std::thread::ScopedJoinHandle<'_, Check>>) -> Check {
    threads.into_iter().try_for_each(|thread| {
        thread
            .join()
            .unwrap_or_else(|_| broken("a thread panicked"))
    })
}

fn threads_on_one(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    thread_safe(dat, &pair.a)?;
    for round in 0..20_u64 {
        for cookie in 0..16 {
            pair.b.post(pair.to, Post::Recv, &[], cookie)?;
        }
        let from = pair.from;
        std::thread::scope(|scope| {
            let threads = (0..4_u64).map(|thread| {
                scope.spawn(move || {
                    let cookies = (0..4).map(|n| (round << 8) | (thread << 4) | n);
                    cookies
                        .into_iter()
                        .try_for_each(|cookie| post(dat, from, Post::Send, &[], cookie))
                })
            });
            all_joined(threads.collect())
        })?;
        let mut cookies = BTreeSet::new();
        for cookie in 0..16 {
            pair.b.completes(pair.b.recv, cookie, SUCCESS)?;
            let Some((cookie, SUCCESS)) = pair.a.wait(pair.a.request)?.completion() else {
                return broken("a request did not complete with DAT_DTO_SUCCESS");
            };
            cookies.insert(cookie);
        }
        let posted =
            (0..4).flat_map(|thread| (0..4).map(move |n| (round << 8) | (thread << 4) | n));
        same(&cookies, &posted.collect(), "cookies of the completions")?;
    }
    pair.a.quiet(pair.a.request)
}

fn active_receives(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let into = pair.a.memory(8, ALL)?;
    for cookie in 1..=3 {
        pair.a
            .post(pair.from, Post::Recv, &[into.local()], cookie)?;
    }
    pair.join(pair.from, pair.to)?;
    let source = pair.b.memory(8, ALL)?;
    for cookie in 1..=3 {
        source.set_word(cookie);
        pair.b
            .post(pair.to, Post::Send, &[source.local()], 10 + cookie)?;
        pair.a.completes(pair.a.recv, cookie, SUCCESS)?;
        pair.b.completes(pair.b.request, 10 + cookie, SUCCESS)?;
        same(&into.word(), &cookie, "message")?;
    }
    Ok(())
}

fn write_before_send(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (source, into) = (pair.a.memory(16_384, ALL)?, pair.b.memory(16_384, ALL)?);
    for round in 1..=20 {
        source.fill(round);
        pair.b.post(pair.to, Post::Recv, &[], round.into())?;
        pair.a
            .post(pair.from, Post::Write(into.remote()), &[source.local()], 1)?;
        pair.a.post(pair.from, Post::Send, &[], 2)?;
        pair.b.completes(pair.b.recv, round.into(), SUCCESS)?;
        holds(
            into.is_all(round),
            "the message overtook the write before it",
        )?;
        pair.a.completes(pair.a.request, 1, SUCCESS)?;
        pair.a.completes(pair.a.request, 2, SUCCESS)?;
    }
    Ok(())
}

fn threshold(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    for cookie in 0..4 {
        pair.b.post(pair.to, Post::Recv, &[], cookie)?;
    }
    for cookie in 0..3 {
        pair.a.post(pair.from, Post::Send, &[], cookie)?;
        pair.a.completes(pair.a.request, cookie, SUCCESS)?;
    }
    let early = dat.evd_wait(pair.b.recv, 200_000, 4).err().unwrap_or(0);
    refused(
        early,
        Kind::TimeoutExpired,
        "dat_evd_wait for 4 with 3 completions",
    )?;
    std::thread::scope(|scope| {
        let recv = pair.b.recv;
        let waiter = scope.spawn(move || dat.evd_wait(recv, TIMEOUT, 4));
        std::thread::sleep(Duration::from_millis(20));
        pair.a.post(pair.from, Post::Send, &[], 3)?;
        let waited = waiter
            .join()
            .or_else(|_| broken("the waiting thread panicked"))?;
        let (seen, more) = expect_ok(waited, "dat_evd_wait for 4 (10 s)")?;
        same(
            &(seen.completion(), more),
            &(Some((0, SUCCESS)), 3),
            "first completion and nmore",
        )
    })
}

fn round_trips(dat: &Dat) -> Check {
    let rounds = dat.load() as u64;
    let pair = Pair::connected(dat)?;
    thread_safe(dat, &pair.a)?;
    let a = &pair.a;
    let (to, recv, request) = (pair.to, pair.b.recv, pair.b.request);
    post(dat, to, Post::Recv, &[], 0)?;
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || {
            for n in 0..rounds {
                completes(dat, recv, n)?;
                post(dat, to, Post::Recv, &[], n + 1)?;
                post(dat, to, Post::Send, &[], n)?;
                completes(dat, request, n)?;
            }
            Ok(())
        });
        let asked = (0..rounds).try_for_each(|n| {
            if n % 10 == 0 {
                dat.report_progress();
            }
            a.post(pair.from, Post::Recv, &[], n)?;
            a.post(pair.from, Post::Send, &[], n)?;
            completes(dat, a.recv, n)?;
            completes(dat, a.request, n)
        });
        asked.and(all_joined(vec![echo]))
    })
}

fn cno(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let side = &pair.b;
    let cno = expect_ok(dat.cno_create(side.ia), "dat_cno_create")?;
    let recv = dat.evd_create(side.ia, 8, cno, EvdFlags::DTO.bits());
    let recv = expect_ok(recv, "dat_evd_create")?;
    let ep = dat.ep_create(side.ia, side.pz, [recv, side.request, side.conn]);
    let ep = expect_ok(ep, "dat_ep_create")?;
    pair.join(pair.from, ep)?;
    for cookie in 0..3 {
        side.post(ep, Post::Recv, &[], cookie)?;
        pair.a.post(pair.from, Post::Send, &[], cookie)?;
        let told = expect_ok(dat.cno_wait(cno, TIMEOUT), "dat_cno_wait (10 s)")?;
        same(&told, &recv, "EVD")?;
        let seen = expect_ok(dat.evd_dequeue(recv), "dat_evd_dequeue after dat_cno_wait")?;
        same(&seen.completion(), &Some((cookie, SUCCESS)), "completion")?;
        // The CNO is armed again by the EVD that is found empty.
        let empty = dat.evd_dequeue(recv).err().unwrap_or(0);
        refused(empty, Kind::QueueEmpty, "dat_evd_dequeue")?;
    }
    Ok(())
}

fn thousand(dat: &Dat) -> Check {
    const BATCH: usize = 40;
    let pair = Pair::apart(dat)?;
    let (a, b) = (&pair.a, &pair.b);
    // Both sides are on one adapter, with two endpoints already.
    let most = usize::try_from(a.attr.max_eps)
        .unwrap_or(0)
        .saturating_sub(2)
        / 2;
    let count = most.min(dat.load());
    let evd = |side: &Side<'_>, flags: EvdFlags| {
        let evd = dat.evd_create(side.ia, 1100, 0, flags.bits());
        expect_ok(evd, "dat_evd_create for 1,100 events")
    };
    let (request, recv) = (evd(a, EvdFlags::DTO)?, evd(b, EvdFlags::DTO)?);
    let (_psp, qual) = expect_ok(
        dat.psp_create_any(b.ia, b.cr, CONSUMER),
        "dat_psp_create_any",
    )?;
    let mut active = Vec::new();
    let mut passive = BTreeSet::new();
    while active.len() < count {
        dat.report_progress();
        let batch = BATCH.min(count - active.len());
        for _ in 0..batch {
            let ep = dat.ep_create(a.ia, a.pz, [a.recv, request, a.conn]);
            let ep = expect_ok(ep, &format!("dat_ep_create {}", active.len()))?;
            ok(
                dat.ep_connect(ep, &b.attr, qual, TIMEOUT * 3, b""),
                "dat_ep_connect",
            )?;
            active.push(ep);
        }
        for _ in 0..batch {
            let cr = b.request()?;
            let ep = dat.ep_create(b.ia, b.pz, [recv, b.request, b.conn]);
            let ep = expect_ok(ep, &format!("dat_ep_create {}", passive.len()))?;
            b.post(ep, Post::Recv, &[], ep as u64)?;
            ok(dat.cr_accept(cr, ep, b""), "dat_cr_accept")?;
            passive.insert(ep);
        }
        for side in [a, b] {
            for _ in 0..batch {
                match side.wait(side.conn)? {
                    Seen::Connection { number, .. }
                        if number == EventNumber::from(ConnectionEvent::Established) => {}
                    other => return broken(format!("{other:?} at connection {}", active.len())),
                }
            }
        }
    }
    dat.report_progress();
    for ep in &active {
        a.post(*ep, Post::Send, &[], *ep as u64)?;
    }
    let mut seen = BTreeSet::new();
    for _ in &active {
        dat.report_progress();
        match b.wait(recv)? {
            Seen::Dto {
                ep,
                status: SUCCESS,
                ..
            } => seen.insert(ep),
            other => return broken(format!("{other:?} is no successful receive")),
        };
    }
    holds(
        seen == passive,
        "the messages did not arrive at one endpoint each",
    )
}

fn churn(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (a, b) = (&pair.a, &pair.b);
    for round in 0..dat.load() as u64 / 10 {
        dat.report_progress();
        let (from, to) = (a.ep()?, b.ep()?);
        let (source, into) = (a.memory(64, ALL)?, b.memory(64, ALL)?);
        pair.join(from, to)?;
        b.post(to, Post::Recv, &[into.local()], round)?;
        a.post(from, Post::Send, &[source.local()], round)?;
        b.completes(b.recv, round, SUCCESS)?;
        a.completes(a.request, round, SUCCESS)?;
        ok(dat.ep_disconnect(from, ABRUPT), "dat_ep_disconnect")?;
        a.ends(from)?;
        b.ends(to)?;
        for ep in [from, to] {
            ok(dat.ep_free(ep), "dat_ep_free")?;
        }
        for memory in [source, into] {
            ok(dat.lmr_free(memory.region.lmr), "dat_lmr_free")?;
        }
    }
    for (side, ep) in [(a, pair.from), (b, pair.to)] {
        ok(dat.ep_free(ep), "dat_ep_free")?;
        for evd in [side.recv, side.request, side.conn, side.cr] {
            ok(dat.evd_free(evd), "dat_evd_free")?;
        }
        ok(dat.pz_free(side.pz), "dat_pz_free")?;
        ok(dat.ia_close(side.ia, GRACEFUL), "dat_ia_close, graceful")?;
    }
    Ok(())
}

fn no_internal_error(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (side, ep) = (&pair.a, pair.from);
    let memory = side.memory(64, ALL)?;
    let code = |result: Result<(), u32>| result.err().unwrap_or(0);
    let srq = dat.srq_create(side.ia, side.pz, 4);
    let rmr = dat.rmr_create(side.pz);
    let calls = [
        ("dat_ep_query", code(dat.ep_query(ep).map(drop))),
        ("dat_ep_get_status", code(dat.ep_get_status(ep).map(drop))),
        ("dat_ep_recv_query", code(dat.ep_recv_query(ep).map(drop))),
        ("dat_ep_set_watermark", dat.ep_set_watermark(ep, -1, -1)),
        ("dat_evd_resize", dat.evd_resize(side.recv, 128)),
        ("dat_evd_query", code(dat.evd_query(side.recv).map(drop))),
        (
            "dat_lmr_query",
            code(dat.lmr_query(memory.region.lmr).map(drop)),
        ),
        (
            "dat_lmr_sync_rdma_read",
            dat.lmr_sync(side.ia, &[memory.local()], false),
        ),
        (
            "dat_lmr_sync_rdma_write",
            dat.lmr_sync(side.ia, &[memory.local()], true),
        ),
        ("dat_srq_create", code(srq.map(drop))),
        (
            "dat_srq_resize",
            srq.map_or(0, |srq| dat.srq_resize(srq, 8)),
        ),
        (
            "dat_srq_set_lw",
            srq.map_or(0, |srq| dat.srq_set_lw(srq, 1)),
        ),
        (
            "dat_srq_query",
            srq.map_or(0, |srq| code(dat.srq_query(srq).map(drop))),
        ),
        ("dat_rmr_create", code(rmr.map(drop))),
        (
            "dat_rmr_query",
            rmr.map_or(0, |rmr| code(dat.rmr_query(rmr).map(drop))),
        ),
        ("dat_ep_disconnect", dat.ep_disconnect(ep, ABRUPT)),
        (
            "dat_ep_query, Disconnected",
            code(dat.ep_query(ep).map(drop)),
        ),
        ("dat_ep_reset", {
            side.ends(ep)?;
            dat.ep_reset(ep)
        }),
        ("dat_ep_free", dat.ep_free(ep)),
    ];
    for (call, code) in calls {
        if Error::from_code(code).and_then(Error::kind) == Some(Kind::InternalError) {
            return broken(format!("{call} returned DAT_INTERNAL_ERROR"));
        }
    }
    Ok(())
}
