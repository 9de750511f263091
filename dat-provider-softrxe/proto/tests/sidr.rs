//! Resolutions of datagram services (SIDR) between two engines.

mod common;

use std::time::Duration;

use common::pair::Pair;
use softrxe_proto::{
    CmEventKind, Engine, Event, Op, QpKind, SendRequest, SidrReply, SidrRequest, Status, service_id,
};

const LONG: Duration = Duration::from_secs(200);

/// rdma_rxe sends requests from a port on which it does not listen.
#[test]
fn a_resolution_is_answered_at_the_roce_port() {
    let mut pair = Pair::with("sidr-port", 1, |config| config.port = 50_000);
    for side in &mut pair.sides {
        side.address.set_port(50_000);
    }
    let service = service_id::udp(13);
    pair.sides[1].engine.listen(service).unwrap();
    let now = pair.now;
    let ask = pair.ask(service);
    pair.sides[0].engine.sidr_request(now, &ask).unwrap();
    pair.run_until(LONG, |p| !p.sides[1].events.is_empty());
    let now = pair.now;
    let asked = &mut pair.sides[1];
    let id = asked.cm_event().id;
    let answer = SidrReply {
        status: 0,
        qpn: softrxe_proto::Qpn::new(7),
        qkey: 1,
        private_data: b"",
    };
    asked.engine.sidr_reply(now, id, &answer).unwrap();
    let mut buffer = vec![0; 65_000];
    let answer = asked.engine.poll_transmit(now, &mut buffer).unwrap();
    let expected = (pair.sides[0].address.ip(), 4791).into();
    assert_eq!(answer.destination, expected);
}

/// The first one has a time limit, the second one is ended by its caller.
fn a_lookup_that_nobody_waits_for_is_not_repeated() {
    let mut pair = Pair::new("sidr-ended");
    let mut now = pair.now;
    let second = Duration::from_secs(1);
    let limited = SidrRequest {
        timeout: Some(second),
        ..pair.ask(service_id::udp(13))
    };
    let asker = &mut pair.sides[0].engine;
    let ids = [Some(second), None].map(|timeout| {
        let ask = SidrRequest { timeout, ..limited };
        asker.sidr_request(now, &ask).unwrap()
    });
    let sent = |now, asker: &mut Engine<_>| {
        asker.handle_timeout(now);
        common::stranger::sent(asker, now).len()
    };
    let before: usize = (0..100)
        .map(|_| {
            now += second / 100;
            sent(now, asker)
        })
        .sum();
    // After a quarter of a second, and half a second after that.
    assert_eq!(before, 2 * 3);
    asker.end_sidr_request(ids[1]);
    let after: usize = (0..100)
        .map(|_| {
            now += second;
            sent(now, asker)
        })
        .sum();
    assert_eq!((after, asker.connections()), (0, 0));
    let Some(Event::Cm(ended)) = asker.poll_event() else {
        panic!("no event");
    };
    assert_eq!((ended.id, ended.kind), (ids[0], CmEventKind::TimedOut));
    assert!(asker.poll_event().is_none());
}

fn a_datagram_service_is_resolved_and_reached() {
    let mut pair = Pair::new("sidr");
    let service = service_id::udp(13);
    pair.sides[1].engine.listen(service).unwrap();
    let qpns = [0, 1].map(|i| {
        let mut init = pair.sides[i].init();
        init.kind = QpKind::Ud;
        init.qkey = 0x0123_4567;
        pair.sides[i].engine.create_qp(&init).unwrap()
    });
    let now = pair.now;
    let ask = SidrRequest {
        private_data: b"who",
        ..pair.ask(service)
    };
    pair.sides[0].engine.sidr_request(now, &ask).unwrap();
    pair.run_until(LONG, |p| !p.sides[1].events.is_empty());
    let request = pair.sides[1].cm_event();
    assert!(
        matches!(request.kind, CmEventKind::SidrRequest(ref r) if r.private_data[..3] == *b"who")
    );
    let answer = SidrReply {
        status: 0,
        qpn: qpns[1],
        qkey: 0x0123_4567,
        private_data: b"me",
    };
    let now = pair.now;
    pair.sides[1]
        .engine
        .sidr_reply(now, request.id, &answer)
        .unwrap();
    pair.run();
    let CmEventKind::SidrReply {
        status, qpn, qkey, ..
    } = pair.sides[0].cm_event().kind
    else {
        panic!("no reply");
    };
    assert_eq!((status, qpn, qkey), (0, qpns[1], 0x0123_4567));
    for side in &pair.sides {
        assert_eq!(side.engine.connections(), 0);
    }

    let from = pair.sides[0]
        .memory
        .register(vec![9; 100], common::memory::ALL);
    let to = pair.sides[1]
        .memory
        .register(vec![0; 140], common::memory::ALL);
    pair.receive(1, qpns[1], 3, &[to]);
    let to_peer = softrxe_proto::DatagramPeer {
        address: pair.sides[1].address.ip(),
        qpn,
        qkey,
    };
    let datagram = Op::Datagram {
        to: to_peer,
        immediate: Some(*b"imm!"),
    };
    pair.post(0, qpns[0], &SendRequest::new(4, datagram, &[from]));
    let wrong = softrxe_proto::DatagramPeer { qkey: 1, ..to_peer };
    let misled = Op::Datagram {
        to: wrong,
        immediate: None,
    };
    pair.post(0, qpns[0], &SendRequest::new(5, misled, &[from]));
    pair.run();
    assert_eq!(pair.sides[0].completions.len(), 2);
    assert_eq!(pair.sides[1].completions.len(), 1);
    let got = pair.sides[1].completions[0];
    assert_eq!(
        (got.status, got.length, got.immediate),
        (Status::Success, 140, Some(*b"imm!"))
    );
    assert_eq!(got.source, Some((pair.sides[0].address.ip(), qpns[0])));
    let bytes = pair.sides[1].memory.bytes(&to);
    assert_eq!(bytes[40..], [9; 100]);
    assert_eq!(bytes[32..40], [10, 9, 0, 1, 10, 9, 0, 2]);
    assert_eq!(pair.sides[1].engine.counters().foreign, 1);
}

over_both_links!(
    a_datagram_service_is_resolved_and_reached,
    a_lookup_that_nobody_waits_for_is_not_repeated,
);
