//! Shared receive queues: dat_srq_create, dat_srq_post_recv, dat_srq_resize, dat_srq_set_lw, dat_srq_free, and
//! the asynchronous event after each disconnect.
#![allow(missing_docs, reason = "a test")]

mod pair;

use std::collections::HashSet;
use std::sync::Weak;
use std::sync::atomic::Ordering;

use dat_core::attributes::SrqAttr;
use dat_core::ep::{Ep, EpChange, EpParts};
use dat_core::error::{Error, Subtype};
use dat_core::evd::Evd;
use dat_core::event::{AsyncEvent, ConnectionEvent as E, DtoStatus, Event};
use dat_core::flags::{Close, CompletionFlags, EvdFlags};
use dat_core::pz::Pz;
use dat_core::srq::Srq;
use dat_core::transport::{Token, Transport};
use dat_core::upcall::Fault;
use pair::*;

const ATTR: SrqAttr = SrqAttr {
    max_recv_dtos: 8,
    max_recv_iov: 2,
    low_watermark: None,
};
const NONE: CompletionFlags = CompletionFlags::empty();

fn srq_ep(side: &Side, srq: &'static Srq<Fake>) -> &'static Ep<Fake> {
    let parts = EpParts {
        srq: Some(srq),
        ..side.parts()
    };
    Ep::create(side.ia, parts, Some(&attr(0, 8))).unwrap()
}

fn asynchronous(side: &Side) -> Option<Event> {
    next(side.ia.async_evd().unwrap())
}

/// dat_srq_create: receives may complete in another order than they were posted. dat_ep_create_with_srq: no receive can be posted to
/// the endpoint.
#[test]
fn receives_complete_in_any_order_for_the_endpoint_that_took_them() {
    let (client, server) = (Side::open(), Side::open());
    let srq = Srq::create(server.ia, server.pz, &ATTR).unwrap();
    let (one, two) = (srq_ep(&server, srq), srq_ep(&server, srq));
    let (from_one, from_two) = (client.ep(), client.ep());
    join(&client, from_one, &server, one, 401);
    join(&client, from_two, &server, two, 401);
    for round in 0..10 {
        let posted: HashSet<_> = (round * 8..round * 8 + 8).collect();
        for cookie in &posted {
            srq.post_recv(&[], *cookie).unwrap();
        }
        let full = Err(Error::resource(Subtype::ResourceMemory));
        assert_eq!(srq.post_recv(&[], 0), full);
        assert_eq!(srq.info().unwrap().outstanding, 8);
        for _ in 0..4 {
            from_one.post_send(&[], 0, NONE).unwrap();
            from_two.post_send(&[], 0, NONE).unwrap();
        }
        let mut cookies = HashSet::new();
        let mut counts = [0, 0];
        for event in all(server.recv) {
            let dto = dto(event);
            assert!(cookies.insert(dto.cookie));
            counts[usize::from(dto.ep == two.handle())] += 1;
            assert!(dto.ep == one.handle() || dto.ep == two.handle());
        }
        assert_eq!((cookies, counts), (posted, [4, 4]));
        assert_eq!(srq.info().unwrap().outstanding, 0);
        all(client.request);
    }
    assert_eq!(
        one.post_recv(&[], 0, NONE),
        Err(Error::arg(1)),
        "receives are posted to the SRQ"
    );
}

#[test]
fn each_disconnect_of_its_endpoints_is_reported_once() {
    let (client, server) = (Side::open(), Side::open());
    let srq = Srq::create(server.ia, server.pz, &ATTR).unwrap();
    let (from, to) = (client.ep(), srq_ep(&server, srq));
    for by_peer in [true, false] {
        join(&client, from, &server, to, 402);
        assert_eq!(asynchronous(&server), None);
        let who = if by_peer { from } else { to };
        who.disconnect(Close::Abrupt).unwrap();
        assert_eq!(wait(server.conn), connection(E::Disconnected, to));
        let broken = Event::Async {
            number: AsyncEvent::EpBroken,
            handle: to.handle(),
            reason: 0,
        };
        assert_eq!(asynchronous(&server), Some(broken));
        assert_eq!(asynchronous(&server), None);
        wait(client.conn);
        from.reset().unwrap();
        to.reset().unwrap();
    }
    assert_eq!(asynchronous(&client), None, "no SRQ, no event");
}

/// A device reports the last receive through its event thread, and names the queue pair, which is the same after dat_ep_reset: the
/// report of one connection may come during the next one.
#[test]
fn a_late_report_of_the_last_receive_is_not_one_of_the_next_connection() {
    let (client, server) = (Side::open(), Side::open());
    let srq = Srq::create(server.ia, server.pz, &ATTR).unwrap();
    let (from, to) = (client.ep(), srq_ep(&server, srq));
    // The token of the queue pair is that of the endpoint before its first connection.
    let generation = to.head.generation.load(Ordering::SeqCst);
    let token = Token(u64::from(generation) << 32 | u64::from(Fake::arenas().ep.index_of(to)));
    let late = || server.adapter().upcalls.fault(Fault::LastReceive(token));
    let broken = Event::Async {
        number: AsyncEvent::EpBroken,
        handle: to.handle(),
        reason: 0,
    };
    for _ in 0..2 {
        late();
        assert_eq!(asynchronous(&server), None, "no connection");
        join(&client, from, &server, to, 404);
        late();
        assert_eq!(asynchronous(&server), None, "the connection has not ended");
        to.disconnect(Close::Abrupt).unwrap();
        assert_eq!(wait(server.conn), connection(E::Disconnected, to));
        assert_eq!(asynchronous(&server), Some(broken));
        late();
        assert_eq!(asynchronous(&server), None, "it was reported");
        wait(client.conn);
        from.reset().unwrap();
        to.reset().unwrap();
    }
}

/// Returns the event for an SRQ below its low watermark.
fn low(srq: &'static Srq<Fake>) -> Event {
    Event::Async {
        number: AsyncEvent::ProviderInternalError,
        handle: srq.handle(),
        reason: 2,
    }
}

/// dat_srq_set_lw: one asynchronous event for each call, at once if the queue is below the watermark already.
#[test]
fn the_low_watermark_is_reported_once_per_arming() {
    let (client, server) = (Side::open(), Side::open());
    let srq = Srq::create(server.ia, server.pz, &ATTR).unwrap();
    let (from, to) = (client.ep(), srq_ep(&server, srq));
    join(&client, from, &server, to, 403);
    for n in 0..8 {
        srq.post_recv(&[], n).unwrap();
    }
    assert_eq!(srq.set_low_watermark(9), Err(Error::arg(2)));
    srq.set_low_watermark(6).unwrap();
    assert_eq!(srq.info().unwrap().attr.low_watermark, Some(6));
    let low = low(srq);
    for (sends, expected) in [(2, None), (1, Some(low)), (3, None)] {
        for _ in 0..sends {
            from.post_send(&[], 0, NONE).unwrap();
        }
        assert_eq!(asynchronous(&server), expected);
    }
    assert_eq!(srq.info().unwrap().attr.low_watermark, None);
    all(server.recv);
    // The queue is below the watermark already.
    srq.set_low_watermark(4).unwrap();
    assert_eq!(asynchronous(&server), Some(low));
    assert_eq!(asynchronous(&server), None);
}

/// dat_srq_set_lw: "at once" also if the messages have arrived and the consumer has not taken them. rdma_rxe, as this transport, looks at the
/// limit only when a message takes a receive: with none left it would never report.
#[test]
fn messages_that_nobody_took_yet_count_for_the_low_watermark() {
    let (client, server) = (Side::open(), Side::open());
    let srq = Srq::create(server.ia, server.pz, &ATTR).unwrap();
    let (from, to) = (client.ep(), srq_ep(&server, srq));
    join(&client, from, &server, to, 404);
    for n in 0..8 {
        srq.post_recv(&[], n).unwrap();
    }
    for _ in 0..4 {
        from.post_send(&[], 0, NONE).unwrap();
    }
    srq.set_low_watermark(4).unwrap();
    assert_eq!(asynchronous(&server), None);
    srq.set_low_watermark(0).unwrap();
    for _ in 0..4 {
        from.post_send(&[], 0, NONE).unwrap();
    }
    srq.set_low_watermark(4).unwrap();
    let low = low(srq);
    assert_eq!(asynchronous(&server), Some(low));
    assert_eq!(asynchronous(&server), None);
    assert_eq!(all(server.recv).len(), 8);
}

/// dat_srq_resize: INVALID_STATE for a size below the outstanding receives or the low watermark.
#[test]
fn resize_keeps_what_is_outstanding() {
    let side = Side::open();
    let srq = Srq::create(side.ia, side.pz, &ATTR).unwrap();
    for n in 0..5 {
        srq.post_recv(&[], n).unwrap();
    }
    let state = Err(Error::state(Subtype::InvalidStateSrqOperational));
    assert_eq!(srq.resize(4), state);
    assert_eq!(srq.resize(0), Err(Error::arg(2)));
    assert_eq!(srq.resize(1001), Err(Error::arg(2)));
    srq.resize(5).unwrap();
    assert!(srq.post_recv(&[], 5).is_err());
    srq.resize(500).unwrap();
    for n in 5..500 {
        srq.post_recv(&[], n).unwrap();
    }
    assert!(srq.post_recv(&[], 500).is_err());
    assert_eq!(srq.info().unwrap().attr.max_recv_dtos, 500);
    srq.set_low_watermark(100).unwrap();
    assert_eq!(srq.resize(50), state);
}

/// dat_srq_resize: "should not cause any incoming messages on any of the EPs that use the SRQ to be lost". So their completion queues
/// have room for all receives.
#[test]
fn the_completion_queues_of_its_endpoints_grow_with_it() {
    let side = Side::open();
    let srq = Srq::create(side.ia, side.pz, &ATTR).unwrap();
    srq_ep(&side, srq);
    let unheard = EpParts {
        srq: Some(srq),
        recv_evd: None,
        ..side.parts()
    };
    Ep::create(side.ia, unheard, Some(&attr(0, 8))).unwrap();
    srq.resize(700).unwrap();
    srq_ep(&side, srq);
    let qps = side.adapter();
    let depths = qps
        .qps
        .lock()
        .iter()
        .filter_map(Weak::upgrade)
        .map(|qp| qp.recv_depth())
        .collect::<Vec<_>>();
    assert!(
        depths[0] >= 1400 && depths[1] >= 700 && depths[2] >= 1400,
        "{depths:?}"
    );
}

/// dat_srq_free: refused while an endpoint uses it.
#[test]
fn an_srq_is_freed_when_no_endpoint_uses_it() {
    let side = Side::open();
    let srq = Srq::create(side.ia, side.pz, &ATTR).unwrap();
    let ep = srq_ep(&side, srq);
    assert_eq!(srq.free(), Err(Error::state(Subtype::InvalidStateSrqInUse)));
    assert_eq!(ep.recv_query(), Ok((u32::MAX, u32::MAX)));
    ep.free().unwrap();
    assert_eq!(
        side.pz.free(),
        Err(Error::state(Subtype::InvalidStatePzInUse))
    );
    srq.free().unwrap();
    let dead = Error::handle(Subtype::InvalidHandleSrq);
    assert_eq!(srq.free(), Err(dead));
    assert_eq!(srq.post_recv(&[], 0), Err(dead));
    assert_eq!(srq.info().unwrap_err(), dead);
    assert_eq!(srq.resize(3), Err(dead));
    assert_eq!(srq.set_low_watermark(3), Err(dead));
    side.pz.free().unwrap();
}

#[test]
fn arguments_are_refused() {
    let (side, other) = (Side::open(), Side::open());
    let refused = |attr| Srq::create(side.ia, side.pz, &attr).unwrap_err();
    assert_eq!(
        refused(SrqAttr {
            max_recv_dtos: 0,
            ..ATTR
        }),
        Error::arg(3)
    );
    assert_eq!(
        refused(SrqAttr {
            max_recv_dtos: 1001,
            ..ATTR
        }),
        Error::arg(3)
    );
    assert_eq!(
        refused(SrqAttr {
            max_recv_iov: 9,
            ..ATTR
        }),
        Error::arg(3)
    );
    assert_eq!(
        refused(SrqAttr {
            low_watermark: Some(9),
            ..ATTR
        }),
        Error::arg(3)
    );
    let foreign = Srq::create(side.ia, other.pz, &ATTR).unwrap_err();
    assert_eq!(foreign, Error::handle(Subtype::InvalidHandlePz));
    let srq = Srq::create(side.ia, side.pz, &ATTR).unwrap();
    assert_eq!(
        srq.post_recv(&[Default::default(); 3], 0),
        Err(Error::arg(2))
    );
}

#[test]
fn an_endpoint_has_the_pz_of_its_queue() {
    let side = Side::open();
    let srq = Srq::create(side.ia, side.pz, &ATTR).unwrap();
    let other = Pz::create(side.ia).unwrap();
    let parts = EpParts {
        srq: Some(srq),
        pz: Some(other),
        ..side.parts()
    };
    let created = Ep::create(side.ia, parts, Some(&attr(0, 8)));
    assert_eq!(created.unwrap_err(), Error::arg(2));
    let ep = srq_ep(&side, srq);
    let change = EpChange {
        pz: Some(Some(other)),
        ..EpChange::default()
    };
    assert_eq!(ep.modify(&change).unwrap_err(), Error::arg(3));
    other.free().unwrap();
}

#[test]
fn completions_after_the_endpoint_is_freed_return_the_buffer() {
    let (client, server) = (Side::open(), Side::open());
    let srq = Srq::create(server.ia, server.pz, &ATTR).unwrap();
    let (from, to) = (client.ep(), srq_ep(&server, srq));
    join(&client, from, &server, to, 404);
    srq.post_recv(&[], 31).unwrap();
    from.post_send(&[], 0, NONE).unwrap();
    to.free().unwrap();
    let late = dto(next(server.recv).unwrap());
    assert_eq!(
        (late.cookie, late.ep, late.status),
        (31, srq.handle(), DtoStatus::Success)
    );
    assert_eq!(srq.info().unwrap().outstanding, 0);
}

/// dat_evd_free: "All events on the queue are lost". The SRQ has room for as many receives as before.
#[test]
fn receives_whose_evd_is_freed_leave_the_queue() {
    let (client, server) = (Side::open(), Side::open());
    let srq = Srq::create(server.ia, server.pz, &ATTR).unwrap();
    let recv = Evd::create(server.ia, 64, None, EvdFlags::DTO).unwrap();
    let parts = EpParts {
        srq: Some(srq),
        recv_evd: Some(recv),
        ..server.parts()
    };
    let to = Ep::create(server.ia, parts, Some(&attr(0, 8))).unwrap();
    let from = client.ep();
    join(&client, from, &server, to, 405);
    for n in 0..8 {
        srq.post_recv(&[], n).unwrap();
        from.post_send(&[], n, NONE).unwrap();
    }
    to.free().unwrap();
    recv.free().unwrap();
    assert_eq!(srq.info().unwrap().outstanding, 0);
    srq.resize(1).unwrap();
    srq.post_recv(&[], 9).unwrap();
}

/// dat_ep_create_with_srq: without an EVD for receives "the Consumer is not interested in events for completions of receives". So
/// none comes to the EVD of requests, and the SRQ stays usable.
#[test]
fn an_endpoint_without_an_evd_for_receives_gives_no_event_of_them() {
    let (client, server) = (Side::open(), Side::open());
    for (request_evd, qual) in [(Some(server.request), 406), (None, 407)] {
        let srq = Srq::create(server.ia, server.pz, &ATTR).unwrap();
        let parts = EpParts {
            srq: Some(srq),
            recv_evd: None,
            request_evd,
            ..server.parts()
        };
        let to = Ep::create(server.ia, parts, Some(&attr(0, 8))).unwrap();
        let from = client.ep();
        join(&client, from, &server, to, qual);
        for n in 0..30 {
            srq.post_recv(&[], n).unwrap();
            from.post_send(&[], n, NONE).unwrap();
            assert_eq!(
                dto(next(client.request).unwrap()).status,
                DtoStatus::Success
            );
        }
        assert_eq!(all(server.request), []);
        to.free().unwrap();
        assert_eq!(wait(client.conn), connection(E::Disconnected, from));
        assert_eq!(srq.info().unwrap().outstanding, 0);
        srq.free().unwrap();
    }
}
