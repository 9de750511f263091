//! Connection events and requests whose EVD is full.

mod null;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dat_core::ep::{Ep, EpParts, EpState};
use dat_core::error::{Error, Kind, Subtype};
use dat_core::evd::Evd;
use dat_core::event::{AsyncEvent, Event};
use dat_core::flags::{Close, CompletionFlags, EvdFlags};
use dat_core::head::raw;
use dat_core::ia::Ia;
use dat_core::pz::Pz;
use dat_core::sp::Sp;
use dat_core::upcall::ConnOutcome;
use null::side::{cookies, side};
use null::{Events, Null, open, qp, request};

const LONG: Option<Duration> = Some(Duration::from_secs(10));

/// Returns the parts of an endpoint of `ia` whose connection events go to `evd`.
fn parts(ia: &'static Ia<Null>, evd: &'static Evd<Null>) -> EpParts<Null> {
    let requests = Evd::create(ia, 4, None, EvdFlags::DTO).unwrap();
    EpParts {
        pz: Some(Pz::create(ia).unwrap()),
        recv_evd: Some(requests),
        request_evd: Some(requests),
        connect_evd: Some(evd),
        srq: None,
    }
}

#[test]
fn a_connection_event_without_room_is_an_asynchronous_error() {
    let ia = open();
    let evd = Evd::create(ia, 1, None, EvdFlags::CONNECTION).unwrap();
    let parts = parts(ia, evd);
    for _ in 0..2 {
        let ep = Ep::create(ia, parts, None).unwrap();
        ep.connect(IpAddr::V4(Ipv4Addr::LOCALHOST), 1, None, &[], 0, 0)
            .unwrap();
        qp(ep).establish();
    }
    let mut sink = Events::default();
    ia.async_evd().unwrap().wait(LONG, 1, &mut sink).unwrap();
    assert_eq!(
        sink.0,
        [Event::Async {
            number: AsyncEvent::EvdOverflow,
            handle: raw(evd),
            reason: 0
        }]
    );
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn connection_events_may_go_to_another_open_of_the_adapter() {
    let (ia, other) = (open(), open());
    let evd = Evd::create(other, 4, None, EvdFlags::CONNECTION).unwrap();
    let parts = parts(ia, evd);
    let connected = || {
        let ep = Ep::create(ia, parts, None).unwrap();
        let to = IpAddr::V4(Ipv4Addr::LOCALHOST);
        ep.connect(to, 1, None, &[], 0, 0).unwrap();
        ep
    };
    let (first, second) = (connected(), connected());
    qp(first).establish();
    let mut sink = Events::default();
    evd.dequeue(&mut sink).unwrap();
    assert_eq!(evd.free(), Err(Error::state(Subtype::InvalidStateEvdInUse)));
    // The owner of the EVD may close its IA at once; the endpoints then drop their events.
    let begun = std::time::Instant::now();
    other.close(Close::Abrupt).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1));
    qp(second).establish();
    assert!(!evd.head.alive());
    first.free().unwrap();
    second.free().unwrap();
    // Completions cannot go to an EVD of another IA.
    let third = open();
    let foreign = Evd::create(third, 4, None, EvdFlags::DTO).unwrap();
    let wrong = EpParts {
        recv_evd: Some(foreign),
        connect_evd: None,
        ..parts
    };
    assert_eq!(
        Ep::create(ia, wrong, None).map(|_| ()),
        Err(Error::handle(Subtype::InvalidHandleEvdRecv))
    );
    third.close(Close::Abrupt).unwrap();
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn a_connection_request_without_room_is_refused() {
    let ia = open();
    let evd = Evd::create(ia, 1, None, EvdFlags::CR).unwrap();
    Sp::psp_create(ia, Some(4711), evd, false).unwrap();
    let first = request(4711);
    let second = request(4711);
    assert_eq!(Arc::strong_count(&first), 2, "waits for its answer");
    assert_eq!(Arc::strong_count(&second), 1, "is refused");
    let mut sink = Events::default();
    evd.dequeue(&mut sink).unwrap();
    assert!(evd.dequeue(&mut sink).is_err());
    let asynchronous = ia.async_evd().unwrap();
    asynchronous.dequeue(&mut sink).unwrap();
    let overflow = Event::Async {
        number: AsyncEvent::EvdOverflow,
        handle: raw(evd),
        reason: 0,
    };
    assert_eq!(sink.0[1], overflow);
    ia.close(Close::Abrupt).unwrap();
    assert_eq!(Arc::strong_count(&first), 1, "refused by the close");
}

/// Returns an IA, an endpoint that is reserved for requests to 2, and their EVD, which has room for one. Requests to 1 fill it.
fn reserved() -> (&'static Ia<Null>, &'static Ep<Null>, &'static Evd<Null>) {
    let ia = open();
    let connections = Evd::create(ia, 4, None, EvdFlags::CONNECTION).unwrap();
    let ep = Ep::create(ia, parts(ia, connections), None).unwrap();
    let requests = Evd::create(ia, 1, None, EvdFlags::CR).unwrap();
    Sp::psp_create(ia, Some(1), requests, false).unwrap();
    Sp::rsp_create(ia, 2, ep, requests).unwrap();
    (ia, ep, requests)
}

/// The endpoint is not free between a request that is refused and the next one.
#[test]
fn the_endpoint_of_a_refused_request_stays_reserved() {
    let (_ia, ep, _requests) = reserved();
    let _filling = request(1);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2000 {
                request(2);
            }
            ended.store(true, Ordering::Relaxed);
        });
        while !ended.load(Ordering::Relaxed) {
            assert!(ep.free().is_err(), "freed while it is reserved");
        }
    });
}

/// It gets another one, as the consumer knows nothing of the first.
#[test]
fn a_reserved_service_point_whose_request_is_refused_waits_for_another() {
    let (ia, ep, requests) = reserved();
    let filling = request(1);
    let refused = request(2);
    assert_eq!(Arc::strong_count(&refused), 1, "is refused");
    assert_eq!(ep.info().unwrap().state, EpState::Reserved);
    let mut sink = Events::default();
    requests.dequeue(&mut sink).unwrap();
    let second = request(2);
    assert_eq!(Arc::strong_count(&second), 2, "waits for its answer");
    requests.dequeue(&mut sink).unwrap();
    assert_eq!(ep.info().unwrap().state, EpState::PassiveConnectionPending);
    drop(filling);
    ia.close(Close::Abrupt).unwrap();
}

/// Requests of a peer must not fill the asynchronous EVD.
#[test]
fn a_burst_of_lost_requests_is_one_asynchronous_error_each_time_that_the_evd_is_full() {
    let ia = open();
    let evd = Evd::create(ia, 1, None, EvdFlags::CR).unwrap();
    Sp::psp_create(ia, Some(4712), evd, false).unwrap();
    let overflow = Event::Async {
        number: AsyncEvent::EvdOverflow,
        handle: raw(evd),
        reason: 0,
    };
    let reported = || {
        let mut sink = Events::default();
        while ia.async_evd().unwrap().dequeue(&mut sink).is_ok() {}
        sink.0
    };
    for _ in 0..2 {
        for _ in 0..20 {
            request(4712);
        }
        assert_eq!(reported(), [overflow]);
        evd.dequeue(&mut Events::default()).unwrap();
    }
    // A report that finds no room is made with the next loss.
    let others = Evd::create(ia, 1, None, EvdFlags::CONNECTION).unwrap();
    let requests = Evd::create(ia, 4, None, EvdFlags::DTO).unwrap();
    let parts = EpParts {
        pz: Some(Pz::create(ia).unwrap()),
        recv_evd: Some(requests),
        request_evd: Some(requests),
        connect_evd: Some(others),
        srq: None,
    };
    let ep = Ep::create(ia, parts, None).unwrap();
    let room = ia.async_evd().unwrap().info().unwrap().qlen as usize;
    for _ in 0..room {
        ep.connect(IpAddr::V4(Ipv4Addr::LOCALHOST), 1, None, &[], 0, 0)
            .unwrap();
        qp(ep).establish();
        ep.disconnect(Close::Abrupt).unwrap();
        ep.reset().unwrap();
        while others.dequeue(&mut Events::default()).is_ok() {}
    }
    request(4712);
    request(4712);
    assert_eq!(reported().len(), room);
    request(4712);
    assert_eq!(reported(), [overflow]);
    ia.close(Close::Abrupt).unwrap();
}

/// Man dat_evd_create: the length is "the limit for all other events, whose room completions do not take". Otherwise a program could not
/// wake its own thread.
#[test]
fn a_software_event_finds_room_behind_any_number_of_completions() {
    let side = side(CompletionFlags::empty(), CompletionFlags::empty());
    side.evd.resize(2).unwrap();
    for cookie in 1..=16 {
        side.send(cookie, CompletionFlags::empty());
    }
    side.qp.finish_requests(16);
    side.evd.post_se(0).unwrap();
    side.evd.post_se(0).unwrap();
    assert_eq!(side.evd.post_se(0), Err(Error::of(Kind::QueueFull)));
    let mut expected: Vec<_> = (1..=16).collect();
    expected.extend([0, 0]);
    assert_eq!(side.cookies(), expected);
    side.evd.post_se(0).unwrap();
    side.close();
}

/// Man dat_evd_create: the length is no limit for completions, and is "the limit for all other events".
#[test]
fn a_connection_event_finds_room_behind_any_number_of_completions() {
    let side = side(CompletionFlags::empty(), CompletionFlags::empty());
    side.evd.resize(2).unwrap();
    for cookie in 1..=16 {
        side.send(cookie, CompletionFlags::empty());
    }
    side.qp.flush_requests();
    side.qp.report(ConnOutcome::Disconnected);
    let mut expected: Vec<_> = (1..=16).collect();
    expected.push(0);
    let mut sink = Events::default();
    while side.evd.dequeue(&mut sink).is_ok() {}
    assert_eq!(cookies(&sink), expected);
    let asynchronous = side.ia.async_evd().unwrap();
    assert!(asynchronous.dequeue(&mut sink).is_err());
    side.close();
}
