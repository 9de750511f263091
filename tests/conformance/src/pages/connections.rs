//! dat_ep_connect, dat_cr_accept, dat_cr_reject, dat_cr_query, dat_psp_create, dat_rsp_create.

use std::time::{Duration, Instant};

use dat_core::ep::EpState;
use dat_core::error::Kind;
use dat_core::event::ConnectionEvent;
use dat_core::flags::EvdFlags;

use super::statements;
use crate::dat::{Dat, Post};
use crate::event::{SUCCESS, Seen};
use crate::fixture::{CONSUMER, FOREVER, Pair, Side, TIMEOUT, expect_ok};
use crate::names::EventNumber;
use crate::verdict::{Check, holds, ok, refused, same};

statements! {
    "dat_ep_connect": "An established connection is reported to both sides, and the state is Connected." => established;
    "dat_ep_connect": "The endpoint must be Unconnected: DAT_INVALID_STATE." => connect_twice;
    "dat_ep_connect": "Without a listener it ends in DAT_CONNECTION_EVENT_NON_PEER_REJECTED, Disconnected." => no_listener;
    "dat_ep_connect": "Without an answer it ends in DAT_CONNECTION_EVENT_TIMED_OUT." => times_out;
    "dat_ep_connect": "A timeout of 0 is DAT_INVALID_PARAMETER." => no_time;
    "dat_cr_accept": "An accepted request's handle is destroyed." => accepted_is_gone;
    "dat_cr_accept": "Without an endpoint, on a PSP with DAT_PSP_CONSUMER_FLAG, it is DAT_INVALID_HANDLE." => accept_needs_ep;
    "dat_cr_accept": "The endpoint must be Unconnected: DAT_INVALID_STATE." => accept_connected;
    "dat_cr_accept": "DAT_CONNECTION_EVENT_ESTABLISHED precedes the first message on one EVD, and the answer is posted." => message_follows;
    "dat_cr_accept": "With two EVDs it is queued when the first message is dequeued, and the answer is posted." => message_follows_on_two;
    "dat_cr_reject": "The peer sees DAT_CONNECTION_EVENT_PEER_REJECTED." => rejected;
    "dat_cr_reject": "The request's handle is destroyed." => rejected_is_gone;
    "dat_cr_query": "The query shows the peer's private data." => private_data;
    "dat_psp_create": "A qualifier in use is DAT_CONN_QUAL_IN_USE." => qual_in_use;
    "dat_psp_create": "The request event names the service point and its qualifier." => request_event;
    "dat_psp_free": "Requests no longer arrive after the call." => psp_free_ends;
    "dat_psp_free": "Requests that have arrived can still be answered." => psp_free_keeps;
    "dat_rsp_create": "The endpoint is Reserved, and Passive Connection Pending when the request arrives." => rsp_states;
    "dat_rsp_create": "An RSP takes one request." => rsp_takes_one;
}

fn established(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    pair.a.state(pair.from, EpState::Connected)?;
    pair.b.state(pair.to, EpState::Connected)
}

fn connect_twice(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let code = dat.ep_connect(pair.from, &pair.b.attr, 1, FOREVER, b"");
    refused(code, Kind::InvalidState, "dat_ep_connect, Connected")
}

fn no_listener(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let qual = pair.b.unused()?;
    let code = dat.ep_connect(pair.from, &pair.b.attr, qual, TIMEOUT, b"");
    ok(code, "dat_ep_connect")?;
    pair.a
        .connection(pair.from, ConnectionEvent::NonPeerRejected)?;
    pair.a.state(pair.from, EpState::Disconnected)
}

fn times_out(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    pair.asked(pair.from, 200_000)?;
    pair.a.connection(pair.from, ConnectionEvent::TimedOut)?;
    pair.a.state(pair.from, EpState::Disconnected)
}

fn no_time(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let code = dat.ep_connect(pair.from, &pair.b.attr, 1, 0, b"");
    refused(code, Kind::InvalidParameter, "dat_ep_connect")?;
    pair.a.state(pair.from, EpState::Unconnected)
}

fn is_gone(dat: &Dat, cr: usize, ep: usize) -> Check {
    for code in [
        dat.cr_accept(cr, ep, b""),
        dat.cr_reject(cr, b""),
        dat.cr_query(cr).err().unwrap_or(0),
    ] {
        refused(code, Kind::InvalidHandle, "a call with an answered CR")?;
    }
    Ok(())
}

fn accepted_is_gone(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let cr = pair.asked(pair.from, FOREVER)?;
    ok(dat.cr_accept(cr, pair.to, b""), "dat_cr_accept")?;
    is_gone(dat, cr, pair.b.ep()?)
}

fn accept_needs_ep(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let cr = pair.asked(pair.from, FOREVER)?;
    refused(
        dat.cr_accept(cr, 0, b""),
        Kind::InvalidHandle,
        "dat_cr_accept",
    )?;
    ok(dat.cr_accept(cr, pair.to, b""), "dat_cr_accept after that")
}

fn accept_connected(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let cr = pair.asked(pair.a.ep()?, FOREVER)?;
    refused(
        dat.cr_accept(cr, pair.to, b""),
        Kind::InvalidState,
        "dat_cr_accept",
    )?;
    ok(
        dat.cr_accept(cr, pair.b.ep()?, b""),
        "dat_cr_accept after that",
    )
}

/// Repetitions of a statement about a race.
const ROUNDS: u64 = 64;

/// Connects a new pair of endpoints, the passive one with these EVDs for receives and connection events. The active one
/// sends as soon as it is connected. Returns the passive endpoint.
fn sends_at_once(pair: &Pair<'_>, received: usize, connected: usize, cookie: u64) -> Check<usize> {
    let from = pair.a.ep()?;
    let evds = [received, pair.b.request, connected];
    let to = pair.b.dat.ep_create(pair.b.ia, pair.b.pz, evds);
    let to = expect_ok(to, "dat_ep_create")?;
    pair.b.post(to, Post::Recv, &[], cookie)?;
    let cr = pair.asked(from, FOREVER)?;
    ok(pair.b.dat.cr_accept(cr, to, b""), "dat_cr_accept")?;
    let established = Seen::Connection {
        number: EventNumber::from(ConnectionEvent::Established),
        ep: from,
    };
    // Without a wait, which would run the upcalls of an engine in this process.
    let end = Instant::now() + Duration::from_micros(TIMEOUT.into());
    while pair.a.dat.evd_dequeue(pair.a.conn) != Ok(established) {
        holds(
            Instant::now() < end,
            "no DAT_CONNECTION_EVENT_ESTABLISHED in 10 s",
        )?;
    }
    pair.a.post(from, Post::Send, &[], cookie)?;
    Ok(to)
}

fn message_follows(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let evd = pair.b.evd(EvdFlags::DTO | EvdFlags::CONNECTION)?;
    for cookie in 0..ROUNDS {
        let to = sends_at_once(&pair, evd, evd, cookie)?;
        let established = Seen::Connection {
            number: EventNumber::from(ConnectionEvent::Established),
            ep: to,
        };
        same(&pair.b.wait(evd)?, &established, "event")?;
        pair.b.completes(evd, cookie, SUCCESS)?;
        pair.b.post(to, Post::Send, &[], cookie)?;
    }
    Ok(())
}

fn message_follows_on_two(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    for cookie in 0..ROUNDS {
        let to = sends_at_once(&pair, pair.b.recv, pair.b.conn, cookie)?;
        pair.b.completes(pair.b.recv, cookie, SUCCESS)?;
        pair.b.post(to, Post::Send, &[], cookie)?;
        let established = Seen::Connection {
            number: EventNumber::from(ConnectionEvent::Established),
            ep: to,
        };
        let seen = expect_ok(dat.evd_dequeue(pair.b.conn), "dat_evd_dequeue")?;
        same(&seen, &established, "event")?;
    }
    Ok(())
}

fn rejected(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let cr = pair.asked(pair.from, FOREVER)?;
    ok(dat.cr_reject(cr, b""), "dat_cr_reject")?;
    pair.a
        .connection(pair.from, ConnectionEvent::PeerRejected)?;
    pair.a.state(pair.from, EpState::Disconnected)
}

fn rejected_is_gone(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let cr = pair.asked(pair.from, FOREVER)?;
    ok(dat.cr_reject(cr, b""), "dat_cr_reject")?;
    is_gone(dat, cr, pair.to)
}

fn private_data(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let cr = pair.asked(pair.from, FOREVER)?;
    same(
        &dat.cr_private_data(cr, 5),
        &Some(b"hello".to_vec()),
        "private data",
    )
}

fn qual_in_use(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (_, qual) = side.listen()?;
    let code = dat.psp_create(side.ia, qual, side.cr, CONSUMER).err();
    refused(code.unwrap_or(0), Kind::ConnQualInUse, "dat_psp_create")
}

fn request_event(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (psp, qual) = pair.b.listen()?;
    let code = dat.ep_connect(pair.from, &pair.b.attr, qual, FOREVER, b"");
    ok(code, "dat_ep_connect")?;
    match pair.b.wait(pair.b.cr)? {
        Seen::Request { sp, conn_qual, .. } => same(
            &(sp, conn_qual),
            &(psp, qual),
            "service point and qualifier",
        ),
        other => same(&format!("{other:?}"), &"a request".into(), "event"),
    }
}

fn psp_free_ends(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (psp, qual) = pair.b.listen()?;
    ok(dat.psp_free(psp), "dat_psp_free")?;
    let code = dat.ep_connect(pair.from, &pair.b.attr, qual, TIMEOUT, b"");
    ok(code, "dat_ep_connect")?;
    pair.a
        .connection(pair.from, ConnectionEvent::NonPeerRejected)?;
    pair.b.quiet(pair.b.cr)?;
    refused(dat.psp_free(psp), Kind::InvalidHandle, "dat_psp_free again")
}

fn psp_free_keeps(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    // `asked` frees the PSP before it returns.
    let cr = pair.asked(pair.from, FOREVER)?;
    ok(dat.cr_accept(cr, pair.to, b""), "dat_cr_accept")?;
    pair.a.connection(pair.from, ConnectionEvent::Established)
}

fn rsp_states(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let qual = pair.b.unused()?;
    let rsp = dat.rsp_create(pair.b.ia, qual, pair.to, pair.b.cr);
    expect_ok(rsp, "dat_rsp_create")?;
    pair.b.state(pair.to, EpState::Reserved)?;
    let code = dat.ep_connect(pair.from, &pair.b.attr, qual, FOREVER, b"");
    ok(code, "dat_ep_connect")?;
    let cr = pair.b.request()?;
    pair.b.state(pair.to, EpState::PassiveConnectionPending)?;
    ok(
        dat.cr_accept(cr, 0, b""),
        "dat_cr_accept without an endpoint",
    )?;
    pair.a.connection(pair.from, ConnectionEvent::Established)?;
    pair.b.connection(pair.to, ConnectionEvent::Established)
}

fn rsp_takes_one(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let qual = pair.b.unused()?;
    let rsp = dat.rsp_create(pair.b.ia, qual, pair.to, pair.b.cr);
    expect_ok(rsp, "dat_rsp_create")?;
    let code = dat.ep_connect(pair.from, &pair.b.attr, qual, FOREVER, b"");
    ok(code, "dat_ep_connect")?;
    pair.b.request()?;
    let second = pair.a.ep()?;
    let code = dat.ep_connect(second, &pair.b.attr, qual, TIMEOUT, b"");
    ok(code, "dat_ep_connect, second")?;
    pair.a
        .connection(second, ConnectionEvent::NonPeerRejected)?;
    pair.b.quiet(pair.b.cr)
}
