//! The settings `fail=` and `delay_ms=`, and connection attempts that fail.

mod side;

use std::time::{Duration, Instant};

use dat_core::error::{Error, Kind, Subtype};
use dat_core::evd::Evd;
use dat_core::event::{ConnectionEvent, DtoStatus};
use dat_core::flags::{EvdFlags, MemPriv, VaType};
use dat_core::lmr::{Lmr, Source};
use dat_core::pz::Pz;
use dat_core::sp::Sp;
use side::{NONE, Side, attr, done, number, open, pair, request};

const TEN_SECONDS: Option<Duration> = Some(Duration::from_secs(10));

fn device<T>(result: Result<T, Error>) -> Error {
    result.err().expect("fails on request")
}

#[test]
fn each_call_fails_on_request() {
    let expected = Error::resource(Subtype::ResourceDevice);
    assert_eq!(device(open("127.0.3.1 0 fail=open")), expected);
    let ia = open("127.0.3.1 0 fail=pz").unwrap();
    assert_eq!(device(Pz::create(ia)), expected);
    let ia = open("127.0.3.1 0 fail=register").unwrap();
    let pz = Pz::create(ia).unwrap();
    let bytes = [0_u8; 4];
    let source = Source::Virtual(bytes.as_ptr() as usize);
    let lmr = Lmr::create(ia, source, 4, pz, MemPriv::LOCAL_READ, VaType::Va);
    assert_eq!(device(lmr), expected);
    let ia = open("127.0.3.1 0 fail=listen").unwrap();
    let cr = Evd::create(ia, 4, None, EvdFlags::CR).unwrap();
    assert_eq!(device(Sp::psp_create(ia, None, cr, false)), expected);
    let side = Side::open("127.0.3.1 0 fail=qp");
    let ep = dat_core::ep::Ep::create(side.ia, side.parts(None), Some(&attr()));
    assert_eq!(device(ep), expected);
    let wrong = open("127.0.3.1 0 fail=sometimes");
    assert_eq!(device(wrong), Error::of(Kind::InvalidParameter));
}

#[test]
fn failed_connection_attempts_end_in_the_right_event() {
    let server = Side::open("127.0.3.2");
    let psp = Sp::psp_create(server.ia, None, server.cr, false).unwrap();
    let qual = psp.info().unwrap().conn_qual;
    let cases = [
        ("", "127.0.3.2", qual + 1, ConnectionEvent::NonPeerRejected),
        ("", "127.0.3.254", qual, ConnectionEvent::Unreachable),
        (
            "fail=route",
            "127.0.3.2",
            qual,
            ConnectionEvent::Unreachable,
        ),
    ];
    for (settings, to, qual, event) in cases {
        let client = Side::open(&format!("127.0.3.3 0 {settings}"));
        let ep = client.ep();
        ep.connect(to.parse().unwrap(), qual, TEN_SECONDS, b"", 0, 0)
            .unwrap();
        assert_eq!(number(client.conn), event, "{settings} {to}");
    }
    let client = Side::open("127.0.3.3 0 fail=answer");
    let soon = Some(Duration::from_millis(20));
    let ep = client.ep();
    ep.connect(server.address, qual, soon, b"", 0, 0).unwrap();
    assert_eq!(number(client.conn), ConnectionEvent::TimedOut);
    let client = Side::open("127.0.3.3 0 fail=connect");
    let ep = client.ep();
    assert!(ep.connect(server.address, qual, None, b"", 0, 0).is_err());
}

#[test]
fn a_request_is_rejected_dropped_or_given_up() {
    let server = Side::open("127.0.3.4");
    let client = Side::open("127.0.3.5");
    let psp = Sp::psp_create(server.ia, None, server.cr, false).unwrap();
    let qual = psp.info().unwrap().conn_qual;
    let again = Sp::psp_create(server.ia, Some(qual), server.cr, false);
    assert_eq!(device(again), Error::of(Kind::ConnQualInUse));
    let ep = client.ep();
    ep.connect(server.address, qual, None, b"", 0, 0).unwrap();
    request(server.cr).reject(b"no").unwrap();
    assert_eq!(number(client.conn), ConnectionEvent::PeerRejected);
    assert_eq!(ep.private_data().to_vec(), b"no");
    // The answer comes after the timeout of the request.
    let late = client.ep();
    let soon = Some(Duration::from_millis(1));
    late.connect(server.address, qual, soon, b"", 0, 0).unwrap();
    assert_eq!(number(client.conn), ConnectionEvent::TimedOut);
    let to = server.ep();
    to.post_recv(&[], 9, NONE).unwrap();
    request(server.cr).accept(Some(to), b"").unwrap();
    assert_eq!(number(server.conn), ConnectionEvent::AcceptCompletionError);
    assert_eq!(done(server.recv), (9, DtoStatus::Flushed));
    // The close of an IA refuses the requests at its service points.
    let orphan = client.ep();
    orphan
        .connect(server.address, qual, None, b"", 0, 0)
        .unwrap();
    let _never_answered = request(server.cr);
    server.ia.close(dat_core::flags::Close::Abrupt).unwrap();
    assert_eq!(number(client.conn), ConnectionEvent::NonPeerRejected);
}

#[test]
fn a_broken_wire_breaks_the_connection_and_posts_can_fail() {
    let p = pair(20, "fail=wire");
    p.from.post_send(&[], 1, NONE).unwrap();
    assert_eq!(done(p.a.request), (1, DtoStatus::Transport));
    assert_eq!(number(p.a.conn), ConnectionEvent::Broken);
    let p = pair(21, "fail=post");
    let error = p.from.post_send(&[], 1, NONE).unwrap_err();
    assert_eq!(error.kind(), Some(Kind::InsufficientResources));
}

#[test]
fn connection_events_have_the_requested_delay() {
    let begun = Instant::now();
    pair(22, "delay_ms=20");
    // The delay of the request and that of the answer.
    assert!(begun.elapsed() >= Duration::from_millis(40));
}
