//! dat_ep_create, dat_ep_free, dat_ep_reset, dat_ep_get_status.

use dat_core::ep::EpState;
use dat_core::error::Kind;
use dat_core::event::ConnectionEvent;
use dat_core::flags::{CompletionFlags, EvdFlags};

use super::statements;
use crate::dat::{Dat, Post, field};
use crate::event::{FLUSHED, SUCCESS};
use crate::fixture::{ABRUPT, FOREVER, Pair, Side, expect_ok};
use crate::verdict::{Check, holds, ok, refused, same};

statements! {
    "dat_ep_create": "An endpoint is created Unconnected." => created_unconnected;
    "dat_ep_create": "Receives may be posted to an Unconnected endpoint, requests may not." => posts_before;
    "dat_ep_create": "An EVD without the required stream is DAT_INVALID_HANDLE." => wrong_stream;
    "dat_ep_modify": "Handles and attributes can be changed while Unconnected; the query returns the new ones." => modify;
    "dat_ep_modify": "A Connected endpoint cannot be changed: DAT_INVALID_STATE." => modify_connected;
    "dat_ep_modify": "A field that cannot be set is DAT_INVALID_PARAMETER." => modify_state;
    "dat_ep_modify": "An EVD without the required stream is DAT_INVALID_HANDLE, and nothing changes." => modify_wrong;
    "dat_ep_query": "The query returns the handles that the endpoint was created with." => query;
    "dat_ep_query": "Each side's local qualifier is what the other side sees as the remote one." => ports;
    "dat_ep_free": "An endpoint can be destroyed Unconnected, Connected, and Disconnected." => any_state;
    "dat_ep_free": "Destroying a connected endpoint ends its connection for the peer." => peer_hears;
    "dat_ep_free": "Destroying an endpoint during connection setup aborts the attempt." => aborts;
    "dat_ep_free": "A Reserved endpoint cannot be destroyed before its RSP." => reserved;
    "dat_ep_free": "It releases its EVDs and its PZ." => lets_go;
    "dat_ep_free": "The handle of a destroyed endpoint fails in any later operation." => handle_fails;
    "dat_ep_reset": "A Disconnected endpoint becomes Unconnected, and can connect again." => reset_and_again;
    "dat_ep_reset": "A Connected endpoint cannot be reset: DAT_INVALID_STATE." => reset_connected;
    "dat_ep_reset": "Resetting an Unconnected endpoint has no effect." => reset_unconnected;
    "dat_ep_get_status": "Receives and requests are idle unless some are outstanding." => idle;
    "dat_ep_get_status": "Requests with suppressed events count too, until a later request has completed." => idle_without_events;
}

fn created_unconnected(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    side.state(side.ep()?, EpState::Unconnected)
}

fn posts_before(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    side.post(ep, Post::Recv, &[], 1)?;
    let code = dat.post(ep, Post::Send, &[], 2, 0);
    refused(code, Kind::InvalidState, "dat_ep_post_send, Unconnected")
}

fn wrong_stream(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let evds = [side.recv, side.request, side.recv];
    let code = dat.ep_create(side.ia, side.pz, evds).err().unwrap_or(0);
    refused(code, Kind::InvalidHandle, "dat_ep_create")
}

fn query(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let param = expect_ok(dat.ep_query(side.ep()?), "dat_ep_query")?;
    let seen = [param.ia_handle, param.pz_handle, param.recv_evd_handle];
    same(&seen, &[side.ia, side.pz, side.recv], "IA, PZ, receive EVD")?;
    let seen = [param.request_evd_handle, param.connect_evd_handle];
    same(&seen, &[side.request, side.conn], "request and connect EVD")
}

fn ports(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (psp, qual) = pair.b.listen()?;
    let code = dat.ep_connect(pair.from, &pair.b.attr, qual, FOREVER, b"");
    ok(code, "dat_ep_connect")?;
    let cr = pair.b.request()?;
    // The qualifier stays when the service point is gone.
    ok(dat.psp_free(psp), "dat_psp_free")?;
    ok(dat.cr_accept(cr, pair.to, b""), "dat_cr_accept")?;
    pair.a.connection(pair.from, ConnectionEvent::Established)?;
    pair.b.connection(pair.to, ConnectionEvent::Established)?;
    let (from, to) = (dat.ep_query(pair.from), dat.ep_query(pair.to));
    let (from, to) = (
        expect_ok(from, "dat_ep_query")?,
        expect_ok(to, "dat_ep_query")?,
    );
    let seen = [from.local_port_qual, from.remote_port_qual];
    let expected = [to.remote_port_qual, to.local_port_qual];
    same(&seen, &expected, "local and remote qualifier")?;
    // A transport without ports has none for the active side.
    same(&seen[1], &qual, "qualifier of the service point")
}

fn any_state(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    ok(dat.ep_free(pair.a.ep()?), "dat_ep_free, Unconnected")?;
    ok(dat.ep_free(pair.from), "dat_ep_free, Connected")?;
    pair.b.connection(pair.to, ConnectionEvent::Disconnected)?;
    ok(dat.ep_free(pair.to), "dat_ep_free, Disconnected")
}

fn peer_hears(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    pair.b.post(pair.to, Post::Recv, &[], 1)?;
    ok(dat.ep_free(pair.from), "dat_ep_free")?;
    pair.b.connection(pair.to, ConnectionEvent::Disconnected)?;
    pair.b.completes(pair.b.recv, 1, FLUSHED)
}

fn aborts(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let cr = pair.asked(pair.from, FOREVER)?;
    ok(
        dat.ep_free(pair.from),
        "dat_ep_free, Active Connection Pending",
    )?;
    // The request may still be answered; the answer has no effect.
    let _ = dat.cr_reject(cr, b"");
    pair.a.quiet(pair.a.conn)
}

fn reserved(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    let (psp, qual) = side.listen()?;
    ok(dat.psp_free(psp), "dat_psp_free")?;
    let rsp = expect_ok(dat.rsp_create(side.ia, qual, ep, side.cr), "dat_rsp_create")?;
    refused(dat.ep_free(ep), Kind::InvalidState, "dat_ep_free, Reserved")?;
    ok(dat.rsp_free(rsp), "dat_rsp_free")?;
    side.state(ep, EpState::Unconnected)?;
    ok(dat.ep_free(ep), "dat_ep_free")
}

fn lets_go(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    for evd in [side.recv, side.request, side.conn] {
        refused(dat.evd_free(evd), Kind::InvalidState, "dat_evd_free")?;
    }
    ok(dat.ep_free(ep), "dat_ep_free")?;
    for evd in [side.recv, side.request, side.conn] {
        ok(dat.evd_free(evd), "dat_evd_free")?;
    }
    ok(dat.pz_free(side.pz), "dat_pz_free")
}

fn handle_fails(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    ok(dat.ep_free(ep), "dat_ep_free")?;
    let codes = [
        dat.ep_free(ep),
        dat.ep_reset(ep),
        dat.ep_disconnect(ep, ABRUPT),
        dat.post(ep, Post::Recv, &[], 1, 0),
        dat.post(ep, Post::Send, &[], 1, 0),
        dat.ep_query(ep).err().unwrap_or(0),
        dat.ep_get_status(ep).err().unwrap_or(0),
    ];
    for code in codes {
        refused(code, Kind::InvalidHandle, "a call with a freed endpoint")?;
    }
    Ok(())
}

fn reset_and_again(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    ok(dat.ep_disconnect(pair.from, ABRUPT), "dat_ep_disconnect")?;
    pair.a
        .connection(pair.from, ConnectionEvent::Disconnected)?;
    pair.b.connection(pair.to, ConnectionEvent::Disconnected)?;
    for ep in [pair.from, pair.to] {
        ok(dat.ep_reset(ep), "dat_ep_reset")?;
        let port = expect_ok(dat.ep_query(ep), "dat_ep_query")?.local_port_qual;
        same(&port, &0, "local qualifier after dat_ep_reset")?;
    }
    pair.a.state(pair.from, EpState::Unconnected)?;
    pair.join(pair.from, pair.to)?;
    pair.b.post(pair.to, Post::Recv, &[], 1)?;
    pair.a.post(pair.from, Post::Send, &[], 2)?;
    pair.b.completes(pair.b.recv, 1, SUCCESS)
}

fn reset_connected(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    refused(dat.ep_reset(pair.from), Kind::InvalidState, "dat_ep_reset")?;
    pair.a.state(pair.from, EpState::Connected)
}

fn idle(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let status = || expect_ok(dat.ep_get_status(pair.from), "dat_ep_get_status");
    let (_, recv, request) = status()?;
    holds(
        recv && request,
        "dat_ep_get_status of a new connection reports busy receives or requests",
    )?;
    pair.a.post(pair.from, Post::Recv, &[], 1)?;
    holds(
        !status()?.1,
        "dat_ep_get_status reports idle receives while one is outstanding",
    )?;
    pair.b.post(pair.to, Post::Send, &[], 2)?;
    pair.a.completes(pair.a.recv, 1, SUCCESS)?;
    holds(
        status()?.1,
        "dat_ep_get_status reports busy receives after the last completion",
    )
}

fn idle_without_events(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let busy =
        || expect_ok(dat.ep_get_status(pair.from), "dat_ep_get_status").map(|status| !status.2);
    // The peer has no receive, so they stay outstanding.
    let suppress = CompletionFlags::SUPPRESS.bits();
    for cookie in 1..=2 {
        let code = dat.post(pair.from, Post::Send, &[], cookie, suppress);
        ok(code, "dat_ep_post_send, suppressed")?;
    }
    holds(
        busy()?,
        "dat_ep_get_status reports idle requests while two are outstanding",
    )?;
    pair.a.post(pair.from, Post::Send, &[], 3)?;
    for cookie in 1..=3 {
        pair.b.post(pair.to, Post::Recv, &[], cookie)?;
    }
    pair.a.completes(pair.a.request, 3, SUCCESS)?;
    holds(
        !busy()?,
        "dat_ep_get_status reports busy requests after the last completion",
    )?;
    pair.a.quiet(pair.a.request)
}

fn modify(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    let mut param = expect_ok(dat.ep_query(ep), "dat_ep_query")?;
    let other = side.evd(EvdFlags::CONNECTION)?;
    param.connect_evd_handle = other;
    param.ep_attr.max_recv_dtos = 3;
    param.ep_attr.max_request_dtos = 5;
    let mask = field::CONNECT_EVD | field::MAX_RECV_DTOS | field::MAX_REQUEST_DTOS;
    ok(dat.ep_modify(ep, mask, &param), "dat_ep_modify")?;
    let seen = expect_ok(dat.ep_query(ep), "dat_ep_query")?;
    same(&seen.connect_evd_handle, &other, "connect EVD")?;
    holds(
        seen.ep_attr.max_recv_dtos >= 3 && seen.ep_attr.max_request_dtos >= 5,
        "the query returned fewer DTOs than were requested",
    )?;
    ok(
        dat.evd_free(side.conn),
        "dat_evd_free of the former connect EVD",
    )
}

fn modify_connected(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let mut param = expect_ok(dat.ep_query(pair.from), "dat_ep_query")?;
    param.ep_attr.max_recv_dtos += 1;
    let code = dat.ep_modify(pair.from, field::MAX_RECV_DTOS, &param);
    refused(code, Kind::InvalidState, "dat_ep_modify, Connected")?;
    pair.a.state(pair.from, EpState::Connected)
}

fn modify_state(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    let param = expect_ok(dat.ep_query(ep), "dat_ep_query")?;
    let code = dat.ep_modify(ep, field::EP_STATE, &param);
    refused(code, Kind::InvalidParameter, "dat_ep_modify of the state")
}

fn modify_wrong(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    let mut param = expect_ok(dat.ep_query(ep), "dat_ep_query")?;
    param.recv_evd_handle = side.conn;
    let code = dat.ep_modify(ep, field::RECV_EVD, &param);
    refused(code, Kind::InvalidHandle, "dat_ep_modify")?;
    let seen = expect_ok(dat.ep_query(ep), "dat_ep_query")?;
    same(&seen.recv_evd_handle, &side.recv, "receive EVD")
}

fn reset_unconnected(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    ok(dat.ep_reset(ep), "dat_ep_reset")?;
    side.state(ep, EpState::Unconnected)
}
