//! dat_psp_*, dat_rsp_*, dat_cr_handoff, and endpoints that the provider creates for a request.

use dat_core::ep::EpState;
use dat_core::error::Kind;
use dat_core::event::ConnectionEvent;

use super::statements;
use crate::dat::{Dat, address_of, field, remote_address};
use crate::event::{FLUSHED, Seen};
use crate::fixture::{ABRUPT, CONSUMER, FOREVER, PROVIDER, Pair, Side, TIMEOUT, expect_ok};
use crate::names::EventNumber;
use crate::verdict::{Check, holds, ok, refused, same};

statements! {
    "dat_psp_create": "Requests arrive at the requested qualifier." => at_qualifier;
    "dat_psp_create": "With DAT_PSP_PROVIDER_FLAG the request has an endpoint in Tentative Connection Pending." => tentative;
    "dat_psp_create": "An EVD without the connection request stream is DAT_INVALID_HANDLE." => psp_wrong_evd;
    "dat_psp_create": "Unknown flags are DAT_INVALID_PARAMETER." => psp_flags;
    "dat_psp_create_any": "It selects a free qualifier and returns it." => any;
    "dat_psp_query": "The query returns the parameters that the PSP was created with." => psp_query;
    "dat_psp_free": "Connections that were made through it stay." => psp_free_keeps_connections;
    "dat_rsp_query": "The query returns the parameters that the RSP was created with." => rsp_query;
    "dat_rsp_create": "A qualifier in use is DAT_CONN_QUAL_IN_USE." => rsp_qual_in_use;
    "dat_rsp_create": "The endpoint must be Unconnected: DAT_INVALID_STATE." => rsp_connected;
    "dat_rsp_free": "Its endpoint is Unconnected again, and requests no longer arrive." => rsp_free;
    "dat_cr_accept": "The provider's endpoint connects with the handles that dat_ep_modify set." => accept_tentative;
    "dat_cr_accept": "Private data is sent to the peer; too much is DAT_INVALID_PARAMETER." => accept_data;
    "dat_cr_reject": "The provider's endpoint is destroyed with its request." => reject_tentative;
    "dat_cr_reject": "The endpoint of an RSP is Unconnected again." => reject_reserved;
    "dat_cr_query": "The query returns the peer's address and the provider's endpoint." => cr_query;
    "dat_cr_handoff": "The request arrives at the other service point, and its handle is destroyed." => handoff;
    "dat_cr_handoff": "A qualifier without a listener is DAT_INVALID_PARAMETER, and the request stays." => handoff_nowhere;
    "dat_ep_free": "Passive and Tentative Connection Pending endpoints cannot be destroyed." => pending_stay;
    "dat_ep_disconnect": "A Tentative Connection Pending endpoint cannot be disconnected." => tentative_disconnect;
    "dat_ep_connect": "A rejected attempt flushes the receives that were posted before." => rejected_flushes;
    "dat_ep_connect": "More private data than the provider's attributes allow is DAT_INVALID_PARAMETER." => too_much_data;
    "dat_ep_connect": "An unsupported quality of service is DAT_MODEL_NOT_SUPPORTED." => quality;
    "dat_ep_connect": "Unsupported multipathing is DAT_MODEL_NOT_SUPPORTED." => multipath;
    "dat_ep_dup_connect": "It connects to the peer of the other endpoint." => duplicate;
    "dat_ep_dup_connect": "The other endpoint must be Connected: DAT_INVALID_STATE." => duplicate_of_nothing;
}

/// Sends a request of `pair.from` to a PSP with provider endpoints; returns request and endpoint.
fn offered(pair: &Pair<'_>) -> Check<(usize, usize)> {
    let (dat, b) = (pair.b.dat, &pair.b);
    let (_, qual) = expect_ok(
        dat.psp_create_any(b.ia, b.cr, PROVIDER),
        "dat_psp_create_any, provider's endpoints",
    )?;
    let code = dat.ep_connect(pair.from, &b.attr, qual, FOREVER, b"");
    ok(code, "dat_ep_connect")?;
    let cr = b.request()?;
    let ep = expect_ok(dat.cr_query(cr), "dat_cr_query")?.local_ep_handle;
    holds(ep != 0, "dat_cr_query returned no endpoint for the request")?;
    Ok((cr, ep))
}

/// Sends a request of `pair.from` to an RSP for `pair.to`.
fn reserved(pair: &Pair<'_>) -> Check<usize> {
    let (dat, b) = (pair.b.dat, &pair.b);
    let qual = b.unused()?;
    expect_ok(dat.rsp_create(b.ia, qual, pair.to, b.cr), "dat_rsp_create")?;
    let code = dat.ep_connect(pair.from, &b.attr, qual, FOREVER, b"");
    ok(code, "dat_ep_connect")?;
    b.request()
}

fn at_qualifier(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let b = &pair.b;
    let qual = b.unused()?;
    let psp = expect_ok(dat.psp_create(b.ia, qual, b.cr, CONSUMER), "dat_psp_create")?;
    let code = dat.ep_connect(pair.from, &b.attr, qual, FOREVER, b"");
    ok(code, "dat_ep_connect")?;
    match b.wait(b.cr)? {
        Seen::Request { sp, conn_qual, .. } => same(
            &(sp, conn_qual),
            &(psp, qual),
            "service point and qualifier",
        ),
        other => same(&format!("{other:?}"), &"a request".into(), "event"),
    }
}

fn tentative(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (_, ep) = offered(&pair)?;
    pair.b.state(ep, EpState::TentativeConnectionPending)
}

fn psp_wrong_evd(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let code = dat.psp_create_any(side.ia, side.conn, CONSUMER).err();
    refused(code.unwrap_or(0), Kind::InvalidHandle, "dat_psp_create_any")
}

fn psp_flags(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let code = dat.psp_create_any(side.ia, side.cr, 7).err();
    refused(
        code.unwrap_or(0),
        Kind::InvalidParameter,
        "dat_psp_create_any(7)",
    )
}

fn any(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ((one, first), (other, second)) = (side.listen()?, side.listen()?);
    holds(
        one != other && first != second && first != 0 && second != 0,
        "two PSPs have the same handle or qualifier, or a null one",
    )
}

fn psp_query(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    for flags in [CONSUMER, PROVIDER] {
        let psp = dat.psp_create_any(side.ia, side.cr, flags);
        let (psp, qual) = expect_ok(psp, "dat_psp_create_any")?;
        let seen = expect_ok(dat.psp_query(psp), "dat_psp_query")?;
        let seen = (
            seen.ia_handle,
            seen.conn_qual,
            seen.evd_handle,
            seen.psp_flags,
        );
        same(&seen, &(side.ia, qual, side.cr, flags), "parameters")?;
    }
    Ok(())
}

fn psp_free_keeps_connections(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (psp, qual) = pair.b.listen()?;
    let code = dat.ep_connect(pair.from, &pair.b.attr, qual, FOREVER, b"");
    ok(code, "dat_ep_connect")?;
    let cr = pair.b.request()?;
    ok(dat.cr_accept(cr, pair.to, b""), "dat_cr_accept")?;
    pair.a.connection(pair.from, ConnectionEvent::Established)?;
    pair.b.connection(pair.to, ConnectionEvent::Established)?;
    ok(dat.psp_free(psp), "dat_psp_free")?;
    pair.b.quiet(pair.b.conn)?;
    pair.a.state(pair.from, EpState::Connected)?;
    pair.b.state(pair.to, EpState::Connected)
}

fn rsp_query(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (ep, qual) = (side.ep()?, side.unused()?);
    let rsp = expect_ok(dat.rsp_create(side.ia, qual, ep, side.cr), "dat_rsp_create")?;
    let seen = expect_ok(dat.rsp_query(rsp), "dat_rsp_query")?;
    let seen = (
        seen.ia_handle,
        seen.conn_qual,
        seen.evd_handle,
        seen.ep_handle,
    );
    same(&seen, &(side.ia, qual, side.cr, ep), "parameters")
}

fn rsp_qual_in_use(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (_, qual) = side.listen()?;
    let ep = side.ep()?;
    let code = dat.rsp_create(side.ia, qual, ep, side.cr).err();
    refused(code.unwrap_or(0), Kind::ConnQualInUse, "dat_rsp_create")?;
    side.state(ep, EpState::Unconnected)
}

fn rsp_connected(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let b = &pair.b;
    let code = dat.rsp_create(b.ia, b.unused()?, pair.to, b.cr).err();
    refused(code.unwrap_or(0), Kind::InvalidState, "dat_rsp_create")?;
    b.state(pair.to, EpState::Connected)
}

fn rsp_free(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let b = &pair.b;
    let qual = b.unused()?;
    let rsp = expect_ok(dat.rsp_create(b.ia, qual, pair.to, b.cr), "dat_rsp_create")?;
    ok(dat.rsp_free(rsp), "dat_rsp_free")?;
    b.state(pair.to, EpState::Unconnected)?;
    let code = dat.ep_connect(pair.from, &b.attr, qual, TIMEOUT, b"");
    ok(code, "dat_ep_connect")?;
    pair.a
        .connection(pair.from, ConnectionEvent::NonPeerRejected)?;
    refused(dat.rsp_free(rsp), Kind::InvalidHandle, "dat_rsp_free again")
}

fn accept_tentative(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (cr, ep) = offered(&pair)?;
    let mut parts = expect_ok(dat.ep_query(ep), "dat_ep_query")?;
    (parts.pz_handle, parts.recv_evd_handle) = (pair.b.pz, pair.b.recv);
    (parts.request_evd_handle, parts.connect_evd_handle) = (pair.b.request, pair.b.conn);
    let mask = field::PZ | field::RECV_EVD | field::REQUEST_EVD | field::CONNECT_EVD;
    ok(
        dat.ep_modify(ep, mask, &parts),
        "dat_ep_modify, Tentative Connection Pending",
    )?;
    ok(
        dat.cr_accept(cr, 0, b""),
        "dat_cr_accept without an endpoint",
    )?;
    pair.a.connection(pair.from, ConnectionEvent::Established)?;
    pair.b.connection(ep, ConnectionEvent::Established)?;
    pair.b.state(ep, EpState::Connected)
}

fn accept_data(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let cr = pair.asked(pair.from, FOREVER)?;
    let much = pair.b.too_much_data()?;
    let code = dat.cr_accept(cr, pair.to, &much);
    refused(code, Kind::InvalidParameter, "dat_cr_accept, too much data")?;
    ok(dat.cr_accept(cr, pair.to, b"welcome"), "dat_cr_accept")?;
    let (event, data) = pair.a.wait_with_data(pair.a.conn)?;
    let number = EventNumber::from(ConnectionEvent::Established);
    let ep = pair.from;
    same(&event, &Seen::Connection { number, ep }, "event")?;
    // A transport may pad it to the size of its message field.
    let (told, padding) = data.split_at(data.len().min(7));
    same(&told, &&b"welcome"[..], "private data")?;
    holds(
        padding.iter().all(|b| *b == 0),
        "the private data is followed by bytes that are not 0",
    )
}

fn reject_tentative(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (cr, ep) = offered(&pair)?;
    ok(dat.cr_reject(cr, b""), "dat_cr_reject")?;
    let code = dat.ep_query(ep).err().unwrap_or(0);
    refused(code, Kind::InvalidHandle, "dat_ep_query")?;
    pair.a.connection(pair.from, ConnectionEvent::PeerRejected)
}

fn reject_reserved(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let cr = reserved(&pair)?;
    ok(dat.cr_reject(cr, b""), "dat_cr_reject")?;
    pair.b.state(pair.to, EpState::Unconnected)?;
    pair.a.connection(pair.from, ConnectionEvent::PeerRejected)
}

fn cr_query(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let cr = pair.asked(pair.from, FOREVER)?;
    let seen = expect_ok(dat.cr_query(cr), "dat_cr_query")?;
    let address = remote_address(&seen);
    same(&address, &address_of(&pair.a.attr), "address of the peer")?;
    same(&seen.local_ep_handle, &0, "endpoint")?;
    // It is 0 where the transport has no ports.
    let qualifier = seen.remote_port_qual;
    ok(dat.cr_accept(cr, pair.to, b""), "dat_cr_accept")?;
    pair.b.connection(pair.to, ConnectionEvent::Established)?;
    let accepted = expect_ok(dat.ep_query(pair.to), "dat_ep_query")?;
    same(&accepted.remote_port_qual, &qualifier, "remote qualifier")?;
    let (cr, ep) = offered(&Pair::apart(dat)?)?;
    holds(
        cr != 0 && ep != cr,
        "the connection request and its endpoint have the same handle",
    )
}

fn handoff(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let cr = pair.asked(pair.from, FOREVER)?;
    let (psp, qual) = pair.b.listen()?;
    ok(dat.cr_handoff(cr, qual), "dat_cr_handoff")?;
    let Seen::Request {
        sp,
        cr: again,
        conn_qual,
    } = pair.b.wait(pair.b.cr)?
    else {
        return holds(
            false,
            "dat_evd_wait returned no DAT_CONNECTION_REQUEST_EVENT",
        );
    };
    same(
        &(sp, conn_qual),
        &(psp, qual),
        "service point and qualifier",
    )?;
    if again != cr {
        let code = dat.cr_query(cr).err().unwrap_or(0);
        refused(code, Kind::InvalidHandle, "dat_cr_query of the old handle")?;
    }
    same(
        &dat.cr_private_data(again, 5),
        &Some(b"hello".to_vec()),
        "private data",
    )?;
    ok(dat.cr_accept(again, pair.to, b""), "dat_cr_accept")?;
    pair.a.connection(pair.from, ConnectionEvent::Established)
}

fn handoff_nowhere(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let cr = pair.asked(pair.from, FOREVER)?;
    let code = dat.cr_handoff(cr, pair.b.unused()?);
    refused(code, Kind::InvalidParameter, "dat_cr_handoff")?;
    ok(dat.cr_accept(cr, pair.to, b""), "dat_cr_accept after that")
}

fn pending_stay(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    reserved(&pair)?;
    let code = dat.ep_free(pair.to);
    refused(
        code,
        Kind::InvalidState,
        "dat_ep_free, Passive Connection Pending",
    )?;
    let pair = Pair::apart(dat)?;
    let (_, ep) = offered(&pair)?;
    let code = dat.ep_free(ep);
    refused(
        code,
        Kind::InvalidState,
        "dat_ep_free, Tentative Connection Pending",
    )
}

fn tentative_disconnect(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (_, ep) = offered(&pair)?;
    let code = dat.ep_disconnect(ep, ABRUPT);
    refused(code, Kind::InvalidState, "dat_ep_disconnect")
}

fn rejected_flushes(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    for cookie in 1..=3 {
        pair.a
            .post(pair.from, crate::dat::Post::Recv, &[], cookie)?;
    }
    let cr = pair.asked(pair.from, FOREVER)?;
    ok(dat.cr_reject(cr, b""), "dat_cr_reject")?;
    pair.a
        .connection(pair.from, ConnectionEvent::PeerRejected)?;
    for cookie in 1..=3 {
        pair.a.completes(pair.a.recv, cookie, FLUSHED)?;
    }
    Ok(())
}

fn too_much_data(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let data = pair.a.too_much_data()?;
    let code = dat.ep_connect(pair.from, &pair.b.attr, 1, FOREVER, &data);
    refused(code, Kind::InvalidParameter, "dat_ep_connect")?;
    pair.a.state(pair.from, EpState::Unconnected)
}

/// Checks that the provider refuses what its attributes do not offer, and that the endpoint is unchanged.
fn beyond(dat: &Dat, qos: u32, flags: u32) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    let code = dat.ep_connect_with(ep, &side.attr, qos, flags);
    refused(code, Kind::ModelNotSupported, "dat_ep_connect")?;
    side.state(ep, EpState::Unconnected)
}

fn quality(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (_, provider) = expect_ok(dat.ia_query(side.ia), "dat_ia_query")?;
    const LOW_LATENCY: u32 = 2;
    if provider.dat_qos_supported & LOW_LATENCY != 0 {
        return Ok(());
    }
    beyond(dat, LOW_LATENCY, 0)
}

fn multipath(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (_, provider) = expect_ok(dat.ia_query(side.ia), "dat_ia_query")?;
    if provider.supports_multipath != 0 {
        return Ok(());
    }
    beyond(dat, 0, 1)
}

fn duplicate(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (_, qual) = pair.b.listen()?;
    let code = dat.ep_connect(pair.from, &pair.b.attr, qual, FOREVER, b"");
    ok(code, "dat_ep_connect")?;
    let cr = pair.b.request()?;
    ok(dat.cr_accept(cr, pair.to, b""), "dat_cr_accept")?;
    pair.a.connection(pair.from, ConnectionEvent::Established)?;
    pair.b.connection(pair.to, ConnectionEvent::Established)?;

    let (from, to) = (pair.a.ep()?, pair.b.ep()?);
    let code = dat.ep_dup_connect(from, pair.from, FOREVER, b"again");
    ok(code, "dat_ep_dup_connect")?;
    let cr = pair.b.request()?;
    let data = dat.cr_private_data(cr, 5);
    same(&data, &Some(b"again".to_vec()), "private data")?;
    ok(dat.cr_accept(cr, to, b""), "dat_cr_accept")?;
    pair.a.connection(from, ConnectionEvent::Established)?;
    pair.b.connection(to, ConnectionEvent::Established)
}

fn duplicate_of_nothing(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (ep, model) = (side.ep()?, side.ep()?);
    let code = dat.ep_dup_connect(ep, model, FOREVER, b"");
    refused(code, Kind::InvalidState, "dat_ep_dup_connect")?;
    side.state(ep, EpState::Unconnected)
}
