//! dat_ep_disconnect.

use dat_core::ep::EpState;
use dat_core::error::Kind;
use dat_core::event::ConnectionEvent;
use dat_core::flags::{CompletionFlags, EvdFlags, MemPriv};

use super::statements;
use crate::dat::{Dat, Post};
use crate::event::{FLUSHED, SUCCESS, Seen};
use crate::fixture::{ABRUPT, CONSUMER, FOREVER, GRACEFUL, Pair, Side, expect_ok};
use crate::names::EventNumber;
use crate::verdict::{Check, broken, holds, ok, refused, same};

statements! {
    "dat_ep_disconnect": "A connection ends, on the request of the active side or of the passive." => either_side;
    "dat_ep_disconnect": "The end is reported by DAT_CONNECTION_EVENT_DISCONNECTED, and the state is Disconnected." => reported;
    "dat_ep_disconnect": "Upon abrupt disconnect all outstanding DTOs complete, unsuccessfully and in order." => abrupt_flushes;
    "dat_ep_disconnect": "Upon graceful disconnect outstanding requests complete first." => graceful_drains;
    "dat_ep_disconnect": "A graceful disconnect behind a request without a completion event breaks nothing." => graceful_suppressed;
    "dat_ep_disconnect": "Until then the state is Disconnect Pending, and no new request can be posted." => pending_refuses;
    "dat_ep_disconnect": "In Disconnect Pending no RDMA Read, RDMA Write or bind can be posted." => pending_refuses_rdma;
    "dat_ep_disconnect": "An abrupt call in Disconnect Pending ends it without waiting." => abrupt_in_pending;
    "dat_ep_disconnect": "A graceful call in Disconnect Pending has no effect." => graceful_in_pending;
    "dat_ep_disconnect": "On one EVD successful completions precede the disconnect event." => order_on_one_evd;
    "dat_ep_disconnect": "Disconnecting a Disconnected endpoint is no operation." => disconnected_is_noop;
    "dat_ep_disconnect": "Disconnecting an Unconnected endpoint is disallowed." => unconnected;
    "dat_ep_disconnect": "Disconnecting a Reserved endpoint is disallowed." => reserved;
    "dat_ep_disconnect": "Disconnecting a Passive Connection Pending endpoint is disallowed." => passive_pending;
    "dat_ep_disconnect": "Either kind aborts an attempt to connect: the state is Disconnected." => aborts_attempt;
    "dat_ep_disconnect": "Aborting flushes the receives posted before." => abort_flushes;
    "dat_ep_disconnect": "Invalid flags are DAT_INVALID_PARAMETER." => flags;
    "dat_ep_disconnect": "An invalid handle is DAT_INVALID_HANDLE." => invalid_handle;
}

const ALL: u32 = MemPriv::ALL.bits();

fn disconnect(dat: &Dat, ep: usize, flags: u32) -> Check {
    ok(dat.ep_disconnect(ep, flags), "dat_ep_disconnect")
}

fn either_side(dat: &Dat) -> Check {
    for active in [true, false] {
        let pair = Pair::connected(dat)?;
        disconnect(dat, if active { pair.from } else { pair.to }, ABRUPT)?;
        pair.a
            .connection(pair.from, ConnectionEvent::Disconnected)?;
        pair.b.connection(pair.to, ConnectionEvent::Disconnected)?;
    }
    Ok(())
}

fn reported(dat: &Dat) -> Check {
    for flags in [ABRUPT, GRACEFUL] {
        let pair = Pair::connected(dat)?;
        disconnect(dat, pair.from, flags)?;
        pair.a
            .connection(pair.from, ConnectionEvent::Disconnected)?;
        pair.a.state(pair.from, EpState::Disconnected)?;
        pair.a.quiet(pair.a.conn)?;
    }
    Ok(())
}

fn abrupt_flushes(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    for cookie in 1..=4 {
        pair.a.post(pair.from, Post::Recv, &[], cookie)?;
    }
    disconnect(dat, pair.from, ABRUPT)?;
    for cookie in 1..=4 {
        pair.a.completes(pair.a.recv, cookie, FLUSHED)?;
    }
    Ok(())
}

/// Returns a pair with requests that cannot complete yet: the peer has no receive.
fn held(dat: &Dat) -> Check<Pair<'_>> {
    let pair = Pair::connected(dat)?;
    for cookie in 1..=2 {
        pair.a.post(pair.from, Post::Send, &[], cookie)?;
    }
    disconnect(dat, pair.from, GRACEFUL)?;
    let (state, ..) = expect_ok(dat.ep_get_status(pair.from), "dat_ep_get_status")?;
    same(
        &EpState::from_number(state),
        &Some(EpState::DisconnectPending),
        "endpoint state while requests wait",
    )?;
    Ok(pair)
}

fn graceful_drains(dat: &Dat) -> Check {
    let pair = held(dat)?;
    for cookie in 11..=12 {
        pair.b.post(pair.to, Post::Recv, &[], cookie)?;
    }
    for cookie in 1..=2 {
        pair.a.completes(pair.a.request, cookie, SUCCESS)?;
    }
    for cookie in 11..=12 {
        pair.b.completes(pair.b.recv, cookie, SUCCESS)?;
    }
    pair.a
        .connection(pair.from, ConnectionEvent::Disconnected)?;
    pair.b.connection(pair.to, ConnectionEvent::Disconnected)
}

fn graceful_suppressed(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (a, b) = (&pair.a, &pair.b);
    // A provider may have each n-th request complete, the first one for example.
    b.post(pair.to, Post::Recv, &[], 10)?;
    a.post(pair.from, Post::Send, &[], 1)?;
    a.completes(a.request, 1, SUCCESS)?;
    b.completes(b.recv, 10, SUCCESS)?;
    // The peer has no receive, so it stays outstanding.
    let suppress = CompletionFlags::SUPPRESS.bits();
    let code = dat.post(pair.from, Post::Send, &[], 2, suppress);
    ok(code, "dat_ep_post_send, suppressed")?;
    disconnect(dat, pair.from, GRACEFUL)?;
    b.post(pair.to, Post::Recv, &[], 11)?;
    b.completes(b.recv, 11, SUCCESS)?;
    a.connection(pair.from, ConnectionEvent::Disconnected)?;
    b.connection(pair.to, ConnectionEvent::Disconnected)
}

fn pending_refuses(dat: &Dat) -> Check {
    let pair = held(dat)?;
    let code = dat.post(pair.from, Post::Send, &[], 3, 0);
    refused(code, Kind::InvalidState, "dat_ep_post_send")
}

fn pending_refuses_rdma(dat: &Dat) -> Check {
    let pair = held(dat)?;
    let (own, far) = (pair.a.memory(8, ALL)?, pair.b.memory(8, ALL)?);
    for what in [Post::Write(far.remote()), Post::Read(far.remote())] {
        let code = dat.post(pair.from, what, &[own.local()], 3, 0);
        refused(code, Kind::InvalidState, "dat_ep_post_rdma")?;
    }
    if let Ok(rmr) = dat.rmr_create(pair.a.pz) {
        let rights = MemPriv::REMOTE_READ.bits();
        let lmr = own.region.lmr;
        let code = dat
            .rmr_bind(rmr, lmr, &own.local(), rights, pair.from, 4)
            .err();
        refused(code.unwrap_or(0), Kind::InvalidState, "dat_rmr_bind")?;
    }
    Ok(())
}

fn abrupt_in_pending(dat: &Dat) -> Check {
    let pair = held(dat)?;
    disconnect(dat, pair.from, ABRUPT)?;
    pair.a.state(pair.from, EpState::Disconnected)?;
    pair.a
        .connection(pair.from, ConnectionEvent::Disconnected)?;
    for cookie in 1..=2 {
        pair.a.completes(pair.a.request, cookie, FLUSHED)?;
    }
    Ok(())
}

fn graceful_in_pending(dat: &Dat) -> Check {
    let pair = held(dat)?;
    disconnect(dat, pair.from, GRACEFUL)?;
    pair.a.state(pair.from, EpState::DisconnectPending)?;
    pair.a.quiet(pair.a.conn)
}

fn order_on_one_evd(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let all = EvdFlags::DTO | EvdFlags::CONNECTION;
    let evd = pair.a.evd(all)?;
    let from = expect_ok(
        dat.ep_create(pair.a.ia, pair.a.pz, [evd; 3]),
        "dat_ep_create with one EVD",
    )?;
    let cr = pair.asked(from, FOREVER)?;
    ok(dat.cr_accept(cr, pair.to, b""), "dat_cr_accept")?;
    let connection = |number| Seen::Connection { number, ep: from };
    let established = connection(EventNumber::from(ConnectionEvent::Established));
    same(&pair.a.wait(evd)?, &established, "event")?;
    for cookie in 1..=3 {
        pair.b.post(pair.to, Post::Recv, &[], 10 + cookie)?;
        pair.a.post(from, Post::Send, &[], cookie)?;
    }
    disconnect(dat, from, GRACEFUL)?;
    for cookie in 1..=3 {
        pair.a.completes(evd, cookie, SUCCESS)?;
    }
    let end = connection(EventNumber::from(ConnectionEvent::Disconnected));
    same(&pair.a.wait(evd)?, &end, "event")
}

fn disconnected_is_noop(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    disconnect(dat, pair.from, ABRUPT)?;
    pair.a
        .connection(pair.from, ConnectionEvent::Disconnected)?;
    for flags in [ABRUPT, GRACEFUL] {
        disconnect(dat, pair.from, flags)?;
    }
    pair.a.quiet(pair.a.conn)
}

fn is_disallowed(dat: &Dat, ep: usize) -> Check {
    for flags in [ABRUPT, GRACEFUL] {
        let code = dat.ep_disconnect(ep, flags);
        refused(code, Kind::InvalidState, "dat_ep_disconnect")?;
    }
    Ok(())
}

fn unconnected(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    is_disallowed(dat, side.ep()?)
}

fn reserved(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (ep, qual) = (side.ep()?, side.unused()?);
    expect_ok(dat.rsp_create(side.ia, qual, ep, side.cr), "dat_rsp_create")?;
    side.state(ep, EpState::Reserved)?;
    is_disallowed(dat, ep)
}

fn passive_pending(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let qual = pair.b.unused()?;
    let rsp = dat.rsp_create(pair.b.ia, qual, pair.to, pair.b.cr);
    expect_ok(rsp, "dat_rsp_create")?;
    let code = dat.ep_connect(pair.from, &pair.b.attr, qual, FOREVER, b"");
    ok(code, "dat_ep_connect")?;
    pair.b.request()?;
    pair.b.state(pair.to, EpState::PassiveConnectionPending)?;
    is_disallowed(dat, pair.to)
}

fn aborts_attempt(dat: &Dat) -> Check {
    for flags in [ABRUPT, GRACEFUL] {
        let pair = Pair::apart(dat)?;
        let cr = pair.asked(pair.from, FOREVER)?;
        pair.a.state(pair.from, EpState::ActiveConnectionPending)?;
        disconnect(dat, pair.from, flags)?;
        pair.a.state(pair.from, EpState::Disconnected)?;
        // The result of the accept depends on the transport; the aborted side must not report a connection.
        let _ = dat.cr_accept(cr, pair.to, b"");
        while let Ok((seen, _)) = dat.evd_wait(pair.a.conn, 50_000, 1) {
            let established = EventNumber::from(ConnectionEvent::Established);
            if matches!(seen, Seen::Connection { number, .. } if number == established) {
                return broken(
                    "dat_evd_dequeue returned DAT_CONNECTION_EVENT_ESTABLISHED of an aborted attempt",
                );
            }
        }
        pair.a.state(pair.from, EpState::Disconnected)?;
    }
    Ok(())
}

fn abort_flushes(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    for cookie in 1..=3 {
        pair.a.post(pair.from, Post::Recv, &[], cookie)?;
    }
    pair.asked(pair.from, FOREVER)?;
    disconnect(dat, pair.from, ABRUPT)?;
    for cookie in 1..=3 {
        pair.a.completes(pair.a.recv, cookie, FLUSHED)?;
    }
    Ok(())
}

fn flags(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let code = dat.ep_disconnect(pair.from, 2);
    refused(code, Kind::InvalidParameter, "dat_ep_disconnect(2)")?;
    pair.a.state(pair.from, EpState::Connected)
}

fn invalid_handle(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    ok(dat.ep_free(ep), "dat_ep_free")?;
    for wrong in [0, ep, side.pz] {
        let code = dat.ep_disconnect(wrong, ABRUPT);
        refused(code, Kind::InvalidHandle, "dat_ep_disconnect")?;
    }
    let psp = dat.psp_create(side.ia, 0, side.pz, CONSUMER);
    holds(
        psp.is_err(),
        "dat_psp_create accepted the handle of a PZ as EVD",
    )
}
