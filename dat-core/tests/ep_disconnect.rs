//! Completions of a connection that ends: dat_ep_disconnect sentence by sentence, failed requests, dat_ep_free and dat_ep_reset.
#![allow(missing_docs, reason = "a test")]

mod pair;

use std::sync::atomic::Ordering;
use std::time::Duration;

use dat_core::ep::{Ep, EpParts, EpState};
use dat_core::error::{Error, Subtype};
use dat_core::evd::Evd;
use dat_core::event::{ConnectionEvent as E, DtoStatus};
use dat_core::flags::{Close, CompletionFlags as F, EvdFlags};
use dat_core::iov::RmrTriplet;
use pair::*;

const NONE: F = F::empty();

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
