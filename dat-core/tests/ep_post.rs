//! Posting and completing: dat_ep_post_send, dat_ep_post_recv, dat_ep_post_rdma_read, dat_ep_post_rdma_write.
#![allow(missing_docs, reason = "a test")]

mod pair;

use dat_core::ep::{Ep, EpChange, EpParts, EpState};
use dat_core::error::{Error, Kind, Subtype};
use dat_core::event::{DtoOp, DtoStatus, Event};
use dat_core::flags::{Close, CompletionFlags as F};
use dat_core::iov::RmrTriplet;
use pair::*;

const NONE: F = F::empty();

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
