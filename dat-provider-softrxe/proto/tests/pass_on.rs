//! Requests for connections that one engine of an address passes on to another one (lanes).

mod common;

use std::time::Duration;

use common::pair::Pair;
use softrxe_proto::{
    Accept, CmError, CmEventKind, Config, Connect, Engine, Event, Forwarded, Meta, Qpn,
    RejectReason, service_id,
};

const LONG: Duration = Duration::from_secs(200);

/// Makes two engines of side 1's address, as a process may have: the first pair's has the service, the second pair's a queue pair. Side 0 of the
/// first pair connects. Returns both pairs, and the queue pairs.
fn two_engines(name: &str, adjust: impl Fn(&mut Config)) -> (Pair, Pair, [Qpn; 2]) {
    let mut pair = Pair::with(name, 1, |config| {
        config.qpn_prefix_bits = 4;
        adjust(config);
    });
    let mut other = Pair::with(&format!("{name}_second"), 2, |config| {
        config.qpn_prefix_bits = 4;
        config.qpn_prefix = 3;
    });
    let service = service_id::tcp(7001);
    let qpns = [pair.sides[0].qp(), other.sides[1].qp()];
    pair.sides[1].engine.listen(service).unwrap();
    let connect = Connect::new(pair.sides[1].address, service, b"hello");
    let (now, active) = (pair.now, &mut pair.sides[0].engine);
    active.connect(now, qpns[0], &connect).unwrap();
    (pair, other, qpns)
}

#[test]
fn a_request_is_answered_by_another_engine_of_its_address() {
    let (mut pair, mut other, qpns) = two_engines("pass_on", |_| {});
    let now = pair.now;
    let [req] = <[Vec<u8>; 1]>::try_from(pair.poll(0)).expect("one REQ");
    let source = pair.sides[0].address;
    let arrives = |engine: &mut Engine<_>| {
        engine.handle_datagram(now, &Meta { source, ip_id: 0 }, &req);
    };
    let first = &mut pair.sides[1].engine;
    arrives(first);
    let Some(Event::Cm(request)) = first.poll_event() else {
        panic!("no request");
    };
    let passed = first.pass_on(now, request.id).unwrap();
    assert!(matches!(
        first.pass_on(now, request.id),
        Err(CmError::State { .. })
    ));
    let second = &mut other.sides[1].engine;
    let id = second.add_passed(now, passed).unwrap();
    assert_eq!(second.poll_event(), None);
    second
        .accept(now, id, qpns[1], &Accept::new(b"welcome"))
        .unwrap();

    // The REP is lost each time, and the peer repeats its REQ.
    let mut buffer = vec![0; 65_000];
    for round in 0..5 {
        assert!(second.poll_transmit(now, &mut buffer).is_some(), "{round}");
        arrives(first);
        let Some(Event::Cm(again)) = first.poll_event() else {
            panic!("not forwarded");
        };
        let CmEventKind::Forwarded(what) = again.kind else {
            panic!("{again:?}");
        };
        assert_eq!((again.id, what), (request.id, Forwarded::Repeated));
        second.forwarded(now, id, what);
    }
    assert!(pair.poll(1).is_empty());

    // From here on the peer's messages name the second engine.
    std::mem::swap(&mut pair.sides[1], &mut other.sides[1]);
    pair.run();
    let up = pair.sides[0].cm_event();
    let CmEventKind::Established(data) = up.kind else {
        panic!("{up:?}");
    };
    assert_eq!(data[..8], *b"welcome\0");
    let up = pair.sides[1].cm_event();
    assert_eq!((up.id, up.qpn), (id, Some(qpns[1])));
    assert!(matches!(up.kind, CmEventKind::Established(_)));
}

/// A thread that runs a consumer's agent takes no events for as long as the agent runs.
#[test]
fn a_peer_that_repeats_its_request_without_an_end_makes_few_events() {
    let (mut pair, mut other, _) = two_engines("flood", |_| {});
    let now = pair.now;
    let [req] = <[Vec<u8>; 1]>::try_from(pair.poll(0)).expect("one REQ");
    let source = pair.sides[0].address;
    let first = &mut pair.sides[1].engine;
    first.handle_datagram(now, &Meta { source, ip_id: 0 }, &req);
    let Some(Event::Cm(request)) = first.poll_event() else {
        panic!("no request");
    };
    let passed = first.pass_on(now, request.id).unwrap();
    other.sides[1].engine.add_passed(now, passed).unwrap();
    for _ in 0..10_000 {
        first.handle_datagram(now, &Meta { source, ip_id: 0 }, &req);
    }
    let events = std::iter::from_fn(|| first.poll_event()).count();
    assert!((15..100).contains(&events), "{events} events");
}

/// An engine may have given up thousands of services. It looks only at those whose last request has ended.
#[test]
fn a_service_that_is_given_up_is_reported_when_its_last_request_has_ended() {
    let mut pair = Pair::new("unasked");
    let services = [7001, 7002].map(service_id::tcp);
    for service in services {
        pair.sides[1].engine.listen(service).unwrap();
        let connect = Connect::new(pair.sides[1].address, service, b"hello");
        let (now, active) = (pair.now, &mut pair.sides[0]);
        let qpn = active.qp();
        active.engine.connect(now, qpn, &connect).unwrap();
    }
    assert!(pair.run_until(LONG, |p| p.sides[1].events.len() == 2));
    let requests: Vec<_> = pair.sides[1].cm_events().iter().map(|e| e.id).collect();
    let (qpn, now) = (pair.sides[1].qp(), pair.now);
    let passive = &mut pair.sides[1].engine;
    assert!(
        services
            .iter()
            .all(|service| passive.is_asked_for(*service))
    );
    assert!(!passive.is_asked_for(service_id::tcp(7003)));
    passive
        .reject(now, requests[0], RejectReason::CONSUMER, &[])
        .unwrap();
    assert_eq!(passive.take_unasked(), [services[0]]);
    let accept = Accept::new(b"");
    passive.accept(now, requests[1], qpn, &accept).unwrap();
    // The REP may be lost.
    assert_eq!(passive.take_unasked(), []);
    assert!(pair.run_until(LONG, |p| !p.sides[1].events.is_empty()));
    let passive = &mut pair.sides[1].engine;
    assert_eq!(passive.take_unasked(), [services[1]]);
    assert!(
        services
            .iter()
            .all(|service| !passive.is_asked_for(*service))
    );
    assert_eq!(passive.take_unasked(), []);
}

#[test]
fn a_peer_that_gives_up_cancels_its_request_in_the_engine_that_has_it() {
    let (mut pair, mut other, qpns) = two_engines("cancelled", |config| config.cm_retries = 1);
    assert!(pair.run_until(LONG, |p| !p.sides[1].events.is_empty()));
    let request = pair.sides[1].cm_event();
    let now = pair.now;
    let passed = pair.sides[1].engine.pass_on(now, request.id).unwrap();
    let second = &mut other.sides[1].engine;
    let id = second.add_passed(now, passed).unwrap();
    let answer = Accept::new(b"");
    second.accept(now, id, qpns[1], &answer).unwrap();
    let cancelled = Event::Cm(softrxe_proto::CmEvent {
        id: request.id,
        qpn: None,
        kind: CmEventKind::Forwarded(Forwarded::Cancelled),
    });
    assert!(pair.run_until(LONG, |p| p.sides[1].events.contains(&cancelled)));
    second.forwarded(pair.now, id, Forwarded::Cancelled);
    let Some(Event::Cm(ended)) = second.poll_event() else {
        panic!("not ended");
    };
    assert_eq!(ended.id, id);
    assert!(matches!(ended.kind, CmEventKind::Rejected { .. }));
}
