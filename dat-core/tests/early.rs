//! Messages that are received before the transport reports the connection: the event that the connection is established comes first.
#![allow(missing_docs, reason = "a test")]

mod null;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dat_core::cno::{Agent, Cno, CnoProxy};
use dat_core::cr::Cr;
use dat_core::ep::{Ep, EpParts, EpState};
use dat_core::evd::Evd;
use dat_core::event::{ConnectionEvent, Event, RawHandle};
use dat_core::flags::{Close, CompletionFlags, EvdFlags};
use dat_core::head::raw;
use dat_core::ia::Ia;
use dat_core::pz::Pz;
use dat_core::sp::Sp;
use dat_core::transport::Transport;
use dat_core::upcall::ConnOutcome;
use null::{Events, Null, Qp, eventually, open, qp, request};

const NOW: Option<Duration> = Some(Duration::ZERO);
const LONG: Option<Duration> = Some(Duration::from_secs(10));
const NONE: CompletionFlags = CompletionFlags::empty();

/// An adapter with an EVD for completions and one for connection events; they may be the same.
struct Side {
    ia: &'static Ia<Null>,
    pz: &'static Pz<Null>,
    received: &'static Evd<Null>,
    connected: &'static Evd<Null>,
}

impl Side {
    fn with_one_evd() -> Self {
        let ia = open();
        let evd = Evd::create(ia, 20, None, EvdFlags::DTO | EvdFlags::CONNECTION).unwrap();
        Self::of(ia, evd, evd)
    }

    fn with_two_evds() -> Self {
        let ia = open();
        let received = Evd::create(ia, 20, None, EvdFlags::DTO).unwrap();
        let connected = Evd::create(ia, 20, None, EvdFlags::CONNECTION).unwrap();
        Self::of(ia, received, connected)
    }

    fn of(
        ia: &'static Ia<Null>,
        received: &'static Evd<Null>,
        connected: &'static Evd<Null>,
    ) -> Self {
        Self {
            ia,
            pz: Pz::create(ia).unwrap(),
            received,
            connected,
        }
    }

    /// Creates an endpoint with receives of the cookies 1 to 4.
    fn ep(&self) -> (&'static Ep<Null>, Arc<Qp>) {
        let parts = EpParts {
            pz: Some(self.pz),
            recv_evd: Some(self.received),
            request_evd: Some(self.received),
            connect_evd: Some(self.connected),
            srq: None,
        };
        let ep = Ep::create(self.ia, parts, None).unwrap();
        for cookie in 1..=4 {
            ep.post_recv(&[][..], cookie, NONE).unwrap();
        }
        (ep, qp(ep))
    }

    /// Creates an endpoint and accepts a connection with it.
    fn accepted(&self) -> (&'static Ep<Null>, Arc<Qp>) {
        static QUAL: AtomicU64 = AtomicU64::new(100);
        let qual = QUAL.fetch_add(1, Ordering::Relaxed);
        let requests = Evd::create(self.ia, 4, None, EvdFlags::CR).unwrap();
        Sp::psp_create(self.ia, Some(qual), requests, false).unwrap();
        drop(request(qual));
        let mut sink = Events::default();
        requests.dequeue(&mut sink).unwrap();
        let Event::ConnectionRequest { cr, .. } = sink.0[0] else {
            panic!("{sink:?}");
        };
        let cr: &Cr<Null> = Null::arenas().cr.from_addr(cr).unwrap();
        let (ep, qp) = self.ep();
        cr.accept(Some(ep), b"").unwrap();
        (ep, qp)
    }

    /// Creates an endpoint that connects.
    fn connecting(&self) -> (&'static Ep<Null>, Arc<Qp>) {
        let (ep, qp) = self.ep();
        ep.connect(IpAddr::V4(Ipv4Addr::LOCALHOST), 1, None, &[], 0, 0)
            .unwrap();
        (ep, qp)
    }
}

/// An event as this test compares it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Got {
    Connection(ConnectionEvent, RawHandle),
    Receive(u64, RawHandle),
}
use Got::{Connection, Receive};

fn read(sink: &Events) -> Vec<Got> {
    let read = |event: &Event| match event {
        Event::Connection { number, ep } => Connection(*number, *ep),
        Event::Dto(dto) => Receive(dto.cookie, dto.ep),
        other => panic!("{other:?}"),
    };
    sink.0.iter().map(read).collect()
}

fn waited(evd: &'static Evd<Null>) -> Got {
    let mut sink = Events::default();
    evd.wait(LONG, 1, &mut sink).unwrap();
    read(&sink)[0]
}

fn all(evd: &'static Evd<Null>) -> Vec<Got> {
    let mut sink = Events::default();
    while evd.dequeue(&mut sink).is_ok() {}
    read(&sink)
}

#[test]
fn the_first_message_implies_the_accepted_connection() {
    let side = Side::with_one_evd();
    let (ep, qp) = side.accepted();
    assert_eq!(ep.status().0, EpState::CompletionPending);
    qp.receive(false);
    qp.receive(false);
    let established = Connection(ConnectionEvent::Established, raw(ep));
    assert_eq!(waited(side.connected), established);
    assert_eq!(ep.status().0, EpState::Connected);
    assert_eq!(waited(side.received), Receive(1, raw(ep)));
    ep.post_send(&[], 9, NONE).unwrap();
    assert_eq!(waited(side.received), Receive(2, raw(ep)));
    assert_eq!(
        qp.implied.load(Ordering::SeqCst),
        1,
        "the transport knows it"
    );
    // The transport's own report has no second effect.
    qp.establish();
    qp.receive(false);
    assert_eq!(all(side.received), [Receive(3, raw(ep))]);
    side.ia.close(Close::Abrupt).unwrap();
}

#[test]
fn on_two_evds_the_connection_is_known_before_the_message() {
    let side = Side::with_two_evds();
    let (ep, qp) = side.accepted();
    qp.receive(false);
    assert_eq!(waited(side.received), Receive(1, raw(ep)));
    let established = Connection(ConnectionEvent::Established, raw(ep));
    assert_eq!(all(side.connected), [established]);
    ep.post_send(&[], 9, NONE).unwrap();
    side.ia.close(Close::Abrupt).unwrap();
}

/// Only the transport has the private data of the active side's event.
#[test]
fn an_active_endpoint_waits_for_the_report_of_the_transport() {
    let side = Side::with_one_evd();
    let (ep, qp) = side.connecting();
    qp.receive(false);
    assert_eq!(all(side.received), []);
    let mut sink = Events::default();
    assert!(
        side.received.wait(NOW, 1, &mut sink).is_err(),
        "the message is not there yet"
    );
    qp.receive(false);
    qp.establish();
    qp.receive(false);
    let established = Connection(ConnectionEvent::Established, raw(ep));
    let messages = [1, 2, 3].map(|cookie| Receive(cookie, raw(ep)));
    assert_eq!(all(side.received), [&[established][..], &messages].concat());
    assert_eq!(qp.implied.load(Ordering::SeqCst), 0);
    side.ia.close(Close::Abrupt).unwrap();
}

#[test]
fn a_waiter_is_woken_when_the_connection_is_established() {
    let side = Side::with_two_evds();
    let (ep, qp) = side.connecting();
    let received = side.received;
    let waiter = std::thread::spawn(move || waited(received));
    qp.receive(false);
    eventually("the waiter waits", || {
        let second = received.wait(NOW, 20, &mut Events::default());
        second.unwrap_err().error
            != dat_core::error::Error::of(dat_core::error::Kind::TimeoutExpired)
    });
    qp.establish();
    assert_eq!(waiter.join().unwrap(), Receive(1, raw(ep)));
    side.ia.close(Close::Abrupt).unwrap();
}

#[test]
fn other_endpoints_on_the_evd_are_not_held_up_and_the_count_of_events_is_exact() {
    let side = Side::with_one_evd();
    let (other, others) = side.connecting();
    others.establish();
    assert_eq!(all(side.received).len(), 1);
    let (ep, qp) = side.connecting();
    for _ in 0..2 {
        others.receive(false);
        qp.receive(false);
    }
    let mut sink = Events::default();
    let left = side.received.wait(NOW, 1, &mut sink).unwrap();
    assert_eq!((read(&sink), left), (vec![Receive(1, raw(other))], 1));
    assert_eq!(all(side.received), [Receive(2, raw(other))]);
    qp.establish();
    assert_eq!(all(side.received).len(), 3);
    // Nothing is left of the attempt: the completions are found without the event queue again.
    qp.receive(false);
    assert!(matches!(
        side.received.wait_polled(&mut sink, None),
        dat_core::evd::Polled::Batched | dat_core::evd::Polled::Taken
    ));
    assert_eq!(ep.status().0, EpState::Connected);
    side.ia.close(Close::Abrupt).unwrap();
}

#[test]
fn messages_precede_the_end_of_the_attempt_in_which_they_came() {
    let side = Side::with_one_evd();
    let (ep, qp) = side.connecting();
    qp.receive(false);
    assert_eq!(all(side.received), []);
    ep.disconnect(Close::Abrupt).unwrap();
    let ended = Connection(ConnectionEvent::Disconnected, raw(ep));
    assert_eq!(all(side.received), [Receive(1, raw(ep)), ended]);

    let (ep, qp) = side.connecting();
    qp.receive(false);
    assert_eq!(all(side.received), []);
    qp.report(ConnOutcome::Unreachable);
    let ended = Connection(ConnectionEvent::Unreachable, raw(ep));
    assert_eq!(all(side.received), [Receive(1, raw(ep)), ended]);

    // A freed endpoint has no connection event; its message is not lost.
    let (ep, qp) = side.connecting();
    qp.receive(false);
    assert_eq!(all(side.received), []);
    ep.free().unwrap();
    assert_eq!(all(side.received), [Receive(1, raw(ep))]);
    side.received.free().unwrap_err();
    side.ia.close(Close::Abrupt).unwrap();
}

/// An agent that the messages wake frees the endpoint before the endpoint's event is posted. The consumer then gets no event of
/// that endpoint; it may have freed the EVD, too.
#[test]
fn an_endpoint_that_an_agent_frees_at_the_end_of_its_attempt_has_no_event() {
    let side = Side::with_two_evds();
    let (ep, qp) = side.connecting();
    let freed = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&freed);
    let agent = Agent {
        call: Box::new(move |_| {
            ep.free().unwrap();
            count.fetch_add(1, Ordering::SeqCst);
        }),
        instance_data: 0,
        function: 0,
    };
    let cno = Cno::create(side.ia, CnoProxy::Agent(agent)).unwrap();
    side.received.modify_cno(Some(cno)).unwrap();
    qp.receive(false);
    assert_eq!(all(side.received), []);
    ep.disconnect(Close::Abrupt).unwrap();
    assert_eq!(freed.load(Ordering::SeqCst), 1);
    assert_eq!(all(side.received), [Receive(1, raw(ep))]);
    assert_eq!(all(side.connected), []);
    side.ia.close(Close::Abrupt).unwrap();
}

#[test]
fn an_accept_that_fails_after_the_first_message_breaks_the_connection() {
    let side = Side::with_one_evd();
    let (ep, qp) = side.accepted();
    qp.receive(false);
    let established = Connection(ConnectionEvent::Established, raw(ep));
    assert_eq!(waited(side.connected), established);
    qp.report(ConnOutcome::AcceptError);
    assert_eq!(waited(side.received), Receive(1, raw(ep)));
    let broken = Connection(ConnectionEvent::Broken, raw(ep));
    // The thread that posted the first event may post this one too.
    assert_eq!(waited(side.connected), broken);
    side.ia.close(Close::Abrupt).unwrap();
}
