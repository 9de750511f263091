//! Completions in an EVD: order, suppression, and the size of the completion queue.

mod null;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_core::ep::{Ep, EpChange, EpParts, EpState};
use dat_core::error::{Error, Kind, Subtype};
use dat_core::evd::Evd;
use dat_core::flags::{Close, CompletionFlags, EvdFlags, MemPriv, VaType};
use dat_core::pz::Pz;
use dat_core::rmr::{LmrRange, Rmr};
use null::side::{cookies, side};
use null::{Events, NO_QPS, Null, open, qp};

const NONE: CompletionFlags = CompletionFlags::empty();

/// Depth of the completion queue of the endpoint's requests.
fn request_depth(ep: &'static Ep<Null>) -> u32 {
    qp(ep).request_cq.depth.load(Ordering::SeqCst)
}

#[test]
fn completions_come_in_order_across_batches() {
    let side = side(NONE, NONE);
    for round in 0..5_u64 {
        let all: Vec<_> = (round * 16 + 1..=round * 16 + 16).collect();
        for cookie in &all {
            side.send(*cookie, NONE);
        }
        // One poll may find all of them, or a later one the rest.
        let first = 3 * round as usize;
        side.qp.finish_requests(first);
        let mut sink = Events::default();
        for _ in 0..first.min(2) {
            side.evd.dequeue(&mut sink).unwrap();
        }
        side.qp.finish_requests(16 - first);
        let mut seen = cookies(&sink);
        seen.extend(side.cookies());
        assert_eq!(seen, all);
    }
    side.close();
}

#[test]
fn an_event_follows_the_completions_that_preceded_it() {
    let side = side(NONE, NONE);
    side.send(1, NONE);
    side.send(2, NONE);
    side.send(3, NONE);
    side.qp.finish_requests(2);
    side.evd.post_se(0).unwrap();
    side.qp.finish_requests(1);
    assert_eq!(side.cookies(), [1, 2, 0, 3]);
    side.close();
}

#[test]
fn suppressed_completions_are_skipped() {
    let side = side(NONE, NONE);
    for cookie in 1..=9 {
        let quiet = cookie % 3 != 0;
        let flags = if quiet {
            CompletionFlags::SUPPRESS
        } else {
            NONE
        };
        side.send(cookie, flags);
    }
    side.qp.finish_requests(9);
    assert_eq!(side.cookies(), [3, 6, 9]);
    side.close();
}

#[test]
fn completions_of_a_freed_endpoint_are_dropped() {
    let side = side(NONE, NONE);
    side.send(1, NONE);
    side.send(2, NONE);
    side.qp.finish_requests(1);
    side.ep.free().unwrap();
    side.qp.finish_requests(1);
    assert!(!side.cookies().contains(&2));
    side.evd.free().unwrap();
    side.close();
}

#[test]
fn no_completion_is_lost_when_there_are_more_than_the_queue_holds() {
    let side = side(NONE, NONE);
    side.evd.resize(2).unwrap();
    for cookie in 1..=16 {
        side.send(cookie, NONE);
    }
    side.qp.finish_requests(16);
    assert_eq!(side.evd.resize(15), Err(Error::of(Kind::InvalidState)));
    assert_eq!(side.cookies(), (1..=16).collect::<Vec<_>>());
    side.close();
}

#[test]
fn the_completion_queue_grows_with_the_endpoints_on_it() {
    let ia = open();
    let pz = Pz::create(ia).unwrap();
    let evd = Evd::create(ia, 2, None, EvdFlags::DTO).unwrap();
    let parts = EpParts {
        pz: Some(pz),
        recv_evd: Some(evd),
        request_evd: Some(evd),
        connect_evd: None,
        srq: None,
    };
    let mut expected = 0;
    for _ in 0..20 {
        let ep = Ep::create(ia, parts, None).unwrap();
        expected += 32;
        let depth = request_depth(ep);
        assert!(depth >= expected, "{depth} < {expected}");
    }
    ia.close(Close::Abrupt).unwrap();
}

/// dat_ep_modify makes the streams of an endpoint again, also those that it does not change, and also where it fails.
#[test]
fn a_modified_endpoint_keeps_its_room_in_the_completion_queue() {
    let ia = open();
    let pz = Pz::create(ia).unwrap();
    let evd = Evd::create(ia, 2, None, EvdFlags::DTO | EvdFlags::CONNECTION).unwrap();
    let no_dtos = Evd::create(ia, 2, None, EvdFlags::CONNECTION).unwrap();
    let parts = EpParts {
        pz: Some(pz),
        recv_evd: Some(evd),
        request_evd: Some(evd),
        connect_evd: None,
        srq: None,
    };
    let connect = EpChange {
        connect_evd: Some(Some(evd)),
        ..EpChange::default()
    };
    let wrong = EpChange {
        request_evd: Some(Some(no_dtos)),
        ..EpChange::default()
    };
    let mut expected = 0;
    for number in 0..20 {
        let ep = Ep::create(ia, parts, None).unwrap();
        if number % 2 == 0 {
            ep.modify(&connect).unwrap();
        } else {
            assert!(ep.modify(&wrong).is_err());
        }
        expected += 32;
        let depth = request_depth(ep);
        assert!(depth >= expected, "{depth} < {expected}");
    }
    ia.close(Close::Abrupt).unwrap();
}

#[test]
fn the_completion_queue_of_an_endpoint_without_evds_grows_with_it() {
    let ia = open();
    let parts = EpParts {
        pz: Some(Pz::create(ia).unwrap()),
        recv_evd: None,
        request_evd: None,
        connect_evd: None,
        srq: None,
    };
    let ep = Ep::create(ia, parts, None).unwrap();
    let larger = EpChange {
        max_recv_dtos: Some(200),
        max_request_dtos: Some(200),
        ..EpChange::default()
    };
    ep.modify(&larger).unwrap();
    let depth = request_depth(ep);
    assert!(depth >= 400, "{depth}");
    ia.close(Close::Abrupt).unwrap();
}

/// A reset may bring a new queue pair (over rdma_cm it always does); the old one's room becomes the new one's. A device
/// whose queues cannot grow would refuse the endpoint after some resets.
#[test]
fn the_completion_queue_does_not_grow_with_resets() {
    let ia = open();
    let evd = Evd::create(ia, 2, None, EvdFlags::DTO).unwrap();
    let parts = EpParts {
        pz: Some(Pz::create(ia).unwrap()),
        recv_evd: Some(evd),
        request_evd: Some(evd),
        connect_evd: None,
        srq: None,
    };
    let ep = Ep::create(ia, parts, None).unwrap();
    let depth = request_depth(ep);
    for _ in 0..100 {
        let old = qp(ep);
        old.single_use.store(true, Ordering::SeqCst);
        ep.connect(IpAddr::V4(Ipv4Addr::LOCALHOST), 1, None, &[], 0, 0)
            .unwrap();
        old.establish();
        ep.post_recv(&[], 7, NONE).unwrap();
        ep.disconnect(Close::Abrupt).unwrap();
        ep.reset().unwrap();
        assert!(!Arc::ptr_eq(&qp(ep), &old), "a new queue pair");
        assert_eq!(request_depth(ep), depth);
    }
    ia.close(Close::Abrupt).unwrap();
}

/// The id of a work request has eight bits of the number of its endpoint's generation.
#[test]
fn a_completion_that_was_not_taken_is_none_of_a_later_connection() {
    let ia = open();
    let pz = Pz::create(ia).unwrap();
    let evd = || Evd::create(ia, 16, None, EvdFlags::DTO).unwrap();
    let (recv, request) = (evd(), evd());
    let parts = EpParts {
        pz: Some(pz),
        recv_evd: Some(recv),
        request_evd: Some(request),
        connect_evd: None,
        srq: None,
    };
    let ep = Ep::create(ia, parts, None).unwrap();
    let connect = |cookie| {
        ep.connect(IpAddr::V4(Ipv4Addr::LOCALHOST), 1, None, &[], 0, 0)
            .unwrap();
        qp(ep).establish();
        ep.post_recv(&[], cookie, NONE).unwrap();
        ep.post_send(&[], cookie, NONE).unwrap();
    };
    connect(0);
    // The completions stay in the queue.
    for cookie in 1..=256 {
        qp(ep).receive(true);
        qp(ep).finish_requests(1);
        ep.disconnect(Close::Abrupt).unwrap();
        ep.reset().unwrap();
        connect(cookie);
    }
    let mut sink = Events::default();
    assert!(recv.dequeue(&mut sink).is_err(), "{:?}", sink.0);
    assert!(request.dequeue(&mut sink).is_err(), "{:?}", sink.0);
    ia.close(Close::Abrupt).unwrap();
}

/// dat_ep_reset may fail where the transport has to make a new queue pair. The endpoint stays Disconnected, and has no queue that could flush
/// a post: that fails, too, until a reset succeeds.
#[test]
fn no_post_is_lost_after_a_reset_that_failed() {
    let side = side(NONE, NONE);
    qp(side.ep).single_use.store(true, Ordering::SeqCst);
    side.ep.disconnect(Close::Abrupt).unwrap();
    assert_eq!(side.cookies(), [0]);
    NO_QPS.set(true);
    let lacking = Error::of(Kind::InsufficientResources);
    assert_eq!(side.ep.reset(), Err(lacking));
    assert_eq!(side.ep.info().unwrap().state, EpState::Disconnected);
    let refused = Err(Error::state(Subtype::InvalidStateEpDisconnected));
    assert_eq!(side.ep.post_send(&[], 1, NONE), refused);
    let rmr = Rmr::create(side.pz).unwrap();
    let unbind = LmrRange::default();
    let unbound = rmr.bind(None, unbind, MemPriv::empty(), VaType::Va, side.ep, 2, NONE);
    assert_eq!(unbound.map(drop), refused);
    assert!(side.ep.post_recv(&[], 3, NONE).is_err());
    assert_eq!(side.cookies(), []);
    NO_QPS.set(false);
    side.ep.reset().unwrap();
    side.ep.post_recv(&[], 3, NONE).unwrap();
    side.close();
}
