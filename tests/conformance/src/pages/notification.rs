//! EVDs in detail: queries, limits and states; and CNOs with agents.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_core::error::Kind;
use dat_core::event::{AsyncEvent, ConnectionEvent};
use dat_core::flags::{CompletionFlags, EvdFlags};

use super::statements;
use crate::dat::{Agent, Dat, field};
use crate::event::Seen;
use crate::fixture::{CONSUMER, MOMENT, Pair, Side, TIMEOUT, expect_ok};
use crate::names::EventNumber;
use crate::verdict::{Check, broken, holds, ok, refused, same};

statements! {
    "dat_evd_create": "It is enabled, waitable and empty, and at least as long as requested." => created;
    "dat_evd_create": "No stream, an unknown stream, or length 0 is DAT_INVALID_PARAMETER." => nothing_to_take;
    "dat_evd_create": "An event for a full EVD is DAT_ASYNC_ERROR_EVD_OVERFLOW: its connection request is refused, and the EVD keeps working." => overflows;
    "dat_evd_query": "The query returns queue length, CNO and streams." => query;
    "dat_evd_modify_cno": "Events trigger the new CNO; without a CNO they trigger none." => modify;
    "dat_evd_enable": "Enabling and disabling twice has no further effect." => enable_twice;
    "dat_evd_clear_unwaitable": "A waitable EVD stays waitable." => clear_twice;
    "dat_evd_wait": "A threshold of n waits for n events." => threshold;
    "dat_evd_wait": "While a thread waits, for any number of events, the CNO is not triggered." => waiter_before_cno;
    "dat_evd_wait": "With consumer-controlled notification, a threshold above 1 is DAT_INVALID_STATE." => controlled;
    "dat_evd_wait": "dat_evd_dequeue on an EVD on which a thread waits is DAT_INVALID_STATE." => dequeue_while_waiting;
    "dat_evd_post_se": "A full queue is DAT_QUEUE_FULL." => full;
    "dat_evd_resize": "A queue shorter than its events is DAT_INVALID_STATE, and the events stay." => shrink;
    "dat_evd_resize": "A queue of length 0 is DAT_INVALID_PARAMETER." => resize_to_nothing;
    "dat_ep_create": "Streams can share an EVD if the provider's attributes say so." => merged;
    "dat_cno_create": "The agent is called with the EVD that has an event." => agent;
    "dat_cno_modify_agent": "The new agent is called, the former is not." => other_agent;
    "dat_cno_query": "The query returns the IA." => cno_query;
    "dat_cno_wait": "An event wakes one of the threads that wait." => one_wakes;
    "dat_cno_free": "The handle of a destroyed CNO fails in any later operation." => cno_freed;
}

/// Creates an EVD for software events.
fn software(side: &Side<'_>, qlen: i32, cno: usize) -> Check<usize> {
    let evd = side
        .dat
        .evd_create(side.ia, qlen, cno, EvdFlags::SOFTWARE.bits());
    expect_ok(evd, "dat_evd_create")
}

fn post(dat: &Dat, evd: usize, pointers: std::ops::Range<usize>) -> Check {
    for pointer in pointers {
        ok(dat.evd_post_se(evd, pointer), "dat_evd_post_se")?;
    }
    Ok(())
}

/// `DAT_EVD_STATE`: enabled, and waitable.
const ENABLED: u32 = 0x1;
const WAITABLE: u32 = 0x4;

fn created(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let evd = software(&side, 5, 0)?;
    let seen = expect_ok(dat.evd_query(evd), "dat_evd_query")?;
    holds(
        seen.evd_qlen >= 5,
        "dat_evd_query returned a shorter queue than requested",
    )?;
    same(
        &(seen.evd_state & (ENABLED | WAITABLE)),
        &(ENABLED | WAITABLE),
        "state",
    )?;
    let empty = dat.evd_dequeue(evd).err().unwrap_or(0);
    refused(empty, Kind::QueueEmpty, "dat_evd_dequeue")
}

fn nothing_to_take(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    for (qlen, flags) in [(8, 0), (8, 1 << 20), (0, 1), (-1, 1)] {
        let code = dat.evd_create(side.ia, qlen, 0, flags).err();
        refused(
            code.unwrap_or(0),
            Kind::InvalidParameter,
            &format!("dat_evd_create({qlen}, {flags:#x})"),
        )?;
    }
    Ok(())
}

fn query(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let cno = expect_ok(dat.cno_create(side.ia), "dat_cno_create")?;
    let evd = software(&side, 8, cno)?;
    let seen = expect_ok(dat.evd_query(evd), "dat_evd_query")?;
    same(
        &(seen.ia_handle, seen.cno_handle, seen.evd_flags),
        &(side.ia, cno, EvdFlags::SOFTWARE.bits()),
        "IA, CNO and streams",
    )
}

fn modify(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let one = expect_ok(dat.cno_create(side.ia), "dat_cno_create")?;
    let other = expect_ok(dat.cno_create(side.ia), "dat_cno_create")?;
    let evd = software(&side, 8, one)?;
    ok(dat.evd_modify_cno(evd, other), "dat_evd_modify_cno")?;
    post(dat, evd, 1..2)?;
    same(&dat.cno_wait(other, TIMEOUT), &Ok(evd), "EVD")?;
    let former = dat.cno_wait(one, MOMENT).err().unwrap_or(0);
    refused(former, Kind::QueueEmpty, "dat_cno_wait on the former CNO")?;
    ok(dat.evd_modify_cno(evd, 0), "dat_evd_modify_cno(NULL)")?;
    post(dat, evd, 2..3)?;
    let left = dat.cno_wait(other, MOMENT).err().unwrap_or(0);
    refused(left, Kind::QueueEmpty, "dat_cno_wait of a CNO without EVDs")?;
    ok(dat.cno_free(other), "dat_cno_free")
}

fn enable_twice(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let cno = expect_ok(dat.cno_create(side.ia), "dat_cno_create")?;
    let evd = software(&side, 8, cno)?;
    for _ in 0..2 {
        ok(dat.evd_disable(evd), "dat_evd_disable")?;
    }
    let state = expect_ok(dat.evd_query(evd), "dat_evd_query")?.evd_state;
    same(&(state & ENABLED), &0, "state, disabled")?;
    for _ in 0..2 {
        ok(dat.evd_enable(evd), "dat_evd_enable")?;
    }
    post(dat, evd, 1..2)?;
    same(&dat.cno_wait(cno, TIMEOUT), &Ok(evd), "EVD")
}

fn clear_twice(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let evd = software(&side, 8, 0)?;
    ok(dat.evd_clear_unwaitable(evd), "dat_evd_clear_unwaitable")?;
    post(dat, evd, 1..2)?;
    let waited = dat.evd_wait(evd, TIMEOUT, 1);
    same(&waited, &Ok((Seen::Software(1), 0)), "event and nmore")
}

fn threshold(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let evd = software(&side, 8, 0)?;
    post(dat, evd, 1..3)?;
    let early = dat.evd_wait(evd, MOMENT, 3).err().unwrap_or(0);
    refused(early, Kind::TimeoutExpired, "dat_evd_wait for three of two")?;
    post(dat, evd, 3..4)?;
    let waited = dat.evd_wait(evd, TIMEOUT, 3);
    same(&waited, &Ok((Seen::Software(1), 2)), "event and nmore")
}

fn waiter_before_cno(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let cno = expect_ok(dat.cno_create(side.ia), "dat_cno_create")?;
    let evd = software(&side, 8, cno)?;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| dat.evd_wait(evd, TIMEOUT, 3));
        let begun = Instant::now();
        // Refused once the thread waits.
        while refused(
            dat.evd_dequeue(evd).err().unwrap_or(0),
            Kind::QueueEmpty,
            "",
        )
        .is_ok()
        {
            holds(
                begun.elapsed() < Duration::from_secs(5),
                "the thread does not wait",
            )?;
            std::thread::yield_now();
        }
        post(dat, evd, 1..3)?;
        let told = dat.cno_wait(cno, MOMENT).err().unwrap_or(0);
        post(dat, evd, 3..4)?;
        let waited = waiter
            .join()
            .or_else(|_| broken("the waiting thread panicked"))?;
        same(&waited, &Ok((Seen::Software(1), 2)), "event and nmore")?;
        refused(told, Kind::QueueEmpty, "dat_cno_wait while a thread waits")
    })
}

fn controlled(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    let many = dat.evd_wait(side.recv, MOMENT, 2).err().unwrap_or(0);
    refused(many, Kind::TimeoutExpired, "dat_evd_wait for two")?;
    let mut param = expect_ok(dat.ep_query(ep), "dat_ep_query")?;
    param.ep_attr.recv_completion_flags = CompletionFlags::SOLICITED_WAIT.bits();
    param.ep_attr.request_completion_flags = CompletionFlags::UNSIGNALLED.bits();
    let mask = field::RECV_FLAGS | field::REQUEST_FLAGS;
    ok(dat.ep_modify(ep, mask, &param), "dat_ep_modify")?;
    for evd in [side.recv, side.request] {
        let many = dat.evd_wait(evd, MOMENT, 2).err().unwrap_or(0);
        refused(many, Kind::InvalidState, "dat_evd_wait for two")?;
        let one = dat.evd_wait(evd, MOMENT, 1).err().unwrap_or(0);
        refused(one, Kind::TimeoutExpired, "dat_evd_wait for one")?;
    }
    ok(dat.ep_free(ep), "dat_ep_free")?;
    let many = dat.evd_wait(side.recv, MOMENT, 2).err().unwrap_or(0);
    refused(
        many,
        Kind::TimeoutExpired,
        "dat_evd_wait for two, without the endpoint",
    )
}

fn overflows(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (side, asks) = (&pair.b, &pair.a);
    let evd = expect_ok(
        dat.evd_create(side.ia, 1, 0, EvdFlags::CR.bits()),
        "dat_evd_create",
    )?;
    let room = expect_ok(dat.evd_query(evd), "dat_evd_query")?.evd_qlen;
    let psp = dat.psp_create_any(side.ia, evd, CONSUMER);
    let (_, qual) = expect_ok(psp, "dat_psp_create_any")?;
    let connect = || {
        let ep = asks.ep()?;
        let code = dat.ep_connect(ep, &side.attr, qual, TIMEOUT, b"");
        ok(code, "dat_ep_connect").map(|()| ep)
    };
    for _ in 0..=room {
        connect()?;
    }
    // One of them comes last, and is refused.
    let overflow = AsyncEvent::EvdOverflow as u32;
    same(
        &side.wait(side.async_evd)?,
        &Seen::Other(EventNumber(overflow)),
        "asynchronous error",
    )?;
    match asks.wait(asks.conn)? {
        Seen::Connection { number, .. } => same(
            &number,
            &(EventNumber::from(ConnectionEvent::NonPeerRejected)),
            "connection event of the refused request",
        )?,
        other => return broken(format!("{other:?}")),
    }
    let request = || match side.wait(evd)? {
        Seen::Request { cr, .. } => Ok(cr),
        other => broken(format!("{other:?} is no connection request")),
    };
    for _ in 0..room {
        ok(dat.cr_reject(request()?, b""), "dat_cr_reject")?;
        asks.wait(asks.conn)?;
    }
    let ep = connect()?;
    ok(dat.cr_accept(request()?, pair.to, b""), "dat_cr_accept")?;
    asks.connection(ep, ConnectionEvent::Established)
}

fn dequeue_while_waiting(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let evd = software(&side, 8, 0)?;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| dat.evd_wait(evd, TIMEOUT, 1));
        let begun = Instant::now();
        let refusal = loop {
            let code = dat.evd_dequeue(evd).err().unwrap_or(0);
            if refused(code, Kind::QueueEmpty, "").is_err() {
                break refused(code, Kind::InvalidState, "dat_evd_dequeue");
            }
            if begun.elapsed() > Duration::from_secs(5) {
                break broken(
                    "dat_evd_dequeue never failed while a thread waits; expected DAT_INVALID_STATE",
                );
            }
            std::thread::yield_now();
        };
        post(dat, evd, 1..2)?;
        let waited = waiter
            .join()
            .or_else(|_| broken("the waiting thread panicked"))?;
        same(&waited, &Ok((Seen::Software(1), 0)), "event and nmore")?;
        refusal
    })
}

fn full(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let evd = software(&side, 4, 0)?;
    let room = expect_ok(dat.evd_query(evd), "dat_evd_query")?.evd_qlen;
    post(dat, evd, 0..room as usize)?;
    // An implementation may hold more than it reports, but not unlimited.
    let code = (0..1 << 16).find_map(|n| Some(dat.evd_post_se(evd, n)).filter(|code| *code != 0));
    refused(code.unwrap_or(0), Kind::QueueFull, "dat_evd_post_se")?;
    same(&dat.evd_dequeue(evd), &Ok(Seen::Software(0)), "first event")
}

fn shrink(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let evd = software(&side, 16, 0)?;
    post(dat, evd, 0..12)?;
    refused(dat.evd_resize(evd, 4), Kind::InvalidState, "dat_evd_resize")?;
    for n in 0..12 {
        same(&dat.evd_dequeue(evd), &Ok(Seen::Software(n)), "event")?;
    }
    Ok(())
}

fn resize_to_nothing(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let evd = software(&side, 8, 0)?;
    for qlen in [0, -1] {
        let code = dat.evd_resize(evd, qlen);
        refused(code, Kind::InvalidParameter, "dat_evd_resize")?;
    }
    Ok(())
}

fn merged(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (_, provider) = expect_ok(dat.ia_query(side.ia), "dat_ia_query")?;
    let may = provider.evd_stream_merging_supported;
    let streams = [
        EvdFlags::SOFTWARE,
        EvdFlags::CR,
        EvdFlags::DTO,
        EvdFlags::CONNECTION,
        EvdFlags::RMR_BIND,
        EvdFlags::ASYNC,
    ];
    for (row, one) in streams.into_iter().enumerate() {
        for (column, other) in streams.into_iter().enumerate() {
            same(
                &may[row][column],
                &may[column][row],
                "the provider's matrix of EVD stream merging is not symmetric",
            )?;
            if may[row][column] != 0 {
                side.evd(one | other)?;
            }
        }
    }
    Ok(())
}

/// Waits until the agent was called `times` times.
fn called(agent: &Agent, times: usize) -> Check {
    let begun = Instant::now();
    while agent.calls.load(Ordering::Acquire) < times {
        if begun.elapsed() > Duration::from_micros(TIMEOUT.into()) {
            return broken("the agent was not called in time");
        }
        std::thread::yield_now();
    }
    Ok(())
}

fn agent(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let agent = Agent::new();
    let cno = dat.cno_create_with(side.ia, Some(agent));
    let evd = software(&side, 8, expect_ok(cno, "dat_cno_create with an agent")?)?;
    post(dat, evd, 1..2)?;
    called(agent, 1)?;
    same(&agent.evd.load(Ordering::Acquire), &evd, "EVD")?;
    same(&dat.evd_dequeue(evd), &Ok(Seen::Software(1)), "event")
}

fn other_agent(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (former, new) = (Agent::new(), Agent::new());
    let cno = dat.cno_create_with(side.ia, Some(former));
    let cno = expect_ok(cno, "dat_cno_create with an agent")?;
    let evd = software(&side, 8, cno)?;
    ok(dat.cno_modify_agent(cno, Some(new)), "dat_cno_modify_agent")?;
    post(dat, evd, 1..2)?;
    called(new, 1)?;
    same(
        &former.calls.load(Ordering::Acquire),
        &0,
        "calls of the former agent",
    )?;
    ok(
        dat.cno_modify_agent(cno, None),
        "dat_cno_modify_agent(NULL)",
    )
}

fn cno_query(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let cno = expect_ok(dat.cno_create(side.ia), "dat_cno_create")?;
    let seen = expect_ok(dat.cno_query(cno), "dat_cno_query")?;
    same(&seen.ia_handle, &side.ia, "IA")
}

fn one_wakes(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let cno = expect_ok(dat.cno_create(side.ia), "dat_cno_create")?;
    let evd = software(&side, 8, cno)?;
    let woken = std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| dat.cno_wait(cno, 300_000)))
            .collect();
        let posted = post(dat, evd, 1..2);
        let woken: Vec<_> = waiters
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        posted.map(|()| woken)
    })?;
    let with_evd = woken
        .iter()
        .filter(|w| matches!(w, Ok(Ok(seen)) if *seen == evd));
    same(&with_evd.count(), &1, "threads that got the EVD")
}

fn cno_freed(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let cno = expect_ok(dat.cno_create(side.ia), "dat_cno_create")?;
    ok(dat.cno_free(cno), "dat_cno_free")?;
    for code in [
        dat.cno_free(cno),
        dat.cno_modify_agent(cno, None),
        dat.cno_query(cno).err().unwrap_or(0),
        dat.cno_wait(cno, MOMENT).err().unwrap_or(0),
        dat.evd_modify_cno(side.recv, cno),
    ] {
        refused(code, Kind::InvalidHandle, "a call with a freed CNO")?;
    }
    Ok(())
}
