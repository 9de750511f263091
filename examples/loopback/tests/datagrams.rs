//! Unreliable datagrams over the loopback: the resolution of peers, sends, and failures.

mod side;

use std::time::Duration;

use dat_core::ah::{Ah, Half};
use dat_core::attributes::{EpAttr, SrqAttr};
use dat_core::cr::Cr;
use dat_core::ep::{Ep, EpState};
use dat_core::error::{Error, Kind};
use dat_core::event::{DatagramEvent, DtoOp, DtoStatus, Event};
use dat_core::flags::{Close, CompletionFlags, MemPriv};
use dat_core::sp::Sp;
use dat_core::srq::Srq;
use dat_core::transport::Transport;
use dat_loopback::Loopback;
use side::{Memory, NONE, Side, attr, done, dto, empty, leak, number, request, wait};

type Peer = &'static Ah<Loopback>;

/// Length of the header in front of a received datagram.
const ROOM: u32 = 40;

fn side(host: u8, last: u8) -> Side {
    Side::open(&format!("127.0.{host}.{last}"))
}

fn datagram_attr() -> EpAttr {
    EpAttr {
        service_type: 1,
        ..attr()
    }
}

fn ep(side: &Side) -> &'static Ep<Loopback> {
    Ep::create(side.ia, side.parts(None), Some(&datagram_attr())).unwrap()
}

/// Waits for a datagram event of `ep` on the connect EVD.
fn answer(side: &Side, ep: &'static Ep<Loopback>) -> (DatagramEvent, Peer) {
    match wait(side.conn) {
        Event::Datagram { number, ep: of, ah } => {
            assert_eq!(of, ep.handle());
            (number, Loopback::arenas().ah.from_addr(ah).unwrap())
        }
        other => panic!("{other:?} is not a datagram event"),
    }
}

struct Asked {
    psp: &'static Sp<Loopback>,
    cr: &'static Cr<Loopback>,
}

/// Sends a request of `from` to a new service point of `b`.
fn ask(from: &'static Ep<Loopback>, b: &Side, data: &[u8]) -> Asked {
    let psp = Sp::psp_create(b.ia, None, b.cr, false).unwrap();
    let qual = psp.info().unwrap().conn_qual;
    from.connect(b.address, qual, None, data, 0, 0).unwrap();
    let event = wait(b.cr);
    let Event::ConnectionRequest { cr, datagram, .. } = event else {
        panic!("{event:?} is not a request");
    };
    assert!(datagram);
    let cr = Loopback::arenas().cr.from_addr(cr).unwrap();
    Asked { psp, cr }
}

/// Resolves both peers: returns the address handles for sends of `from` and of `to`.
fn meet(
    a: &Side,
    from: &'static Ep<Loopback>,
    b: &Side,
    to: &'static Ep<Loopback>,
) -> (Peer, Peer) {
    let asked = ask(from, b, b"who?");
    asked.cr.accept(Some(to), b"me").unwrap();
    let (number, there) = answer(a, from);
    assert_eq!(number, DatagramEvent::Established);
    let (number, back) = answer(b, to);
    assert_eq!(number, DatagramEvent::Established);
    asked.psp.free().unwrap();
    (there, back)
}

fn qpn(peer: Peer) -> u32 {
    peer.info().unwrap().peer.unwrap().0
}

fn send(
    ep: &'static Ep<Loopback>,
    to: Peer,
    memory: &Memory,
    length: u32,
    cookie: u64,
) -> Result<(), Error> {
    ep.post_send_ud(&[memory.piece(0, length)], to, qpn(to), cookie, NONE)
}

#[test]
fn both_sides_resolve_each_other_and_send() {
    let (a, b) = (side(1, 21), side(2, 21));
    let (from, to) = (ep(&a), ep(&b));
    assert_eq!(from.status().0, EpState::Unconnected);
    let (there, back) = meet(&a, from, &b, to);
    assert_eq!(from.status().0, EpState::Connected);
    assert_eq!(there.private_data().to_vec(), b"me");
    assert_eq!(back.private_data().to_vec(), b"who?");
    let (info, answering) = (there.info().unwrap(), back.info().unwrap());
    assert!(!info.passive && answering.passive);
    assert_eq!(info.peer.unwrap().1.ip(), b.address);
    assert_eq!(answering.peer.unwrap().1.ip(), a.address);

    for (one, source, target, way) in [(&a, from, to, there), (&b, to, from, back)] {
        let other = if std::ptr::eq(one, &a) { &b } else { &a };
        let text = one.lmr(leak(b"datagram"), MemPriv::LOCAL_READ);
        let room = leak(&[7; 64]);
        let into = other.lmr(room, MemPriv::LOCAL_WRITE);
        target.post_recv(&[into.piece(0, 64)], 5, NONE).unwrap();
        send(source, way, &text, 8, 6).unwrap();
        let sent = dto(one.request);
        assert_eq!(
            (sent.cookie, sent.status, sent.op, sent.length),
            (6, DtoStatus::Success, DtoOp::SendUd, 8)
        );
        let got = dto(other.recv);
        assert_eq!(
            (got.cookie, got.status, got.op, got.length),
            (5, DtoStatus::Success, DtoOp::ReceiveUd, u64::from(ROOM) + 8)
        );
        assert_eq!(got.ep, target.handle());
        assert_eq!(&room[40..48], b"datagram");
        assert_eq!(room[48], 7, "nothing behind it is touched");
    }
}

#[test]
fn one_endpoint_has_many_peers_and_all_endpoints_of_the_ia_may_use_them() {
    let (a, b) = (side(1, 22), side(2, 22));
    let (from, other) = (ep(&a), ep(&a));
    let peers: Vec<_> = (0..4).map(|_| ep(&b)).collect();
    let ways: Vec<_> = peers.iter().map(|to| meet(&a, from, &b, to).0).collect();
    let text = a.lmr(leak(b"x"), MemPriv::LOCAL_READ);
    let room = b.lmr(leak(&[0; 64]), MemPriv::LOCAL_WRITE);
    for (to, way) in peers.iter().zip(&ways) {
        to.post_recv(&[room.piece(0, 64)], 1, NONE).unwrap();
        // A send needs no connection.
        send(other, way, &text, 1, 2).unwrap();
        assert_eq!(dto(b.recv).ep, to.handle());
        assert_eq!(done(a.request), (2, DtoStatus::Success));
    }
    let stranger = side(3, 22);
    let mine = stranger.lmr(leak(b"x"), MemPriv::LOCAL_READ);
    let refused = send(ep(&stranger), ways[0], &mine, 1, 3).unwrap_err();
    assert_eq!(refused.kind(), Some(Kind::InvalidHandle));
}

#[test]
fn a_rejection_has_private_data_and_the_endpoint_can_retry() {
    let (a, b) = (side(1, 23), side(2, 23));
    let (from, to) = (ep(&a), ep(&b));
    let asked = ask(from, &b, b"please");
    assert_eq!(asked.cr.private_data().to_vec(), b"please");
    asked.cr.reject(b"no").unwrap();
    let (number, refused) = answer(&a, from);
    assert_eq!(number, DatagramEvent::Rejected);
    assert_eq!(refused.private_data().to_vec(), b"no");
    assert_eq!(refused.info().unwrap().peer, None);
    assert_eq!(from.status().0, EpState::Unconnected);
    refused.release(from, Half::Context).unwrap();
    assert!(refused.release(from, Half::Context).is_err());
    meet(&a, from, &b, to);
}

#[test]
fn no_listener_no_route_and_no_answer_are_failures() {
    let (a, b) = (side(1, 24), side(2, 24));
    let from = ep(&a);
    for address in [b.address, "127.0.9.24".parse().unwrap()] {
        from.connect(address, 9, None, b"", 0, 0).unwrap();
        assert_eq!(answer(&a, from).0, DatagramEvent::Failed);
    }
    // A request without an answer in time.
    let psp = Sp::psp_create(b.ia, None, b.cr, false).unwrap();
    let qual = psp.info().unwrap().conn_qual;
    let time = Some(Duration::from_millis(50));
    from.connect(b.address, qual, time, b"", 0, 0).unwrap();
    assert_eq!(answer(&a, from).0, DatagramEvent::Failed);
    // The answer comes after the timeout.
    let cr = request(b.cr);
    let to = ep(&b);
    cr.accept(Some(to), b"").unwrap();
    assert_eq!(answer(&b, to).0, DatagramEvent::Established);
    assert!(empty(a.conn));
    assert_eq!(from.status().0, EpState::Unconnected);
}

#[test]
fn a_listener_that_comes_late_is_found() {
    let (a, b) = (side(1, 32), side(2, 32));
    let (from, to) = (ep(&a), ep(&b));
    from.connect(b.address, 77, None, b"patience", 0, 0)
        .unwrap();
    let psp = Sp::psp_create(b.ia, Some(77), b.cr, false).unwrap();
    let cr = request(b.cr);
    assert_eq!(cr.private_data().to_vec(), b"patience");
    cr.accept(Some(to), b"").unwrap();
    assert_eq!(answer(&a, from).0, DatagramEvent::Established);
    psp.free().unwrap();
}

#[test]
fn connections_and_datagrams_do_not_mix() {
    let (a, b) = (side(1, 25), side(2, 25));
    let (from, reliable) = (ep(&a), b.ep());
    let asked = ask(from, &b, b"");
    assert_eq!(asked.cr.accept(Some(reliable), b""), Err(Error::arg(2)));
    let to = ep(&b);
    asked.cr.accept(Some(to), b"").unwrap();
    let (_, way) = answer(&a, from);
    let text = a.lmr(leak(b"x"), MemPriv::ALL);
    let unsupported = Err(Error::of(Kind::ModelNotSupported));
    let iov = [text.piece(0, 1)];
    assert_eq!(from.post_send(&iov, 1, NONE), unsupported);
    assert_eq!(
        from.post_rdma_write(&iov, 1, &text.remote(0, 1), NONE),
        unsupported
    );
    // Connected operations stay unsupported after a datagram, and so do datagrams on a connected endpoint.
    send(from, way, &text, 1, 2).unwrap();
    assert_eq!(from.post_send(&iov, 1, NONE), unsupported);
    let elsewhere = a.ep();
    let refused = elsewhere.post_send_ud(&iov, way, qpn(way), 3, NONE);
    assert_eq!(refused, unsupported);
}

#[test]
fn limits_and_flags() {
    let (a, b) = (side(1, 26), side(2, 26));
    let (from, to) = (ep(&a), ep(&b));
    let (way, _) = meet(&a, from, &b, to);
    let most = a.ia.attributes().unwrap().max_datagram;
    let text = a.lmr(leak(&vec![1; most as usize + 1]), MemPriv::LOCAL_READ);
    let long = send(from, way, &text, most + 1, 1);
    assert_eq!(long, Err(Error::of(Kind::LengthError)));
    let iov = [text.piece(0, 1); 5];
    let segments = from.post_send_ud(&iov, way, qpn(way), 1, NONE);
    assert_eq!(segments, Err(Error::arg(3)));
    let one = [text.piece(0, 1)];
    let flags = CompletionFlags::UNSIGNALLED;
    let refused = from.post_send_ud(&one, way, qpn(way), 1, flags);
    assert_eq!(refused, Err(Error::arg(7)));
    // More sends than the ring has room for: the completions of suppressed ones free their slots.
    for _ in 0..100 {
        from.post_send_ud(&one, way, qpn(way), 1, CompletionFlags::SUPPRESS)
            .unwrap();
    }
    assert!(empty(a.request));
    for _ in 0..16 {
        send(from, way, &text, most, 4).unwrap();
    }
    let full = send(from, way, &text, 1, 4).unwrap_err();
    assert_eq!(full.kind(), Some(Kind::InsufficientResources));
    assert_eq!(done(a.request), (4, DtoStatus::Success));
    send(from, way, &text, 1, 4).unwrap();
}

#[test]
fn without_a_receive_or_with_a_short_one() {
    let (a, b) = (side(1, 27), side(2, 27));
    let (from, to) = (ep(&a), ep(&b));
    let (way, _) = meet(&a, from, &b, to);
    let text = a.lmr(leak(b"12345678"), MemPriv::LOCAL_READ);
    // The datagram is lost, and the sender is not informed.
    send(from, way, &text, 8, 1).unwrap();
    assert_eq!(done(a.request), (1, DtoStatus::Success));
    assert!(empty(b.recv));
    let room = b.lmr(leak(&[0; 64]), MemPriv::LOCAL_WRITE);
    to.post_recv(&[room.piece(0, ROOM + 7)], 2, NONE).unwrap();
    send(from, way, &text, 8, 3).unwrap();
    assert_eq!(done(a.request), (3, DtoStatus::Success));
    let got = dto(b.recv);
    assert_eq!(
        (got.cookie, got.status, got.op),
        (2, DtoStatus::LocalLength, DtoOp::ReceiveUd)
    );
}

#[test]
fn returned_handles_are_dead_and_the_others_end_with_the_endpoint() {
    let (a, b) = (side(1, 28), side(2, 28));
    let (from, to) = (ep(&a), ep(&b));
    let (way, _) = meet(&a, from, &b, to);
    let text = a.lmr(leak(b"x"), MemPriv::LOCAL_READ);
    way.release(from, Half::Context).unwrap();
    send(from, way, &text, 1, 1).unwrap();
    let number = qpn(way);
    way.release(from, Half::Handle).unwrap();
    let gone = from.post_send_ud(&[text.piece(0, 1)], way, number, 1, NONE);
    assert_eq!(gone.unwrap_err().kind(), Some(Kind::InvalidHandle));
    assert!(way.release(from, Half::Handle).is_err());
    let (second, _) = meet(&a, from, &b, to);
    from.free().unwrap();
    assert!(!second.head.alive());
    to.free().unwrap();
    // The handles end with their endpoints: the IA closes gracefully once the side's own objects are freed.
    text.lmr.free().unwrap();
    for evd in [a.recv, a.request, a.conn, a.cr] {
        evd.free().unwrap();
    }
    a.pz.free().unwrap();
    a.ia.close(Close::Graceful).unwrap();
}

#[test]
fn a_disconnect_flushes_and_a_reset_makes_the_endpoint_usable() {
    let (a, b) = (side(1, 29), side(2, 29));
    let (from, to) = (ep(&a), ep(&b));
    let state = from.disconnect(Close::Abrupt).unwrap_err();
    assert_eq!(state.kind(), Some(Kind::InvalidState));
    let (way, _) = meet(&a, from, &b, to);
    let text = a.lmr(leak(b"x"), MemPriv::LOCAL_READ);
    from.post_recv(&[], 1, NONE).unwrap();
    from.disconnect(Close::Abrupt).unwrap();
    assert_eq!(
        number(a.conn),
        dat_core::event::ConnectionEvent::Disconnected
    );
    let got = dto(a.recv);
    assert_eq!(
        (got.cookie, got.status, got.op),
        (1, DtoStatus::Flushed, DtoOp::ReceiveUd)
    );
    let refused = send(from, way, &text, 1, 2).unwrap_err();
    assert_eq!(refused.kind(), Some(Kind::InvalidState));
    from.reset().unwrap();
    meet(&a, from, &b, to);
    send(from, way, &text, 1, 3).unwrap();
    assert_eq!(done(a.request), (3, DtoStatus::Success));
}

#[test]
fn receives_may_come_from_a_shared_queue() {
    let (a, b) = (side(1, 30), side(2, 30));
    let attr = SrqAttr {
        max_recv_dtos: 8,
        max_recv_iov: 1,
        low_watermark: None,
    };
    let srq = Srq::create(b.ia, b.pz, &attr).unwrap();
    let from = ep(&a);
    let to = Ep::create(b.ia, b.parts(Some(srq)), Some(&datagram_attr())).unwrap();
    let (way, _) = meet(&a, from, &b, to);
    let room = leak(&[0; 64]);
    let into = b.lmr(room, MemPriv::LOCAL_WRITE);
    srq.post_recv(&[into.piece(0, 64)], 9).unwrap();
    let text = a.lmr(leak(b"shared"), MemPriv::LOCAL_READ);
    send(from, way, &text, 6, 1).unwrap();
    let got = dto(b.recv);
    assert_eq!((got.cookie, got.op), (9, DtoOp::ReceiveUd));
    assert_eq!(got.ep, to.handle());
    assert_eq!(&room[40..46], b"shared");
}

#[test]
fn a_provider_creates_datagram_endpoints_too() {
    let (a, b) = (side(1, 31), side(2, 31));
    let from = ep(&a);
    let psp = Sp::psp_create(b.ia, None, b.cr, true).unwrap();
    let qual = psp.info().unwrap().conn_qual;
    from.connect(b.address, qual, None, b"", 0, 0).unwrap();
    let cr = request(b.cr);
    let own = cr.info().unwrap().local_ep.unwrap();
    assert!(own.is_datagram());
    assert_eq!(own.status().0, EpState::TentativeConnectionPending);
    cr.reject(b"").unwrap();
    assert_eq!(answer(&a, from).0, DatagramEvent::Rejected);
    assert!(!own.head.alive());
}
