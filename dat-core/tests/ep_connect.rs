//! dat_ep_connect, dat_ep_dup_connect, service points, connection requests and their ends.
#![allow(missing_docs, reason = "a test")]

mod pair;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_core::cr::Cr;
use dat_core::ep::{Ep, EpChange, EpState};
use dat_core::error::{Error, Kind, Subtype};
use dat_core::evd::Evd;
use dat_core::evd::word::is_idle;
use dat_core::event::{ConnectionEvent as E, Event};
use dat_core::flags::Close;
use dat_core::sp::{Flavour, Sp, SpKind};
use dat_core::transport::Transport;
use pair::*;

fn state(ep: &'static Ep<Fake>) -> EpState {
    ep.status().0
}

const TEN_MS: Option<Duration> = Some(Duration::from_millis(10));

/// dat_ep_connect, dat_cr_query, dat_cr_accept: private data reaches the peer; an accepted CR is dead.
/// dat_psp_free: established connections stay.
#[test]
fn private_data_goes_both_ways_and_stays() {
    let (client, server) = (Side::open(), Side::open());
    let (from, to) = (client.ep(), server.ep());
    let psp = Sp::psp_create(server.ia, Some(101), server.cr, false).unwrap();
    from.connect(PEER, 101, None, b"question", 0, 0).unwrap();
    assert_eq!(state(from), EpState::ActiveConnectionPending);
    let event = wait(server.cr);
    let Event::ConnectionRequest { sp, conn_qual, .. } = event else {
        panic!("{event:?}");
    };
    assert_eq!((sp, conn_qual), (psp.handle(), 101));
    let cr = request(event);
    assert_eq!(cr.private_data().to_vec(), b"question");
    assert!(cr.info().unwrap().local_ep.is_none());
    assert_eq!(cr.info().unwrap().remote.port(), 4321);
    cr.accept(Some(to), b"answer").unwrap();
    assert_eq!(wait(client.conn), connection(E::Established, from));
    assert_eq!(wait(server.conn), connection(E::Established, to));
    assert_eq!(from.private_data().to_vec(), b"answer");
    assert!(to.private_data().is_empty());
    assert_eq!(
        (state(from), state(to)),
        (EpState::Connected, EpState::Connected)
    );
    // The accepted CR and the freed PSP are dead; the connection is not.
    let dead = Error::handle(Subtype::InvalidHandleCr);
    assert_eq!(cr.accept(Some(to), b"").unwrap_err(), dead);
    assert_eq!(cr.reject(b"").unwrap_err(), dead);
    assert_eq!(cr.info().unwrap_err(), dead);
    psp.free().unwrap();
    assert_eq!(psp.free(), Err(Error::handle(Subtype::InvalidHandlePsp)));
    assert_eq!(state(from), EpState::Connected);
    from.disconnect(Close::Abrupt).unwrap();
    assert_eq!(wait(server.conn), connection(E::Disconnected, to));
    assert_eq!(
        from.private_data().to_vec(),
        b"answer",
        "kept until the next connection"
    );
}

/// During a connection attempt an empty poll takes the slow path, which yields to the thread that makes the connection. When no attempt
/// is left, however it ended, an empty poll is one load.
#[test]
fn a_connection_evd_is_polled_with_one_load_unless_an_attempt_is_pending() {
    let (client, server) = (Side::open(), Side::open());
    let quick = |evd: &'static Evd<Fake>| is_idle(evd.head.word.load(Ordering::Relaxed), 8);
    assert!(quick(client.conn) && quick(server.conn) && quick(server.cr));
    let psp = Sp::psp_create(server.ia, Some(156), server.cr, false).unwrap();
    let (from, to) = (client.ep(), server.ep());
    from.connect(PEER, 156, None, b"", 0, 0).unwrap();
    assert!(!quick(client.conn));
    assert_eq!(next(client.conn), None);
    let cr = request(wait(server.cr));
    // More requests may follow.
    assert!(!quick(server.cr));
    cr.accept(Some(to), b"").unwrap();
    assert_eq!(wait(client.conn), connection(E::Established, from));
    assert_eq!(wait(server.conn), connection(E::Established, to));
    assert!(quick(client.conn) && quick(server.conn));
    for _ in 0..1000 {
        assert_eq!(next(server.cr), None);
    }
    assert!(quick(server.cr));

    let ep = client.ep();
    ep.connect(PEER, BLACK_HOLE, TEN_MS, b"", 0, 0).unwrap();
    assert_eq!(wait(client.conn), connection(E::TimedOut, ep));
    assert!(quick(client.conn));
    let ep = client.ep();
    ep.connect(PEER, BLACK_HOLE, None, b"", 0, 0).unwrap();
    assert!(!quick(client.conn));
    ep.free().unwrap();
    assert!(quick(client.conn));
    psp.free().unwrap();
}

/// dat_ep_connect: PEER_REJECTED, NON_PEER_REJECTED, TIMED_OUT, each leads to Disconnected; an error that is known at once fails the
/// call.
#[test]
fn each_failed_attempt_has_its_event_and_state() {
    let (client, server) = (Side::open(), Side::open());
    let psp = Sp::psp_create(server.ia, Some(102), server.cr, false).unwrap();

    let ep = client.ep();
    ep.connect(PEER, 102, None, b"", 0, 0).unwrap();
    request(wait(server.cr)).reject(b"no").unwrap();
    assert_eq!(wait(client.conn), connection(E::PeerRejected, ep));
    assert_eq!(ep.private_data().to_vec(), b"no");
    assert_eq!(state(ep), EpState::Disconnected);

    let ep = client.ep();
    ep.connect(PEER, 109, None, b"", 0, 0).unwrap();
    assert_eq!(wait(client.conn), connection(E::NonPeerRejected, ep));

    let ep = client.ep();
    let posted = ep.post_recv(&[], 77, Default::default());
    assert_eq!(posted, Ok(()));
    ep.connect(PEER, BLACK_HOLE, TEN_MS, b"", 0, 0).unwrap();
    assert_eq!(wait(client.conn), connection(E::TimedOut, ep));
    assert_eq!(state(ep), EpState::Disconnected);
    let flushed = dto(next(client.recv).unwrap());
    assert_eq!(
        (flushed.cookie, flushed.status as u32),
        (77, 1),
        "preposted receives are flushed"
    );

    let ep = client.ep();
    let refused = ep.connect(PEER, NO_ROUTE, None, b"", 0, 0);
    assert_eq!(refused, Err(Error::of(Kind::InvalidAddress)));
    assert_eq!(state(ep), EpState::Unconnected, "nothing happened");
    assert_eq!(next(client.conn), None);
    psp.free().unwrap();
}

#[test]
fn a_timeout_after_the_connection_causes_no_event() {
    let (client, server) = (Side::open(), Side::open());
    let psp = Sp::psp_create(server.ia, Some(103), server.cr, false).unwrap();
    for limit in [10, 100, 1000, 10_000].map(Duration::from_millis) {
        let (from, to) = (client.ep(), server.ep());
        let begun = Instant::now();
        from.connect(PEER, 103, Some(limit), b"", 0, 0).unwrap();
        request(wait(server.cr)).accept(Some(to), b"").unwrap();
        let event = wait(client.conn);
        if event == connection(E::TimedOut, from) {
            // The machine was busy with other work; an event before the timeout is still wrong.
            assert!(begun.elapsed() >= limit);
            continue;
        }
        assert_eq!(event, connection(E::Established, from));
        let mut got = None;
        let quiet = client.conn.wait(Some(limit * 6), 1, &mut got);
        assert!(quiet.is_err() && got.is_none(), "{got:?}");
        assert_eq!(state(from), EpState::Connected);
        psp.free().unwrap();
        return;
    }
    panic!("ten seconds are not enough for a connection");
}

/// dat_ep_connect: timeouts are positive, private data has a limit, INVALID_STATE unless Unconnected.
/// dat_ep_disconnect: both kinds abort an attempt. dat_ep_free: a second free is INVALID_HANDLE.
#[test]
fn arguments_of_connect_are_refused_one_by_one() {
    let side = Side::open();
    let ep = side.ep();
    let model = Err(Error::of(Kind::ModelNotSupported));
    assert_eq!(ep.connect(PEER, 1, None, b"", 1, 0), model);
    assert_eq!(ep.connect(PEER, 1, None, b"", 0, 1), model);
    assert_eq!(
        ep.connect(PEER, 1, Some(Duration::ZERO), b"", 0, 0),
        Err(Error::arg(4))
    );
    assert_eq!(
        ep.connect(PEER, 1, None, &[0; 57], 0, 0),
        Err(Error::arg(5))
    );
    assert_eq!(ep.dup_connect(ep, None, b"", 1), model);
    let unconnected = Err(Error::state(Subtype::InvalidStateEpUnconnected));
    assert_eq!(ep.dup_connect(ep, None, b"", 0), unconnected);
    assert_eq!(state(ep), EpState::Unconnected);
    ep.connect(PEER, BLACK_HOLE, None, &[0; 56], 0, 0).unwrap();
    let pending = Error::state(Subtype::InvalidStateEpActconnpending);
    assert_eq!(ep.connect(PEER, 1, None, b"", 0, 0), Err(pending));
    assert_eq!(ep.reset(), Err(pending));
    // Both kinds of disconnect abort the attempt.
    ep.disconnect(Close::Graceful).unwrap();
    assert_eq!(wait(side.conn), connection(E::Disconnected, ep));
    assert_eq!(state(ep), EpState::Disconnected);
    ep.free().unwrap();
    assert_eq!(ep.free(), Err(Error::handle(Subtype::InvalidHandleEp)));
    assert_eq!(
        ep.connect(PEER, 1, None, b"", 0, 0),
        Err(Error::handle(Subtype::InvalidHandleEp))
    );
}

/// dat_ep_dup_connect: it connects to the remote address of the given endpoint.
#[test]
fn dup_connect_goes_to_the_same_service_point() {
    let (client, server) = (Side::open(), Side::open());
    let psp = Sp::psp_create(server.ia, Some(104), server.cr, false).unwrap();
    let (first, second) = (client.ep(), client.ep());
    first.connect(PEER, 104, None, b"", 0, 0).unwrap();
    request(wait(server.cr))
        .accept(Some(server.ep()), b"")
        .unwrap();
    wait(client.conn);
    second.dup_connect(first, None, b"again", 0).unwrap();
    let cr = request(wait(server.cr));
    assert_eq!(cr.private_data().to_vec(), b"again");
    cr.accept(Some(server.ep()), b"").unwrap();
    assert_eq!(wait(client.conn), connection(E::Established, second));
    psp.free().unwrap();
}

/// dat_ep_reset: from Disconnected to Unconnected.
#[test]
fn reset_lets_the_same_endpoint_connect_again() {
    let (client, server) = (Side::open(), Side::open());
    let (from, to) = (client.ep(), server.ep());
    for round in 0..3 {
        from.post_recv(&[], round, Default::default()).unwrap();
        join(&client, from, &server, to, 105);
        to.post_send(&[], 5, Default::default()).unwrap();
        assert_eq!(dto(wait(client.recv)).cookie, round);
        from.disconnect(Close::Abrupt).unwrap();
        assert_eq!(wait(client.conn), connection(E::Disconnected, from));
        assert_eq!(wait(server.conn), connection(E::Disconnected, to));
        assert_eq!(
            (next(client.conn), next(server.conn)),
            (None, None),
            "once each"
        );
        from.reset().unwrap();
        to.reset().unwrap();
        assert_eq!(state(from), EpState::Unconnected);
        assert_eq!(from.status(), (EpState::Unconnected, true, true));
        all(server.request);
    }
}

/// dat_ep_reset: a no-op in Unconnected; preposted receives stay.
#[test]
fn a_reset_of_an_unconnected_endpoint_keeps_its_receives() {
    let side = Side::open();
    let ep = side.ep();
    ep.post_recv(&[], 1, Default::default()).unwrap();
    ep.reset().unwrap();
    assert_eq!(ep.recv_query(), Ok((1, u32::MAX)));
    assert_eq!(ep.status(), (EpState::Unconnected, false, true));
}

/// dat_rsp_create: one request at most; its endpoint is Reserved, then Passive Connection Pending. dat_rsp_free, dat_cr_reject: the
/// endpoint returns to Unconnected.
#[test]
fn a_reserved_service_point_reserves_its_endpoint() {
    let (client, server) = (Side::open(), Side::open());
    let ep = server.ep();
    let rsp = Sp::rsp_create(server.ia, 106, ep, server.cr).unwrap();
    assert_eq!(state(ep), EpState::Reserved);
    assert_eq!(rsp.flavour(), Flavour::Reserved);
    assert!(matches!(rsp.info().unwrap().kind, SpKind::Reserved(e) if std::ptr::eq(e, ep)));
    let reserved = Err(Error::state(Subtype::InvalidStateEpReserved));
    assert_eq!(ep.free(), reserved);
    assert_eq!(ep.disconnect(Close::Abrupt), reserved);
    assert_eq!(
        Sp::rsp_create(server.ia, 107, ep, server.cr).err(),
        reserved.err()
    );
    let foreign = Sp::rsp_create(server.ia, 107, client.ep(), server.cr).err();
    assert_eq!(foreign, Some(Error::handle(Subtype::InvalidHandleEp)));
    rsp.free().unwrap();
    assert_eq!(rsp.free(), Err(Error::handle(Subtype::InvalidHandleRsp)));
    assert_eq!(state(ep), EpState::Unconnected);

    // A qualifier in use leaves the endpoint unreserved.
    let psp = Sp::psp_create(server.ia, Some(106), server.cr, false).unwrap();
    let used = Sp::rsp_create(server.ia, 106, ep, server.cr).err();
    assert_eq!(used, Some(Error::of(Kind::ConnQualInUse)));
    assert_eq!(state(ep), EpState::Unconnected);
    psp.free().unwrap();

    let rsp = Sp::rsp_create(server.ia, 106, ep, server.cr).unwrap();
    let from = client.ep();
    from.connect(PEER, 106, None, b"", 0, 0).unwrap();
    let cr = request(wait(server.cr));
    assert_eq!(state(ep), EpState::PassiveConnectionPending);
    assert!(
        cr.info()
            .unwrap()
            .local_ep
            .is_some_and(|e| std::ptr::eq(e, ep))
    );
    assert_eq!(
        ep.free(),
        Err(Error::state(Subtype::InvalidStateEpPassconnpending))
    );
    // An RSP takes one request only.
    let late = client.ep();
    late.connect(PEER, 106, None, b"", 0, 0).unwrap();
    assert_eq!(wait(client.conn), connection(E::NonPeerRejected, late));
    assert_eq!(
        cr.accept(Some(server.ep()), b"").unwrap_err(),
        Error::arg(2)
    );
    rsp.free().unwrap();
    assert_eq!(
        state(ep),
        EpState::PassiveConnectionPending,
        "the request stays"
    );
    cr.accept(None, b"").unwrap();
    assert_eq!(wait(server.conn), connection(E::Established, ep));

    let (ep, from) = (server.ep(), client.ep());
    let rsp = Sp::rsp_create(server.ia, 106, ep, server.cr).unwrap();
    from.connect(PEER, 106, None, b"", 0, 0).unwrap();
    request(wait(server.cr)).reject(b"").unwrap();
    assert_eq!(
        state(ep),
        EpState::Unconnected,
        "a rejected request gives it back"
    );
    rsp.free().unwrap();
}

/// dat_psp_create: DAT_PSP_PROVIDER provides an endpoint without PZ and EVDs in Tentative Connection Pending; dat_cr_reject frees it;
/// dat_ep_modify may complete it.
#[test]
fn a_provider_creates_the_endpoint_and_frees_it() {
    let (client, server) = (Side::open(), Side::open());
    let psp = Sp::psp_create(server.ia, Some(108), server.cr, true).unwrap();
    let from = client.ep();
    from.connect(PEER, 108, None, b"", 0, 0).unwrap();
    let cr = request(wait(server.cr));
    let ep = cr.info().unwrap().local_ep.unwrap();
    assert_eq!(state(ep), EpState::TentativeConnectionPending);
    let tentative = Error::state(Subtype::InvalidStateEpTentconnpending);
    assert_eq!(ep.free(), Err(tentative));
    assert_eq!(ep.disconnect(Close::Graceful), Err(tentative));
    let info = ep.info().unwrap();
    assert!(info.pz.is_none() && info.recv_evd.is_none() && info.connect_evd.is_none());
    // The endpoint cannot be connected without a protection zone; the request waits.
    let bare = cr.accept(None, b"").unwrap_err();
    assert_eq!(bare, Error::state(Subtype::InvalidStateEpPz));
    let change = EpChange::<Fake> {
        pz: Some(Some(server.pz)),
        recv_evd: Some(Some(server.recv)),
        request_evd: Some(Some(server.request)),
        connect_evd: Some(Some(server.conn)),
        max_recv_dtos: Some(5),
        ..Default::default()
    };
    ep.modify(&change).unwrap();
    assert_eq!(ep.info().unwrap().attr.max_recv_dtos, 5);
    cr.accept(None, b"").unwrap();
    assert_eq!(wait(server.conn), connection(E::Established, ep));
    from.disconnect(Close::Abrupt).unwrap();
    ep.free().unwrap();

    let from = client.ep();
    from.connect(PEER, 108, None, b"", 0, 0).unwrap();
    let cr = request(wait(server.cr));
    let ep = cr.info().unwrap().local_ep.unwrap();
    cr.reject(b"").unwrap();
    assert_eq!(
        ep.free(),
        Err(Error::handle(Subtype::InvalidHandleEp)),
        "gone with its request"
    );
    psp.free().unwrap();
}

/// dat_cr_accept: a failed call has no effect on request and endpoint.
#[test]
fn a_wrong_accept_leaves_request_and_endpoint_alone() {
    let (client, server) = (Side::open(), Side::open());
    let psp = Sp::psp_create(server.ia, Some(110), server.cr, false).unwrap();
    let from = client.ep();
    from.connect(PEER, 110, None, b"", 0, 0).unwrap();
    let cr: &'static Cr<Fake> = request(wait(server.cr));
    let no_ep = Error::handle(Subtype::InvalidHandleEp);
    assert_eq!(cr.accept(None, b"").unwrap_err(), no_ep);
    assert_eq!(
        cr.accept(Some(client.ep()), b"").unwrap_err(),
        no_ep,
        "of another IA"
    );
    let ep = server.ep();
    assert_eq!(cr.accept(Some(ep), &[0; 57]).unwrap_err(), Error::arg(3));
    assert_eq!(cr.reject(&[0; 57]).unwrap_err(), Error::arg(2));
    assert_eq!(cr.handoff(111).unwrap_err(), Error::arg(2));
    assert_eq!(state(ep), EpState::Unconnected);
    cr.accept(Some(ep), b"").unwrap();
    assert_eq!(state(ep), EpState::Connected);
    psp.free().unwrap();
}

/// dat_cr_accept: the endpoint that is given is Unconnected. One of an RSP or of the provider, whose own request has no answer yet, is
/// refused.
#[test]
fn the_endpoint_of_a_request_is_not_given_to_another() {
    let (client, server) = (Side::open(), Side::open());
    let psp = Sp::psp_create(server.ia, Some(120), server.cr, false).unwrap();
    let provided = Sp::psp_create(server.ia, Some(121), server.cr, true).unwrap();
    let passive = server.ep();
    let rsp = Sp::rsp_create(server.ia, 122, passive, server.cr).unwrap();
    let connect = |qualifier| {
        let ep = client.ep();
        ep.connect(PEER, qualifier, None, b"", 0, 0).unwrap();
        (ep, request(wait(server.cr)))
    };
    let (_, cr) = connect(120);
    let (_, of_provider) = connect(121);
    let (from, own) = connect(122);
    let tentative = of_provider.info().unwrap().local_ep.unwrap();
    let change = EpChange::<Fake> {
        pz: Some(Some(server.pz)),
        ..Default::default()
    };
    tentative.modify(&change).unwrap();
    for (ep, subtype) in [
        (passive, Subtype::InvalidStateEpPassconnpending),
        (tentative, Subtype::InvalidStateEpTentconnpending),
    ] {
        let before = state(ep);
        assert_eq!(cr.accept(Some(ep), b"").unwrap_err(), Error::state(subtype));
        assert_eq!(state(ep), before);
    }
    own.accept(None, b"").unwrap();
    assert_eq!(wait(client.conn), connection(E::Established, from));
    of_provider.reject(b"").unwrap();
    cr.accept(Some(server.ep()), b"").unwrap();
    rsp.free().unwrap();
    provided.free().unwrap();
    psp.free().unwrap();
}

/// dat_psp_free: no effect on requests that were reported. An abrupt dat_ia_close refuses them.
#[test]
fn requests_outlive_their_service_point_but_not_their_ia() {
    let (client, server) = (Side::open(), Side::open());
    let psp = Sp::psp_create(server.ia, None, server.cr, false).unwrap();
    let qual = psp.info().unwrap().conn_qual;
    let (one, two) = (client.ep(), client.ep());
    one.connect(PEER, qual, None, b"", 0, 0).unwrap();
    two.connect(PEER, qual, None, b"", 0, 0).unwrap();
    psp.free().unwrap();
    request(wait(server.cr))
        .accept(Some(server.ep()), b"")
        .unwrap();
    assert_eq!(wait(client.conn), connection(E::Established, one));
    server.ia.close(Close::Abrupt).unwrap();
    let events = all(client.conn);
    assert!(
        events.contains(&connection(E::Disconnected, one)),
        "{events:?}"
    );
    assert!(
        events.contains(&connection(E::NonPeerRejected, two)),
        "{events:?}"
    );
    client.ia.close(Close::Abrupt).unwrap();
    assert!(Fake::arenas().ep.get(0).is_some(), "memory stays");
}

/// dat_cr_accept: an accept that cannot be completed ends in ACCEPT_COMPLETION_ERROR and Disconnected.
#[test]
fn an_accept_that_the_peer_aborted_ends_in_its_error() {
    let (client, server) = (Side::open(), Side::open());
    let psp = Sp::psp_create(server.ia, Some(112), server.cr, false).unwrap();
    let (from, to) = (client.ep(), server.ep());
    from.connect(PEER, 112, None, b"", 0, 0).unwrap();
    from.disconnect(Close::Abrupt).unwrap();
    request(wait(server.cr)).accept(Some(to), b"").unwrap();
    assert_eq!(wait(server.conn), connection(E::AcceptCompletionError, to));
    assert_eq!(state(to), EpState::Disconnected);
    psp.free().unwrap();
}

/// dat_cr_handoff: "The handoff parameter is invalid". A reserved service point generates at most one request (dat_rsp_create).
#[test]
fn a_request_is_not_handed_to_a_reserved_service_point_that_had_one() {
    let (client, server) = (Side::open(), Side::open());
    let _public = Sp::psp_create(server.ia, Some(115), server.cr, false).unwrap();
    let rsp = Sp::rsp_create(server.ia, 116, server.ep(), server.cr).unwrap();
    let (one, two) = (client.ep(), client.ep());
    one.connect(PEER, 115, None, &[], 0, 0).unwrap();
    request(wait(server.cr)).handoff(116).unwrap();
    let reserved = request(wait(server.cr));
    two.connect(PEER, 115, None, &[], 0, 0).unwrap();
    let second = request(wait(server.cr));
    assert_eq!(second.handoff(116), Err(Error::arg(2)));
    // The request stays.
    second.accept(Some(server.ep()), &[]).unwrap();
    assert_eq!(wait(client.conn), connection(E::Established, two));
    reserved.accept(None, &[]).unwrap();
    assert_eq!(wait(client.conn), connection(E::Established, one));
    rsp.free().unwrap();
}

/// dat_cr_handoff: the request moves to another qualifier of the same IA; its handle is dead afterwards.
#[test]
fn a_request_is_handed_to_another_service_point() {
    let (client, server) = (Side::open(), Side::open());
    let front = Sp::psp_create(server.ia, Some(113), server.cr, false).unwrap();
    let ep = server.ep();
    let back = Sp::rsp_create(server.ia, 114, ep, server.cr).unwrap();
    let from = client.ep();
    from.connect(PEER, 113, None, b"please", 0, 0).unwrap();
    let first = request(wait(server.cr));
    first.handoff(114).unwrap();
    let dead = Error::handle(Subtype::InvalidHandleCr);
    assert_eq!(first.handoff(114).unwrap_err(), dead);
    let event = wait(server.cr);
    assert!(
        matches!(event, Event::ConnectionRequest { sp, conn_qual: 114, .. } if sp == back.handle())
    );
    let second = request(event);
    assert_eq!(second.private_data().to_vec(), b"please");
    assert_eq!(second.info().unwrap().remote.port(), 4321);
    second.accept(None, b"").unwrap();
    assert_eq!(wait(client.conn), connection(E::Established, from));
    assert_eq!(state(ep), EpState::Connected);
    front.free().unwrap();
    back.free().unwrap();
}
