//! Posting and completing: dat_ep_post_send, dat_ep_post_recv, dat_ep_post_rdma_read, dat_ep_post_rdma_write,
//! and dat_ep_disconnect sentence by sentence.
#![allow(missing_docs, reason = "a test")]

mod pair;

use std::sync::atomic::Ordering;
use std::time::Duration;

use dat_core::ep::{Ep, EpChange, EpParts, EpState};
use dat_core::error::{Error, Kind, Subtype};
use dat_core::evd::Evd;
use dat_core::event::{ConnectionEvent as E, DtoOp, DtoStatus, Event};
use dat_core::flags::{Close, CompletionFlags as F, EvdFlags};
use dat_core::iov::{LmrTriplet, RmrTriplet};
use pair::*;

const NONE: F = F::empty();

fn bytes(length: u32) -> LmrTriplet {
    LmrTriplet {
        virtual_address: 0x1000,
        segment_length: length,
        lmr_context: 7,
    }
}

fn remote(length: u32) -> RmrTriplet {
    RmrTriplet {
        virtual_address: 0x2000,
        segment_length: length,
        rmr_context: 8,
    }
}

struct Pair {
    client: Side,
    server: Side,
    from: &'static Ep<Fake>,
    to: &'static Ep<Fake>,
}

fn connected(qual: u64) -> Pair {
    connected_with("", qual)
}

/// Connects two endpoints; the IA of the posting side has these `ia_params`.
fn connected_with(params: &str, qual: u64) -> Pair {
    let (client, server) = (Side::open_with(params), Side::open());
    let (from, to) = (client.ep(), server.ep());
    join(&client, from, &server, to, qual);
    Pair {
        client,
        server,
        from,
        to,
    }
}

/// dat_ep_post_send, dat_ep_post_recv, dat_ep_post_rdma_read, dat_ep_post_rdma_write: the completion event has the cookie; a message
/// without segments is empty.
#[test]
fn completions_have_cookie_operation_length_and_endpoint() {
    let p = connected(201);
    p.to.post_recv(&[bytes(100)], 11, NONE).unwrap();
    p.to.post_recv(&[], 12, NONE).unwrap();
    p.from.post_send(&[bytes(40), bytes(2)], 21, NONE).unwrap();
    p.from
        .post_rdma_write(&[bytes(64)], 22, &remote(64), NONE)
        .unwrap();
    p.from
        .post_rdma_read(&[bytes(32)], 23, &remote(64), NONE)
        .unwrap();
    p.from.post_send(&[], 24, NONE).unwrap();
    let done = [
        (21, DtoOp::Send, 42),
        (22, DtoOp::RdmaWrite, 64),
        (23, DtoOp::RdmaRead, 32),
        (24, DtoOp::Send, 0),
    ];
    for (cookie, op, length) in done {
        let dto = dto(next(p.client.request).unwrap());
        assert_eq!((dto.cookie, dto.op, dto.length), (cookie, op, length));
        assert_eq!((dto.status, dto.ep), (DtoStatus::Success, p.from.handle()));
    }
    for (cookie, length) in [(11, 42), (12, 0)] {
        let dto = dto(next(p.server.recv).unwrap());
        assert_eq!(
            (dto.cookie, dto.op, dto.length),
            (cookie, DtoOp::Receive, length)
        );
        assert_eq!((dto.status, dto.ep), (DtoStatus::Success, p.to.handle()));
    }
    assert_eq!(next(p.client.request), None);
}

#[test]
fn immediate_data_and_atomics() {
    let p = connected(202);
    p.to.post_recv(&[], 1, NONE).unwrap();
    p.from
        .post_rdma_write_immediate(&[bytes(8)], 2, &remote(8), 0x1234_5678, NONE)
        .unwrap();
    let got = dto(next(p.server.recv).unwrap());
    assert_eq!(
        (got.op, got.immediate, got.length),
        (DtoOp::ReceiveRdmaImmediate, 0x1234_5678, 8)
    );
    p.from
        .compare_swap(1, 2, &bytes(8), 3, &remote(8), NONE)
        .unwrap();
    p.from.fetch_add(1, &bytes(8), 4, &remote(8), NONE).unwrap();
    let ops: Vec<_> = all(p.client.request)
        .into_iter()
        .map(|e| dto(e).op)
        .collect();
    assert_eq!(
        ops,
        [
            DtoOp::RdmaWriteImmediate,
            DtoOp::CompareSwap,
            DtoOp::FetchAdd
        ]
    );
    let length = Err(Error::of(Kind::LengthError));
    assert_eq!(p.from.fetch_add(1, &bytes(4), 4, &remote(8), NONE), length);
    let model = Err(Error::of(Kind::ModelNotSupported));
    assert_eq!(
        p.from
            .post_rdma_read_to_rmr(&remote(8), 0, &remote(8), NONE),
        model
    );
}

/// dat_ep_post_send: UNSIGNALLED is INVALID_PARAMETER unless the endpoint was made for it.
/// dat_ep_post_rdma_write: with `strict=lengths` a remote buffer that is too small is LENGTH_ERROR.
#[test]
fn the_length_of_the_remote_segment_is_checked_with_strict_lengths() {
    for (params, qual) in [("", 211), ("strict=lengths", 212)] {
        let p = connected_with(params, qual);
        let counts = !params.is_empty();
        let short = if counts {
            Err(Error::of(Kind::LengthError))
        } else {
            Ok(())
        };
        for (far, outcome) in [(8, short), (0, Ok(())), (9, Ok(())), (10, Ok(()))] {
            let (iov, far) = ([bytes(4), bytes(5)], remote(far));
            let one = [bytes(9)];
            assert_eq!(p.from.post_rdma_write(&one, 1, &far, NONE), outcome);
            assert_eq!(p.from.post_rdma_write(&iov, 2, &far, NONE), outcome);
            assert_eq!(p.from.post_rdma_read(&one, 3, &far, NONE), outcome);
            let flags = F::SUPPRESS;
            assert_eq!(p.from.post_rdma_write(&one, 4, &far, flags), outcome);
            let immediate = p.from.post_rdma_write_immediate(&one, 5, &far, 6, NONE);
            assert_eq!(immediate, outcome, "{params}");
            all(p.client.request);
        }
    }
}

#[test]
fn each_wrong_argument_has_its_code_and_posts_nothing() {
    let p = connected(203);
    let five = [bytes(1); 5];
    let length = Err(Error::of(Kind::LengthError));
    assert_eq!(p.from.post_send(&five, 0, NONE), Err(Error::arg(2)));
    assert_eq!(p.from.post_recv(&five, 0, NONE), Err(Error::arg(2)));
    assert_eq!(
        p.from.post_rdma_write(&five, 0, &remote(9), NONE),
        Err(Error::arg(2))
    );
    // dat_extension_op has the operation before the segments.
    let extended =
        |ep: &'static Ep<Fake>| ep.post_rdma_write_immediate(&five, 0, &remote(9), 0, NONE);
    assert_eq!(extended(p.from), Err(Error::arg(3)));
    assert_eq!(
        p.from.post_send(&[bytes(1 << 20), bytes(1)], 0, NONE),
        length
    );
    assert_eq!(
        p.from.post_send(&[bytes(u32::MAX); 4], 0, NONE),
        length,
        "sums do not wrap"
    );
    // UNSIGNALLED is valid only on an endpoint that was created for it; unknown flags never are.
    assert_eq!(p.from.post_send(&[], 0, F::UNSIGNALLED), Err(Error::arg(5)));
    assert_eq!(p.from.post_recv(&[], 0, F::UNSIGNALLED), Err(Error::arg(5)));
    assert_eq!(p.from.post_recv(&[], 0, F::SUPPRESS), Err(Error::arg(5)));
    assert_eq!(
        p.from.post_rdma_read(&[], 0, &remote(0), F::UNSIGNALLED),
        Err(Error::arg(6))
    );
    assert_eq!(
        p.from.post_send(&[], 0, F::from_bits_retain(1 << 20)),
        Err(Error::arg(5))
    );
    assert_eq!(p.from.status(), (EpState::Connected, true, true));
    assert_eq!(next(p.client.request), None);
}

/// A program that posts to an ended connection and takes no event does not use up the memory.
#[test]
fn posts_that_are_flushed_at_once_are_refused_while_the_evd_is_full() {
    let side = Side::open();
    let ep = side.ep();
    ep.connect(PEER, BLACK_HOLE, None, b"", 0, 0).unwrap();
    ep.disconnect(Close::Abrupt).unwrap();
    let full = Error::resource(Subtype::ResourceMemory);
    let post = |receives| match receives {
        true => ep.post_recv(&[], 1, NONE),
        false => ep.post_send(&[], 1, NONE),
    };
    for (evd, receives) in [(side.request, false), (side.recv, true)] {
        let posted = (0..10_000).take_while(|_| post(receives).is_ok()).count();
        assert!((16..1000).contains(&posted), "{posted}");
        assert_eq!(post(receives), Err(full));
        assert!(next(evd).is_some());
        post(receives).unwrap();
        assert_eq!(post(receives), Err(full));
        assert_eq!(all(evd).len(), posted);
        post(receives).unwrap();
        assert_eq!(all(evd).len(), 1);
    }
    ep.free().unwrap();
}

/// dat_evd_create: the minimum length is no limit for the completions of the endpoints that feed an EVD.
#[test]
fn each_ended_endpoint_of_a_short_evd_takes_its_posts() {
    let side = Side::open();
    let eps: Vec<_> = (0..8).map(|_| side.ep()).collect();
    for ep in &eps {
        ep.connect(PEER, BLACK_HOLE, None, b"", 0, 0).unwrap();
        ep.disconnect(Close::Abrupt).unwrap();
        for n in 0..16 {
            ep.post_recv(&[], n, NONE).unwrap();
            ep.post_send(&[], n, NONE).unwrap();
        }
    }
    assert_eq!(all(side.recv).len(), 8 * 16);
    assert_eq!(all(side.request).len(), 8 * 16);
    eps.iter().for_each(|ep| ep.free().unwrap());
}

/// dat_ep_post_send: INVALID_STATE unless Connected or Disconnected; flushed at once when Disconnected.
/// dat_ep_post_recv: valid in all states.
#[test]
fn requests_are_refused_in_other_states_and_receives_are_not() {
    let side = Side::open();
    let ep = side.ep();
    let unconnected = Err(Error::state(Subtype::InvalidStateEpUnconnected));
    assert_eq!(ep.post_send(&[], 0, NONE), unconnected);
    assert_eq!(ep.post_rdma_read(&[], 0, &remote(0), NONE), unconnected);
    ep.post_recv(&[], 1, NONE).unwrap();
    ep.connect(PEER, BLACK_HOLE, None, b"", 0, 0).unwrap();
    let pending = Err(Error::state(Subtype::InvalidStateEpActconnpending));
    assert_eq!(ep.post_rdma_write(&[], 0, &remote(0), NONE), pending);
    ep.post_recv(&[], 2, NONE).unwrap();
    ep.disconnect(Close::Abrupt).unwrap();
    // In Disconnected a post is flushed at once, after the earlier posts.
    ep.post_recv(&[], 3, NONE).unwrap();
    ep.post_send(&[bytes(5)], 4, F::SUPPRESS).unwrap();
    let flushed: Vec<_> = all(side.recv).into_iter().map(dto).collect();
    assert_eq!(
        flushed.iter().map(|d| d.cookie).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert!(
        flushed
            .iter()
            .all(|d| d.status == DtoStatus::Flushed && d.op == DtoOp::Receive)
    );
    let sent = dto(next(side.request).unwrap());
    assert_eq!(
        (sent.cookie, sent.status, sent.op),
        (4, DtoStatus::Flushed, DtoOp::Send)
    );
    ep.free().unwrap();
    let dead = Err(Error::handle(Subtype::InvalidHandleEp));
    assert_eq!(ep.post_send(&[], 0, NONE), dead);
    assert_eq!(ep.post_recv(&[], 0, NONE), dead);
}

/// dat_ep_post_send, dat_ep_post_recv: INSUFFICIENT_RESOURCES beyond the DTOs that the endpoint was created for.
#[test]
fn posts_are_limited_by_the_attributes_and_slots_are_reused() {
    let p = connected(204);
    let full = Err(Error::resource(Subtype::ResourceMemory));
    for round in 0..5 {
        for n in 0..16 {
            p.from.post_recv(&[], round * 100 + n, NONE).unwrap();
        }
        assert_eq!(p.from.post_recv(&[], 0, NONE), full);
        p.client.hold(true);
        for n in 0..16 {
            p.from
                .post_rdma_write(&[], round * 100 + n, &remote(0), NONE)
                .unwrap();
        }
        assert_eq!(p.from.post_rdma_write(&[], 0, &remote(0), NONE), full);
        assert_eq!(p.from.status(), (EpState::Connected, false, false));
        p.client.hold(false);
        // The request has completed, but the consumer has not dequeued the completion.
        assert_eq!(p.from.post_rdma_write(&[], 0, &remote(0), NONE), full);
        let cookies: Vec<_> = all(p.client.request)
            .into_iter()
            .map(|e| dto(e).cookie)
            .collect();
        assert_eq!(cookies, (round * 100..round * 100 + 16).collect::<Vec<_>>());
        for _ in 0..16 {
            p.to.post_send(&[], 0, NONE).unwrap();
        }
        let cookies: Vec<_> = all(p.client.recv)
            .into_iter()
            .map(|e| dto(e).cookie)
            .collect();
        assert_eq!(cookies, (round * 100..round * 100 + 16).collect::<Vec<_>>());
        assert_eq!(all(p.server.request).len(), 16);
        assert_eq!(p.from.status(), (EpState::Connected, true, true));
    }
}

/// dat_ep_post_send: SUPPRESS keeps successful completions from the consumer, and only those.
#[test]
fn suppressed_requests_never_fill_the_ring_and_report_only_failures() {
    let p = connected(205);
    for n in 0..1000 {
        p.from
            .post_rdma_write(&[bytes(8)], n, &remote(8), F::SUPPRESS)
            .unwrap();
    }
    assert_eq!(next(p.client.request), None);
    p.from
        .post_rdma_write(&[bytes(8)], 1000, &remote(8), NONE)
        .unwrap();
    assert_eq!(dto(next(p.client.request).unwrap()).cookie, 1000);
    let bad = RmrTriplet {
        virtual_address: BAD_ADDRESS,
        ..remote(8)
    };
    p.from
        .post_rdma_write(&[bytes(8)], 1001, &bad, F::SUPPRESS)
        .unwrap();
    let failed = dto(next(p.client.request).unwrap());
    assert_eq!(
        (failed.cookie, failed.status),
        (1001, DtoStatus::RemoteAccess)
    );
    assert_eq!(
        failed.op,
        DtoOp::RdmaWrite,
        "the operation comes from our record, not from the completion"
    );
}

/// dat_ep_disconnect: if an in-progress DTO fails, all that follow in its direction fail; dat_rmr_free:
/// DAT_DTO_ERR_REMOTE_ACCESS, and the connection is broken.
#[test]
fn a_failed_request_breaks_the_connection_for_both() {
    let p = connected(206);
    p.client.hold(true);
    let bad = RmrTriplet {
        virtual_address: BAD_ADDRESS,
        ..remote(8)
    };
    p.from
        .post_rdma_write(&[bytes(8)], 1, &remote(8), NONE)
        .unwrap();
    p.from.post_rdma_read(&[bytes(8)], 2, &bad, NONE).unwrap();
    p.from
        .post_rdma_write(&[bytes(8)], 3, &remote(8), NONE)
        .unwrap();
    p.client.hold(false);
    let ends: Vec<_> = all(p.client.request)
        .into_iter()
        .map(|e| (dto(e).cookie, dto(e).status))
        .collect();
    assert_eq!(
        ends,
        [
            (1, DtoStatus::Success),
            (2, DtoStatus::RemoteAccess),
            (3, DtoStatus::Flushed)
        ],
        "after one fails, all later ones fail"
    );
    assert_eq!(wait(p.client.conn), connection(E::Broken, p.from));
    assert_eq!(wait(p.server.conn), connection(E::Disconnected, p.to));
    assert_eq!(
        (next(p.client.conn), next(p.server.conn)),
        (None, None),
        "once"
    );
}

/// dat_ep_disconnect: abrupt completes all outstanding DTOs, in order; disconnecting a Disconnected endpoint
/// is a no-op.
#[test]
fn an_abrupt_disconnect_flushes_in_order() {
    let p = connected(207);
    p.client.hold(true);
    for n in 0..4 {
        p.from.post_send(&[], n, F::SUPPRESS).unwrap();
        p.from.post_recv(&[], 10 + n, NONE).unwrap();
    }
    p.from.disconnect(Close::Abrupt).unwrap();
    assert_eq!(p.from.status().0, EpState::Disconnected);
    let flushed = |evd| -> Vec<_> {
        all(evd)
            .into_iter()
            .map(|e| (dto(e).cookie, dto(e).status))
            .collect()
    };
    let as_flushed = |from: u64| {
        (from..from + 4)
            .map(|n| (n, DtoStatus::Flushed))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        flushed(p.client.request),
        as_flushed(0),
        "suppressed or not"
    );
    assert_eq!(flushed(p.client.recv), as_flushed(10));
    assert_eq!(wait(p.client.conn), connection(E::Disconnected, p.from));
    // Disconnecting again is a no-op.
    p.from.disconnect(Close::Abrupt).unwrap();
    p.from.disconnect(Close::Graceful).unwrap();
    assert_eq!(next(p.client.conn), None);
}

/// dat_ep_disconnect: graceful lets requests complete successfully first, in Disconnect Pending, where no new
/// ones are taken and graceful again has no effect.
#[test]
fn a_graceful_disconnect_waits_for_requests_and_takes_no_new_ones() {
    for flags in [NONE, F::SUPPRESS] {
        let p = connected(208);
        for _ in 0..3 {
            p.to.post_recv(&[], 9, NONE).unwrap();
        }
        p.client.hold(true);
        for n in 0..3 {
            p.from.post_send(&[], n, flags).unwrap();
        }
        p.from.disconnect(Close::Graceful).unwrap();
        assert_eq!(p.from.status().0, EpState::DisconnectPending);
        let pending = Err(Error::state(Subtype::InvalidStateEpDiscpending));
        assert_eq!(p.from.post_send(&[], 0, NONE), pending);
        assert_eq!(p.from.post_rdma_read(&[], 0, &remote(0), NONE), pending);
        p.from.disconnect(Close::Graceful).unwrap();
        assert_eq!(p.from.status().0, EpState::DisconnectPending, "no effect");
        assert_eq!(next(p.client.conn), None);
        p.client.hold(false);
        assert_eq!(wait(p.client.conn), connection(E::Disconnected, p.from));
        let reported: Vec<_> = all(p.client.request).into_iter().map(dto).collect();
        let cookies: Vec<_> = reported.iter().map(|d| d.cookie).collect();
        let expected: &[u64] = if flags == NONE { &[0, 1, 2] } else { &[] };
        assert_eq!(cookies, expected);
        assert!(reported.iter().all(|d| d.status == DtoStatus::Success));
        assert_eq!(all(p.server.recv).len(), 3, "the messages arrived");
        assert_eq!(wait(p.server.conn), connection(E::Disconnected, p.to));
    }
}

/// dat_ep_disconnect, graceful: requests "must try to be completed". One that fails has tried: the program has asked for the end, and gets the
/// event that it waits for.
#[test]
fn a_graceful_disconnect_ends_in_its_own_event_if_a_request_fails() {
    let p = connected(222);
    p.client.hold(true);
    let bad = RmrTriplet {
        virtual_address: BAD_ADDRESS,
        ..remote(8)
    };
    p.from.post_rdma_read(&[bytes(8)], 1, &bad, NONE).unwrap();
    p.from.disconnect(Close::Graceful).unwrap();
    assert_eq!(p.from.status().0, EpState::DisconnectPending);
    p.client.hold(false);
    let end = wait(p.client.request);
    assert_eq!(dto(end).status, DtoStatus::RemoteAccess);
    assert_eq!(wait(p.client.conn), connection(E::Disconnected, p.from));
    assert_eq!(p.from.status().0, EpState::Disconnected);
    assert_eq!(next(p.client.conn), None, "one event for each end");
}

/// dat_ep_disconnect, graceful: while requests are outstanding nothing polls; the completion of the last one ends the
/// connection, also where the consumer polls no EVD or has none for requests.
#[test]
fn the_last_completion_ends_a_graceful_disconnect_and_nothing_polls_for_it() {
    for (flags, own_evd) in [(NONE, true), (F::SUPPRESS, true), (NONE, false)] {
        let (client, server) = (Side::open(), Side::open());
        let mut parts = client.parts();
        if !own_evd {
            parts.request_evd = None;
        }
        let from = Ep::create(client.ia, parts, Some(&attr(4, 4))).unwrap();
        join(&client, from, &server, server.ep(), 216);
        client.hold(true);
        for n in 0..3 {
            from.post_rdma_write(&[], n, &remote(0), flags).unwrap();
        }
        from.disconnect(Close::Graceful).unwrap();
        let adapter = client.adapter();
        let before = adapter.polls.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(50));
        let polled = adapter.polls.load(Ordering::Relaxed) - before;
        assert_eq!(polled, 0, "calls of poll_cq in 50 ms of Disconnect Pending");
        assert_eq!(from.status().0, EpState::DisconnectPending);
        client.hold(false);
        assert_eq!(wait(client.conn), connection(E::Disconnected, from));
        let expected = if flags == NONE && own_evd { 3 } else { 0 };
        assert_eq!(all(client.request).len(), expected);
    }
}

/// dat_ep_disconnect, graceful: two endpoints on one EVD wait for their own last requests.
#[test]
fn graceful_disconnects_on_one_evd_end_each_with_its_own_requests() {
    let p = connected(217);
    let second = p.client.ep();
    join(&p.client, second, &p.server, p.server.ep(), 218);
    p.client.hold(true);
    for ep in [p.from, second] {
        ep.post_rdma_write(&[], 1, &remote(0), NONE).unwrap();
        ep.disconnect(Close::Graceful).unwrap();
    }
    // An abrupt end takes the watch of the one, and leaves that of the other.
    p.from.disconnect(Close::Abrupt).unwrap();
    assert_eq!(wait(p.client.conn), connection(E::Disconnected, p.from));
    assert_eq!(second.status().0, EpState::DisconnectPending);
    p.client.hold(false);
    assert_eq!(wait(p.client.conn), connection(E::Disconnected, second));
}

/// dat_ep_disconnect: abrupt in Disconnect Pending goes to Disconnected without waiting.
#[test]
fn an_abrupt_disconnect_ends_a_graceful_one() {
    let p = connected(209);
    p.client.hold(true);
    p.from.post_send(&[], 5, NONE).unwrap();
    p.from.disconnect(Close::Graceful).unwrap();
    p.from.disconnect(Close::Abrupt).unwrap();
    assert_eq!(p.from.status().0, EpState::Disconnected);
    assert_eq!(
        dto(next(p.client.request).unwrap()).status,
        DtoStatus::Flushed
    );
    assert_eq!(wait(p.client.conn), connection(E::Disconnected, p.from));
    assert_eq!(next(p.client.conn), None);
}

/// dat_ep_disconnect: on a shared EVD all successful completions precede the disconnect event.
#[test]
fn on_a_shared_evd_completions_come_before_the_disconnect() {
    let (client, server) = (Side::open(), Side::open());
    let shared = Evd::create(client.ia, 64, None, EvdFlags::DTO | EvdFlags::CONNECTION).unwrap();
    let parts = EpParts {
        recv_evd: Some(shared),
        request_evd: Some(shared),
        connect_evd: Some(shared),
        ..client.parts()
    };
    let from = Ep::create(client.ia, parts, Some(&attr(4, 4))).unwrap();
    let shared_side = Side {
        conn: shared,
        ..client
    };
    join(&shared_side, from, &server, server.ep(), 210);
    for n in 0..3 {
        from.post_rdma_write(&[], n, &remote(0), NONE).unwrap();
    }
    from.disconnect(Close::Abrupt).unwrap();
    let events = all(shared);
    assert_eq!(events.len(), 4);
    for (n, event) in events[..3].iter().enumerate() {
        assert_eq!(
            (dto(*event).cookie, dto(*event).status),
            (n as u64, DtoStatus::Success)
        );
    }
    assert_eq!(events[3], connection(E::Disconnected, from));
}

/// dat_ep_free, dat_ep_reset: completions that were not dequeued may be lost; they are never reported for another endpoint.
#[test]
fn completions_of_a_freed_or_reset_endpoint_are_dropped() {
    let p = connected(211);
    p.client.hold(true);
    p.from.post_send(&[], 1, NONE).unwrap();
    p.from.post_recv(&[], 2, NONE).unwrap();
    p.from.free().unwrap();
    assert_eq!((next(p.client.request), next(p.client.recv)), (None, None));
    assert_eq!(wait(p.server.conn), connection(E::Disconnected, p.to));

    p.to.post_recv(&[], 3, NONE).unwrap();
    p.to.reset().unwrap();
    p.to.post_recv(&[], 4, NONE).unwrap();
    let left: Vec<_> = all(p.server.recv)
        .into_iter()
        .map(|e| dto(e).cookie)
        .collect();
    assert!(!left.contains(&4), "{left:?}");
    assert_eq!(p.to.recv_query(), Ok((1, u32::MAX)));
}

/// dat_ep_create: DAT_HANDLE_NULL for an EVD says that the consumer is not interested in its events.
#[test]
fn an_endpoint_without_evds_works_without_events() {
    let (client, server) = (Side::open(), Side::open());
    let parts = EpParts {
        recv_evd: None,
        request_evd: None,
        ..client.parts()
    };
    let from = Ep::create(client.ia, parts, Some(&attr(4, 4))).unwrap();
    let to = server.ep();
    join(&client, from, &server, to, 212);
    for n in 0..100 {
        to.post_recv(&[], n, NONE).unwrap();
        from.post_send(&[bytes(3)], 0, NONE).unwrap();
        assert_eq!(dto(wait(server.recv)).cookie, n);
    }
    from.disconnect(Close::Graceful).unwrap();
    assert_eq!(wait(client.conn), connection(E::Disconnected, from));
    from.free().unwrap();
    for evd in [client.recv, client.request, client.conn, client.cr] {
        evd.free().unwrap();
    }
    client.pz.free().unwrap();
    // The EVD for unread completions was freed with its endpoint.
    client.ia.close(Close::Graceful).unwrap();
}

/// dat_pz_free, dat_evd_free, dat_ia_close: INVALID_STATE while an endpoint uses them.
#[test]
fn parts_in_use_cannot_be_freed() {
    let side = Side::open();
    let ep = side.ep();
    let pz = Err(Error::state(Subtype::InvalidStatePzInUse));
    let evd = Err(Error::state(Subtype::InvalidStateEvdInUse));
    assert_eq!(side.pz.free(), pz);
    for used in [side.recv, side.request, side.conn] {
        assert_eq!(used.free(), evd);
    }
    assert_eq!(
        side.ia.close(Close::Graceful),
        Err(Error::state(Subtype::InvalidStateIaInUse))
    );
    ep.free().unwrap();
    for free in [side.recv, side.request, side.conn, side.cr] {
        free.free().unwrap();
    }
    side.pz.free().unwrap();
    let late = Ep::create(side.ia, side.parts(), None).unwrap_err();
    assert_eq!(late, Error::handle(Subtype::InvalidHandlePz));
    side.ia.close(Close::Graceful).unwrap();
}

#[test]
fn unsignalled_completions_are_events_but_wake_no_waiter() {
    let (client, server) = (Side::open(), Side::open());
    let mut quiet = attr(4, 4);
    quiet.request_completion_flags = F::UNSIGNALLED;
    let from = Ep::create(client.ia, client.parts(), Some(&quiet)).unwrap();
    join(&client, from, &server, server.ep(), 213);
    from.post_rdma_write(&[], 1, &remote(0), F::UNSIGNALLED)
        .unwrap();
    assert_eq!(dto(next(client.request).unwrap()).cookie, 1);
}

/// dat_ep_create: INVALID_PARAMETER for impossible attributes, MODEL_NOT_SUPPORTED for a quality of service; the provider fills in its
/// defaults.
#[test]
fn attributes_beyond_the_adapter_are_refused() {
    let side = Side::open();
    let refused = |change: fn(&mut dat_core::attributes::EpAttr)| {
        let mut wrong = attr(4, 4);
        change(&mut wrong);
        Ep::create(side.ia, side.parts(), Some(&wrong)).unwrap_err()
    };
    assert_eq!(refused(|a| a.max_recv_dtos = 1001), Error::arg(6));
    assert_eq!(refused(|a| a.max_request_dtos = u32::MAX), Error::arg(6));
    assert_eq!(refused(|a| a.max_request_iov = 9), Error::arg(6));
    assert_eq!(refused(|a| a.max_message_size = 1 << 21), Error::arg(6));
    assert_eq!(refused(|a| a.max_rdma_read_out = 17), Error::arg(6));
    assert_eq!(refused(|a| a.service_type = 2), Error::arg(6));
    let model = Error::of(Kind::ModelNotSupported);
    assert_eq!(refused(|a| a.qos = 1), model);
    assert_eq!(refused(|a| a.service_type = 1), model);
    let defaults = Ep::create(side.ia, side.parts(), None)
        .unwrap()
        .info()
        .unwrap();
    assert_eq!(
        (defaults.attr.max_recv_dtos, defaults.attr.max_recv_iov),
        (16, 4)
    );
    assert_eq!(defaults.state, EpState::Unconnected);
    assert!(defaults.remote_address.is_none());
}

/// dat_ep_modify: INVALID_STATE where the state does not allow the change, INVALID_PARAMETER for values that
/// are not possible.
#[test]
fn modify_follows_the_states_and_keeps_what_it_cannot_change() {
    let p = connected(214);
    let mut more = EpChange::<Fake> {
        max_recv_dtos: Some(20),
        ..Default::default()
    };
    let connected = Err(Error::state(Subtype::InvalidStateEpConnected));
    assert_eq!(p.from.modify(&more), connected);
    let ep = p.client.ep();
    ep.modify(&more).unwrap();
    for n in 0..20 {
        ep.post_recv(&[], n, NONE).unwrap();
    }
    more.max_recv_dtos = Some(30);
    let busy = Err(Error::state(Subtype::InvalidStateEpUnconnected));
    assert_eq!(ep.modify(&more), busy, "receives would be lost");
    let wrong = EpChange::<Fake> {
        max_recv_iov: Some(1000),
        ..Default::default()
    };
    assert_eq!(p.client.ep().modify(&wrong), Err(Error::arg(3)));
    let srq = EpChange::<Fake> {
        srq: Some(None),
        ..Default::default()
    };
    assert_eq!(ep.modify(&srq), Err(Error::arg(3)));
    // A freed part: nothing changes.
    let gone = Evd::create(p.client.ia, 4, None, EvdFlags::DTO).unwrap();
    gone.free().unwrap();
    let other = p.client.ep();
    let to_gone = EpChange::<Fake> {
        recv_evd: Some(Some(gone)),
        ..Default::default()
    };
    assert_eq!(
        other.modify(&to_gone),
        Err(Error::handle(Subtype::InvalidHandleEvdRecv))
    );
    let info = other.info().unwrap();
    assert!(
        info.recv_evd
            .is_some_and(|e| std::ptr::eq(e, p.client.recv))
    );
    other.post_recv(&[], 1, NONE).unwrap();
}

#[test]
fn many_threads_post_and_free_without_harm() {
    for round in 0..20 {
        let p = connected(300 + round);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for n in 0..200 {
                        let _ = p.from.post_rdma_write(&[], n, &remote(0), F::SUPPRESS);
                        let _ = p.from.post_recv(&[], n, NONE);
                    }
                });
            }
            scope.spawn(|| {
                while p.from.status().0 == EpState::Connected {
                    let _ = next(p.client.request);
                }
            });
            scope.spawn(|| {
                let _ = p.from.disconnect(Close::Graceful);
                let _ = p.from.disconnect(Close::Abrupt);
                let _ = p.from.free();
            });
            scope.spawn(|| {
                let _ = p.from.free();
            });
        });
        assert!(p.from.free().is_err());
        let reported: Vec<Event> = all(p.client.conn);
        assert!(reported.len() <= 1, "{reported:?}");
    }
}

/// An endpoint without a protection zone has no queues; the queues of the slot's earlier endpoint do not count.
#[test]
fn posts_of_an_earlier_endpoint_in_the_slot_are_not_outstanding() {
    let side = Side::open();
    let posted = || {
        let ep = side.ep();
        ep.post_recv(&[], 1, NONE).unwrap();
        ep.free().unwrap();
    };
    // Enough endpoints that slots are reused.
    (0..600).for_each(|_| posted());
    for _ in 0..300 {
        let bare = Ep::create(side.ia, EpParts::default(), None).unwrap();
        assert_eq!(bare.status(), (EpState::Unconnected, true, true));
        let change = EpChange {
            pz: Some(Some(side.pz)),
            ..EpChange::default()
        };
        bare.modify(&change).unwrap();
        bare.free().unwrap();
    }
}

/// dat_ep_create: without an EVD for receives "the Consumer is not interested in events for completions of receives". So no call
/// polls for them but the next post.
#[test]
fn receives_without_an_evd_make_room_for_the_next_ones() {
    let (client, server) = (Side::open(), Side::open());
    let parts = EpParts {
        recv_evd: None,
        ..server.parts()
    };
    let to = Ep::create(server.ia, parts, Some(&attr(4, 4))).unwrap();
    let from = client.ep();
    join(&client, from, &server, to, 321);
    for n in 0..20 {
        to.post_recv(&[], n, NONE).unwrap();
        from.post_send(&[], n, NONE).unwrap();
        assert_eq!(
            dto(next(client.request).unwrap()).status,
            DtoStatus::Success
        );
    }
    for n in 0..4 {
        to.post_recv(&[], n, NONE).unwrap();
    }
    let full = Err(Error::resource(Subtype::ResourceMemory));
    assert_eq!(to.post_recv(&[], 4, NONE), full);
    assert_eq!(all(server.request), []);
}

/// dat_ep_get_status: idle means that nothing is outstanding or in progress.
#[test]
fn an_endpoint_without_evds_is_idle_when_its_work_is_done() {
    let (client, server) = (Side::open(), Side::open());
    let parts = EpParts {
        recv_evd: None,
        request_evd: None,
        ..server.parts()
    };
    let to = Ep::create(server.ia, parts, Some(&attr(4, 4))).unwrap();
    let from = client.ep();
    join(&client, from, &server, to, 322);
    to.post_recv(&[], 1, NONE).unwrap();
    from.post_recv(&[], 2, NONE).unwrap();
    assert_eq!(to.status(), (EpState::Connected, false, true));
    server.hold(true);
    to.post_send(&[], 3, NONE).unwrap();
    assert_eq!(to.status(), (EpState::Connected, false, false));
    server.hold(false);
    from.post_send(&[], 4, NONE).unwrap();
    assert_eq!(to.status(), (EpState::Connected, true, true));
    to.post_recv(&[], 5, NONE).unwrap();
    from.post_send(&[], 6, NONE).unwrap();
    assert_eq!(to.recv_query().unwrap().0, 0);
}

/// Each resize is a call of the device, and one beyond its limit fails.
#[test]
fn a_completion_queue_grows_in_few_steps_up_to_the_adapters_limit() {
    let side = Side::open();
    let parts = EpParts {
        recv_evd: Some(side.request),
        ..side.parts()
    };
    let mut count = 0;
    while Ep::create(side.ia, parts, Some(&attr(16, 16))).is_ok() {
        count += 1;
    }
    assert!((48..=64).contains(&count), "{count} endpoints");
    let resizes = side.adapter().resizes.load(Ordering::Relaxed);
    assert!(resizes <= 8, "{resizes} resizes for {count} endpoints");
}
