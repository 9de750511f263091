//! Datagram endpoints over the loopback: a disconnect ends the lookups that have no answer yet, and receives of an SRQ stay
//! datagrams when their endpoint is freed.
#![allow(missing_docs, reason = "a test")]

#[path = "../../examples/loopback/tests/side/mod.rs"]
mod side;

use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;

use dat_core::ah::{Ah, Half};
use dat_core::attributes::{EpAttr, SrqAttr};
use dat_core::ep::{Ep, EpChange, EpState};
use dat_core::error::{Error, Subtype};
use dat_core::event::{ConnectionEvent, DatagramEvent, DtoOp, DtoStatus, Event};
use dat_core::flags::{Close, CompletionFlags, MemPriv};
use dat_core::sp::Sp;
use dat_core::srq::Srq;
use dat_core::transport::Transport;
use dat_loopback::Loopback;
use side::{NONE, Side, attr, done, dto, empty, leak, request, wait};

/// One test runs at a time: they count the address handles of the process.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sides(last: u8) -> (Side, Side) {
    let open = |host: u8| Side::open(&format!("127.0.{host}.{last}"));
    (open(1), open(2))
}

fn datagrams() -> EpAttr {
    EpAttr {
        service_type: 1,
        ..attr()
    }
}

fn ep(side: &Side) -> &'static Ep<Loopback> {
    Ep::create(side.ia, side.parts(None), Some(&datagrams())).unwrap()
}

/// Returns the number of address handles that are not freed.
fn handles() -> usize {
    let mut alive = 0;
    Loopback::arenas()
        .ah
        .for_each(|_, ah| alive += usize::from(ah.head.alive()));
    alive
}

/// Waits for the end of a lookup of `ep`.
fn answer(side: &Side, ep: &'static Ep<Loopback>) -> (DatagramEvent, &'static Ah<Loopback>) {
    match wait(side.conn) {
        Event::Datagram { number, ep: of, ah } => {
            assert_eq!(of, ep.handle());
            (number, Loopback::arenas().ah.from_addr(ah).unwrap())
        }
        other => panic!("{other:?} is not a datagram event"),
    }
}

fn ask(from: &'static Ep<Loopback>, b: &Side, qual: u64, data: &[u8]) {
    from.connect(b.address, qual, None, data, 0, 0).unwrap();
}

/// Looks up an endpoint of `b`; returns its address handle.
fn meet(
    a: &Side,
    from: &'static Ep<Loopback>,
    b: &Side,
    to: &'static Ep<Loopback>,
    qual: u64,
) -> &'static Ah<Loopback> {
    ask(from, b, qual, b"meet");
    request(b.cr).accept(Some(to), b"met").unwrap();
    let (number, there) = answer(a, from);
    assert_eq!(number, DatagramEvent::Established);
    assert_eq!(answer(b, to).0, DatagramEvent::Established);
    there
}

fn disconnected(side: &Side, ep: &'static Ep<Loopback>) {
    let expected = Event::Connection {
        number: ConnectionEvent::Disconnected,
        ep: ep.handle(),
    };
    assert_eq!(wait(side.conn), expected);
}

/// dat_ep_disconnect: "During an attempt to connect both flags end the attempt."
#[test]
fn a_disconnect_ends_the_lookups_without_an_answer() {
    let _alone = alone();
    let (a, b) = sides(171);
    let (from, to) = (ep(&a), ep(&b));
    let psp = Sp::psp_create(b.ia, Some(171), b.cr, false).unwrap();
    for how in [Close::Abrupt, Close::Graceful] {
        meet(&a, from, &b, to, 171);
        let before = handles();
        ask(from, &b, 171, b"old");
        let old = request(b.cr);
        from.disconnect(how).unwrap();
        disconnected(&a, from);
        assert_eq!(handles(), before, "nothing of the lookup is left");
        from.reset().unwrap();
        old.accept(Some(to), b"late").unwrap();
        assert_eq!(answer(&b, to).0, DatagramEvent::Established);
        // The transport has reported the late answer before that of a later lookup.
        ask(from, &b, 171, b"new");
        let new = request(b.cr);
        assert_eq!(from.status().0, EpState::Unconnected);
        new.reject(b"no").unwrap();
        assert_eq!(answer(&a, from).0, DatagramEvent::Rejected);
        assert_eq!(from.status().0, EpState::Unconnected);
    }
    psp.free().unwrap();
}

#[test]
fn a_disconnect_ends_the_repetition_of_lookups() {
    let _alone = alone();
    let (a, b) = sides(172);
    let (from, to) = (ep(&a), ep(&b));
    let psp = Sp::psp_create(b.ia, Some(172), b.cr, false).unwrap();
    meet(&a, from, &b, to, 172);
    // Nothing listens there yet: the lookup is repeated from time to time.
    ask(from, &b, 173, b"old");
    from.disconnect(Close::Abrupt).unwrap();
    disconnected(&a, from);
    from.reset().unwrap();
    // Each of its repetitions comes after one of the old lookup's.
    ask(from, &b, 173, b"new");
    let late = Sp::psp_create(b.ia, Some(173), b.cr, false).unwrap();
    let asked = request(b.cr);
    assert_eq!(asked.private_data().to_vec(), b"new");
    asked.accept(Some(to), b"").unwrap();
    assert_eq!(answer(&a, from).0, DatagramEvent::Established);
    assert!(empty(a.conn) && empty(b.cr));
    late.free().unwrap();
    psp.free().unwrap();
}

#[test]
fn a_disconnect_ends_the_accepts_without_an_answer() {
    let _alone = alone();
    // The answer to the accepting side takes a while, in which it disconnects.
    let (a, b) = (
        Side::open("127.0.1.174"),
        Side::open("127.0.2.174 0 delay_ms=100"),
    );
    let (from, to) = (ep(&a), ep(&b));
    let psp = Sp::psp_create(b.ia, Some(174), b.cr, false).unwrap();
    meet(&a, from, &b, to, 174);
    ask(from, &b, 174, b"old");
    let old = request(b.cr);
    let before = handles();
    old.accept(Some(to), b"").unwrap();
    to.disconnect(Close::Abrupt).unwrap();
    match wait(b.conn) {
        // A machine with a high load: the answer came first.
        Event::Datagram { .. } => disconnected(&b, to),
        _ => assert_eq!(handles(), before, "nothing of the accept is left"),
    }
    to.reset().unwrap();
    assert_eq!(answer(&a, from).0, DatagramEvent::Established);
    // Reported after the old one.
    meet(&a, from, &b, to, 174);
    assert!(empty(b.conn));
    psp.free().unwrap();
}

/// An answer that arrives while another thread disconnects gives an event before DISCONNECTED, or none.
#[test]
fn no_answer_follows_the_event_of_a_disconnect() {
    let _alone = alone();
    let (a, b) = sides(175);
    let (from, to) = (ep(&a), ep(&b));
    let psp = Sp::psp_create(b.ia, Some(175), b.cr, false).unwrap();
    for _ in 0..200 {
        meet(&a, from, &b, to, 175);
        ask(from, &b, 175, b"old");
        let old = request(b.cr);
        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                old.accept(Some(to), b"").unwrap();
            });
            start.wait();
            from.disconnect(Close::Abrupt).unwrap();
        });
        assert_eq!(answer(&b, to).0, DatagramEvent::Established);
        match wait(a.conn) {
            Event::Datagram { .. } => disconnected(&a, from),
            other => assert!(matches!(other, Event::Connection { .. }), "{other:?}"),
        }
        from.reset().unwrap();
        ask(from, &b, 175, b"new");
        request(b.cr).reject(b"").unwrap();
        let (number, refused) = answer(&a, from);
        assert_eq!(number, DatagramEvent::Rejected);
        refused.release(from, Half::Context).unwrap();
        assert!(empty(a.conn));
    }
    psp.free().unwrap();
}

/// DAPL frees what a failed attempt leaves, so programs do not.
#[test]
fn a_program_that_frees_no_failed_attempt_keeps_the_latest_ones_only() {
    let _alone = alone();
    let (a, b) = sides(177);
    let from = ep(&a);
    let psp = Sp::psp_create(b.ia, Some(177), b.cr, false).unwrap();
    let before = handles();
    let mut last = None;
    for _ in 0..200 {
        ask(from, &b, 177, b"");
        request(b.cr).reject(b"no").unwrap();
        let (number, refused) = answer(&a, from);
        assert_eq!(number, DatagramEvent::Rejected);
        assert_eq!(refused.private_data().to_vec(), b"no");
        last = Some(refused);
    }
    assert_eq!(handles() - before, 64);
    last.unwrap().release(from, Half::Context).unwrap();
    assert_eq!(handles() - before, 63);
    from.free().unwrap();
    assert_eq!(handles(), before);
    psp.free().unwrap();
}

#[test]
fn receives_of_an_srq_are_datagrams_after_their_endpoint_is_freed() {
    let _alone = alone();
    let (a, b) = sides(176);
    let limits = SrqAttr {
        max_recv_dtos: 8,
        max_recv_iov: 1,
        low_watermark: None,
    };
    let srq = Srq::create(b.ia, b.pz, &limits).unwrap();
    let from = ep(&a);
    let to = Ep::create(b.ia, b.parts(Some(srq)), Some(&datagrams())).unwrap();
    let psp = Sp::psp_create(b.ia, Some(176), b.cr, false).unwrap();
    let there = meet(&a, from, &b, to, 176);
    let into = b.lmr(leak(&[0; 64]), MemPriv::LOCAL_WRITE);
    let text = a.lmr(leak(b"late"), MemPriv::LOCAL_READ);
    srq.post_recv(&[into.piece(0, 64)], 31).unwrap();
    let qpn = there.info().unwrap().peer.unwrap().0;
    from.post_send_ud(&[text.piece(0, 4)], there, qpn, 1, NONE)
        .unwrap();
    assert_eq!(done(a.request), (1, DtoStatus::Success));
    to.free().unwrap();
    let late = dto(b.recv);
    assert_eq!(
        (late.cookie, late.ep, late.status),
        (31, srq.handle(), DtoStatus::Success)
    );
    assert_eq!(late.op, DtoOp::ReceiveUd);
    psp.free().unwrap();
}

/// dat_ep_modify: a new queue pair would lose what is posted to the old one.
#[test]
fn an_endpoint_whose_datagrams_are_outstanding_keeps_its_queue_pair() {
    let _alone = alone();
    let (a, b) = sides(178);
    let (from, to, unconnected) = (ep(&a), ep(&b), ep(&a));
    let psp = Sp::psp_create(b.ia, Some(178), b.cr, false).unwrap();
    let there = meet(&a, from, &b, to, 178);
    let (qpn, _) = there.info().unwrap().peer.unwrap();
    unconnected.post_send_ud(&[], there, qpn, 5, NONE).unwrap();
    let larger = EpChange {
        max_request_dtos: Some(32),
        ..EpChange::default()
    };
    let refused = Error::state(Subtype::InvalidStateEpUnconnected);
    assert_eq!(unconnected.modify(&larger), Err(refused));
    assert_eq!(done(a.request), (5, DtoStatus::Success));
    unconnected.modify(&larger).unwrap();
    psp.free().unwrap();
}

/// dat_ep_disconnect: a graceful disconnect waits for the requests, also for those that give no event. A datagram endpoint posts no
/// RDMA to notice their end.
#[test]
fn a_graceful_disconnect_waits_for_datagrams_without_an_event() {
    let _alone = alone();
    let (a, b) = sides(179);
    let (from, to) = (ep(&a), ep(&b));
    let psp = Sp::psp_create(b.ia, Some(179), b.cr, false).unwrap();
    for datagrams in 0..4 {
        let there = meet(&a, from, &b, to, 179);
        let (qpn, _) = there.info().unwrap().peer.unwrap();
        for n in 0..datagrams {
            let suppress = CompletionFlags::SUPPRESS;
            from.post_send_ud(&[], there, qpn, n, suppress).unwrap();
        }
        from.disconnect(Close::Graceful).unwrap();
        disconnected(&a, from);
        assert!(empty(a.request));
        from.reset().unwrap();
    }
    psp.free().unwrap();
}
