//! One thread ends an endpoint while the transport executes a call of another thread. That call must not affect the next endpoint in the
//! slot, or the next connection. The transport stops at a defined point, at which the other thread runs.
#![allow(missing_docs, reason = "a test")]

mod pair;

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use dat_core::attributes::SrqAttr;
use dat_core::ep::{Ep, EpParts, EpState};
use dat_core::error::{Error, Kind, Subtype};
use dat_core::evd::Evd;
use dat_core::event::{AsyncEvent, ConnectionEvent as E, DtoStatus, Event};
use dat_core::flags::{Close, CompletionFlags, EvdFlags};
use dat_core::sp::Sp;
use dat_core::srq::Srq;
use pair::*;

/// The way in which the other thread ends an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Disconnect,
    Reset,
    ConnectAgain,
    Free,
}

const ENDS: [End; 4] = [End::Disconnect, End::Reset, End::ConnectAgain, End::Free];

/// Ends `ep` of `side`; if it reconnects, its peer accepts at `qual`. Returns the events that its connect EVD must have.
fn end(how: End, side: &Side, ep: &'static Ep<Fake>, peer: &Side, qual: u64) -> Vec<Event> {
    let ended = connection(E::Disconnected, ep);
    match how {
        End::Free => {
            ep.free().unwrap();
            return Vec::new();
        }
        End::Disconnect => ep.disconnect(Close::Abrupt).unwrap(),
        End::Reset | End::ConnectAgain => {
            ep.disconnect(Close::Abrupt).unwrap();
            ep.reset().unwrap();
        }
    }
    if how != End::ConnectAgain {
        return vec![ended];
    }
    assert_eq!(wait(side.conn), ended);
    join(side, ep, peer, peer.ep(), qual);
    Vec::new()
}

/// Returns the state after [`end`], or `None` if the endpoint is freed.
fn left(how: End) -> Option<EpState> {
    match how {
        End::Disconnect => Some(EpState::Disconnected),
        End::Reset => Some(EpState::Unconnected),
        End::ConnectAgain => Some(EpState::Connected),
        End::Free => None,
    }
}

fn check(how: End, side: &Side, ep: &'static Ep<Fake>, reported: &[Event]) {
    assert_eq!(all(side.conn), reported, "{how:?}");
    let dead = Error::handle(Subtype::InvalidHandleEp);
    match left(how) {
        Some(state) => assert_eq!(ep.status().0, state, "{how:?}"),
        None => assert_eq!(ep.free(), Err(dead)),
    }
    match left(how) {
        // The present queue pair works.
        Some(EpState::Unconnected) => {
            ep.connect(PEER, BLACK_HOLE, None, b"", 0, 0).unwrap();
        }
        Some(EpState::Connected) => {
            let sent = ep.post_send(&[], 7, Default::default());
            assert_eq!(sent, Ok(()), "{how:?}");
        }
        _ => {}
    }
}

/// Sends a message from `from` to `to`.
fn talk(client: &Side, from: &'static Ep<Fake>, to: &'static Ep<Fake>) {
    to.post_recv(&[], 1, Default::default()).unwrap();
    from.post_send(&[], 7, Default::default()).unwrap();
    let sent = dto(wait(client.request));
    assert_eq!((sent.cookie, sent.status), (7, DtoStatus::Success));
}

/// dat_cr_accept: the endpoint is ended before the accept reaches the transport. The call succeeds, and the connection has ended.
#[test]
fn an_accept_during_which_the_endpoint_ends_succeeds() {
    for (qual, how) in (800..).step_by(2).zip(ENDS) {
        let (client, server, other) = (Side::open(), Side::open(), Side::open());
        let psp = Sp::psp_create(server.ia, Some(qual), server.cr, false).unwrap();
        let (from, to) = (client.ep(), server.ep());
        from.connect(PEER, qual, None, b"", 0, 0).unwrap();
        let cr = request(wait(server.cr));
        let stopped = server.adapter().stop(Call::Accept);
        let accepting = thread::spawn(move || cr.accept(Some(to), b""));
        stopped.reached();
        let reported = end(how, &server, to, &other, qual + 1);
        drop(stopped);
        assert_eq!(accepting.join().unwrap(), Ok(()), "{how:?}");
        check(how, &server, to, &reported);
        assert_eq!(
            all(client.conn),
            [connection(E::NonPeerRejected, from)],
            "{how:?}: the peer is refused"
        );
        psp.free().unwrap();
    }
}

/// dat_ep_connect: the same for the active side.
#[test]
fn a_connect_during_which_the_endpoint_ends_succeeds() {
    for (qual, how) in (820..).step_by(2).zip(ENDS) {
        let (client, server) = (Side::open(), Side::open());
        let from = client.ep();
        let stopped = client.adapter().stop(Call::Connect);
        let connecting = thread::spawn(move || from.connect(PEER, qual, None, b"", 0, 0));
        stopped.reached();
        let reported = end(how, &client, from, &server, qual + 1);
        drop(stopped);
        assert_eq!(connecting.join().unwrap(), Ok(()), "{how:?}");
        check(how, &client, from, &reported);
    }
}

/// The transport gets the disconnect before the accept, and connects: core disconnects once more.
#[test]
fn an_accept_that_reaches_the_transport_after_the_end_is_undone() {
    let (client, server) = (Side::open(), Side::open());
    let psp = Sp::psp_create(server.ia, Some(840), server.cr, false).unwrap();
    let (from, to) = (client.ep(), server.ep());
    from.connect(PEER, 840, None, b"", 0, 0).unwrap();
    let cr = request(wait(server.cr));
    let (accept, disconnect) = (Call::Accept, Call::Disconnect);
    let accept = server.adapter().stop(accept);
    let accepting = thread::spawn(move || cr.accept(Some(to), b""));
    accept.reached();
    let disconnect = server.adapter().stop(disconnect);
    let ending = thread::spawn(move || to.disconnect(Close::Abrupt));
    // The endpoint is Disconnected, but the transport is not informed yet.
    disconnect.reached();
    let again = server.adapter().stop(Call::Disconnect);
    drop(accept);
    again.reached();
    assert_eq!(wait(client.conn), connection(E::Established, from));
    drop(again);
    assert_eq!(accepting.join().unwrap(), Ok(()));
    assert_eq!(wait(client.conn), connection(E::Disconnected, from));
    drop(disconnect);
    assert_eq!(ending.join().unwrap(), Ok(()));
    assert_eq!(all(server.conn), [connection(E::Disconnected, to)]);
    assert_eq!(to.status().0, EpState::Disconnected);
    psp.free().unwrap();
}

/// An immediate error of the transport is the error of the call if no thread ended the endpoint.
#[test]
fn a_refusal_of_the_transport_is_not_hidden() {
    let side = Side::open();
    let ep = side.ep();
    let stopped = side.adapter().stop(Call::Connect);
    let connecting = thread::spawn(move || ep.connect(PEER, NO_ROUTE, None, b"", 0, 0));
    stopped.reached();
    assert_eq!(ep.status().0, EpState::ActiveConnectionPending);
    drop(stopped);
    let refused = connecting.join().unwrap();
    assert_eq!(refused, Err(Error::of(Kind::InvalidAddress)));
    assert_eq!(ep.status().0, EpState::Unconnected);
    assert_eq!(all(side.conn), []);
}

/// dat_ep_disconnect: its call reaches the transport only after the endpoint was connected again, to another peer.
#[test]
fn a_late_disconnect_spares_the_next_connection() {
    let (client, server) = (Side::open(), Side::open());
    let (from, to) = (client.ep(), server.ep());
    join(&client, from, &server, to, 850);
    let stopped = client.adapter().stop(Call::Disconnect);
    let ending = thread::spawn(move || from.disconnect(Close::Abrupt));
    stopped.reached();
    from.reset().unwrap();
    // Before the events of the next connection, which would seem to have ended.
    assert_eq!(all(client.conn), [connection(E::Disconnected, from)]);
    let next = server.ep();
    join(&client, from, &server, next, 851);
    drop(stopped);
    assert_eq!(ending.join().unwrap(), Ok(()));
    assert_eq!(all(client.conn), []);
    assert_eq!(from.status().0, EpState::Connected);
    talk(&client, from, next);
    // The old peer got its event.
    assert_eq!(wait(server.conn), connection(E::Disconnected, to));
}

/// Posts while another thread is in dat_ep_disconnect, before the transport has flushed what was posted earlier: completions have the
/// order of the posts.
#[test]
fn posts_during_a_disconnect_complete_behind_earlier_ones() {
    let (client, server) = (Side::open(), Side::open());
    let (from, to) = (client.ep(), server.ep());
    join(&client, from, &server, to, 865);
    let none = CompletionFlags::empty();
    client.hold(true);
    let post = |cookie| {
        from.post_recv(&[], 100 + cookie, none).unwrap();
        from.post_send(&[], cookie, none)
    };
    post(0).unwrap();
    post(1).unwrap();
    let stopped = client.adapter().stop(Call::Disconnect);
    let ending = thread::spawn(move || from.disconnect(Close::Abrupt));
    stopped.reached();
    assert_eq!(from.status().0, EpState::Disconnected);
    for cookie in 2..16 {
        post(cookie).unwrap();
    }
    assert_eq!(all(client.request), []);
    assert_eq!(all(client.recv), []);
    let full = Error::resource(Subtype::ResourceMemory);
    let one_more = from.post_send(&[], 16, none);
    assert_eq!(one_more, Err(full), "there is no room behind them");
    drop(stopped);
    assert_eq!(ending.join().unwrap(), Ok(()));
    // The transport is done: these are flushed by core.
    post(16).unwrap();
    let flushed = |evd| -> Vec<u64> {
        let dtos = all(evd).into_iter().map(dto);
        dtos.map(|dto| {
            assert_eq!(dto.status, DtoStatus::Flushed);
            dto.cookie
        })
        .collect()
    };
    assert_eq!(flushed(client.request), Vec::from_iter(0..17));
    assert_eq!(flushed(client.recv), Vec::from_iter(100..117));
    assert_eq!(wait(client.conn), connection(E::Disconnected, from));
}

/// An endpoint with one EVD, whose connection ends before the device flushes what is outstanding.
fn ended_before_the_flush(qual: u64) -> (&'static Ep<Fake>, &'static Evd<Fake>, Side) {
    let (client, server) = (Side::open(), Side::open());
    let streams = EvdFlags::DTO | EvdFlags::CONNECTION;
    let evd = Evd::create(client.ia, 64, None, streams).unwrap();
    let parts = EpParts {
        recv_evd: Some(evd),
        request_evd: Some(evd),
        connect_evd: Some(evd),
        ..client.parts()
    };
    let from = Ep::create(client.ia, parts, Some(&attr(16, 16))).unwrap();
    let client = Side {
        conn: evd,
        ..client
    };
    join(&client, from, &server, server.ep(), qual);
    let none = CompletionFlags::empty();
    client.hold(true);
    from.post_recv(&[], 100, none).unwrap();
    from.post_send(&[], 0, none).unwrap();
    client.adapter().flushes_late.store(true, Ordering::Relaxed);
    from.disconnect(Close::Abrupt).unwrap();
    assert_eq!(from.status().0, EpState::Disconnected);
    (from, evd, client)
}

/// The device flushes a while after the disconnect: the completions precede the event all the same.
#[test]
fn a_late_flush_precedes_the_event_of_the_end() {
    let (from, evd, client) = ended_before_the_flush(866);
    thread::sleep(Duration::from_millis(5));
    assert_eq!(all(evd), []);
    let qps = client.adapter().qps.lock().clone();
    qps.iter()
        .filter_map(Weak::upgrade)
        .for_each(|qp| qp.flush());
    for cookie in [0, 100] {
        let dto = dto(wait(evd));
        assert_eq!((dto.cookie, dto.status), (cookie, DtoStatus::Flushed));
    }
    assert_eq!(wait(evd), connection(E::Disconnected, from));
}

/// The device flushes nothing: the event comes late. A reset does not wait for it, and posts it.
#[test]
fn the_event_of_the_end_comes_without_a_flush() {
    let (from, evd, _client) = ended_before_the_flush(867);
    assert_eq!(wait(evd), connection(E::Disconnected, from));
    let (from, evd, _client) = ended_before_the_flush(868);
    from.reset().unwrap();
    assert_eq!(all(evd), [connection(E::Disconnected, from)]);
}

/// A device refuses a request of the peer: it flushes the queue pair, and reports nothing else.
#[test]
fn a_connection_whose_work_is_only_flushed_breaks() {
    let (client, server) = (Side::open(), Side::open());
    let (from, to) = (client.ep(), server.ep());
    join(&client, from, &server, to, 869);
    for cookie in [1, 2] {
        to.post_recv(&[], cookie, CompletionFlags::empty()).unwrap();
    }
    let qps = server.adapter().qps.lock().clone();
    qps.iter()
        .filter_map(Weak::upgrade)
        .for_each(|qp| qp.flush());
    for cookie in [1, 2] {
        let dto = dto(wait(server.recv));
        assert_eq!((dto.cookie, dto.status), (cookie, DtoStatus::Flushed));
    }
    // The peer's disconnect may be on its way.
    assert_eq!(all(server.conn), []);
    assert_eq!(wait(server.conn), connection(E::Broken, to));
    assert_eq!(wait(client.conn), connection(E::Disconnected, from));
    assert_eq!((all(server.conn), all(client.conn)), (vec![], vec![]));
}

/// dat_ep_free while another thread disconnects: no event names the dead endpoint.
#[test]
fn a_late_disconnect_causes_no_event_of_a_dead_endpoint() {
    let (client, server) = (Side::open(), Side::open());
    let (from, to) = (client.ep(), server.ep());
    join(&client, from, &server, to, 860);
    let stopped = client.adapter().stop(Call::Disconnect);
    let ending = thread::spawn(move || from.disconnect(Close::Abrupt));
    stopped.reached();
    from.free().unwrap();
    drop(stopped);
    assert_eq!(ending.join().unwrap(), Ok(()));
    assert_eq!(all(client.conn), []);
}

/// dat_ep_reset by two threads: the transport call of the slower one comes after the faster one has connected again.
#[test]
fn a_late_reset_spares_the_next_connection() {
    let (client, server) = (Side::open(), Side::open());
    let from = client.ep();
    join(&client, from, &server, server.ep(), 870);
    from.disconnect(Close::Abrupt).unwrap();
    let stopped = client.adapter().stop(Call::Reset);
    let resetting = thread::spawn(move || from.reset());
    stopped.reached();
    from.reset().unwrap();
    assert_eq!(from.status().0, EpState::Unconnected);
    assert_eq!(wait(client.conn), connection(E::Disconnected, from));
    all(server.conn);
    let next = server.ep();
    join(&client, from, &server, next, 871);
    drop(stopped);
    assert_eq!(resetting.join().unwrap(), Ok(()));
    assert_eq!(from.status().0, EpState::Connected);
    talk(&client, from, next);
    assert_eq!(all(client.conn), []);
    assert_eq!(all(server.conn), []);
}

/// The same on an SRQ, where each connection ends with an asynchronous event.
#[test]
fn a_late_disconnect_leaves_the_next_connection_its_last_event() {
    let (client, server) = (Side::open(), Side::open());
    let limits = SrqAttr {
        max_recv_dtos: 8,
        max_recv_iov: 2,
        low_watermark: None,
    };
    let parts = EpParts {
        srq: Some(Srq::create(client.ia, client.pz, &limits).unwrap()),
        ..client.parts()
    };
    let from = Ep::create(client.ia, parts, Some(&attr(0, 8))).unwrap();
    join(&client, from, &server, server.ep(), 852);
    let stopped = client.adapter().stop(Call::Disconnect);
    let ending = thread::spawn(move || from.disconnect(Close::Abrupt));
    stopped.reached();
    from.reset().unwrap();
    assert_eq!(wait(client.conn), connection(E::Disconnected, from));
    let drained = Event::Async {
        number: AsyncEvent::EpBroken,
        handle: from.handle(),
        reason: 0,
    };
    let asynchronous = client.ia.async_evd().unwrap();
    assert_eq!(all(asynchronous), [drained]);
    join(&client, from, &server, server.ep(), 853);
    drop(stopped);
    assert_eq!(ending.join().unwrap(), Ok(()));
    assert_eq!(all(asynchronous), []);
    from.disconnect(Close::Abrupt).unwrap();
    assert_eq!(all(client.conn), [connection(E::Disconnected, from)]);
    assert_eq!(all(asynchronous), [drained]);
}

/// dat_psp_free while the transport's thread queues a request: the call returns after it, so the program finds the event and can answer.
#[test]
fn a_service_point_is_freed_after_the_request_that_is_being_queued() {
    let (client, server) = (Side::open(), Side::open());
    let flags = EvdFlags::DTO | EvdFlags::CR;
    let requests = Evd::create(server.ia, 8, None, flags).unwrap();
    let psp = Sp::psp_create(server.ia, Some(880), requests, false).unwrap();
    let from = client.ep();
    // Between the request's look at the service point and the queue of events.
    let stopped = server.adapter().stop(Call::Poll);
    let connecting = thread::spawn(move || from.connect(PEER, 880, None, b"", 0, 0));
    stopped.reached();
    let (locked, is_locked) = channel();
    let freeing = thread::spawn(move || {
        // Waits for the lock that the free takes first.
        psp.info().unwrap();
        locked.send(()).unwrap();
        psp.free().unwrap();
    });
    let early = is_locked.recv_timeout(Duration::from_millis(50));
    drop(stopped);
    assert!(early.is_err(), "released before the event was queued");
    connecting.join().unwrap().unwrap();
    freeing.join().unwrap();
    let events = all(requests);
    assert_eq!(events.len(), 1);
    for event in events {
        request(event).reject(b"").unwrap();
    }
    assert_eq!(wait(client.conn), connection(E::PeerRejected, from));
}
