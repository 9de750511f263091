//! Processes that are stopped and go on: the time for which a process did not run is no silence of its peer.

mod common;

use std::time::Duration;

use common::memory::ALL;
use common::pair::Pair;
use softrxe_proto::{CmEventKind, Op, SendRequest, SidrRequest, Status, service_id};

const SECOND: Duration = Duration::from_secs(1);
const STOP: Duration = Duration::from_secs(60);

/// Side 1 accepts the request, and side 0 hears of it.
#[track_caller]
fn establish(pair: &mut Pair) {
    let theirs = pair.sides[1].qp();
    pair.answer(theirs);
    assert!(pair.run_until(SECOND, |p| !p.sides[0].events.is_empty()));
    let answered = pair.sides[0].cm_event().kind;
    assert!(
        matches!(answered, CmEventKind::Established(_)),
        "{answered:?}"
    );
}

/// The peer is stopped first, and this side when all repetitions but the answer to the last one are over. Both go on at once.
#[test]
fn a_request_whose_last_repetition_could_not_be_answered_is_repeated() {
    let mut pair = Pair::new("stopped");
    let qpns = pair.connected();
    let inbox = pair.sides[1].memory.register(vec![0; 8], ALL);
    let local = pair.sides[0].memory.register(vec![7; 8], ALL);
    pair.receive(1, qpns[1], 9, &[inbox]);
    pair.faults.loss = 1000;
    pair.post(0, qpns[0], &SendRequest::new(1, Op::Send, &[local]));
    let used_up = |p: &mut Pair| p.sides[0].engine.counters().timeouts == 7;
    assert!(pair.run_until(STOP, used_up));
    pair.now += STOP;
    pair.faults.loss = 0;
    pair.run();
    assert_eq!(pair.sides[0].completions[0].status, Status::Success);
    assert_eq!(pair.sides[1].memory.bytes(&inbox), vec![7; 8]);
}

/// A peer that stays silent after the stop is gone.
#[test]
fn a_stop_does_not_keep_a_request_to_a_dead_peer() {
    let mut pair = Pair::new("stopped_dead");
    let qpns = pair.connected();
    let local = pair.sides[0].memory.register(vec![7; 8], ALL);
    pair.faults.loss = 1000;
    pair.post(0, qpns[0], &SendRequest::new(1, Op::Send, &[local]));
    pair.run_until(SECOND, |_| false);
    pair.now += STOP;
    let ended = |p: &mut Pair| !p.sides[0].completions.is_empty();
    assert!(pair.run_until(20 * SECOND, ended));
    assert_eq!(pair.sides[0].completions[0].status, Status::RetryExceeded);
}

/// The consumer answers after the stop, before the client repeats its request.
#[test]
fn a_request_that_waits_for_the_consumer_outlives_a_stop() {
    let mut pair = Pair::new("stopped_request");
    let service = service_id::tcp(21);
    pair.sides[1].engine.listen(service).unwrap();
    let qpn = pair.sides[0].qp();
    pair.call(qpn, service);
    assert!(pair.run_until(SECOND, |p| !p.sides[1].events.is_empty()));
    pair.now += STOP;
    assert!(pair.step());
    establish(&mut pair);
}

/// All repetitions of a request to connect but the answer to the last one are over.
#[test]
fn an_attempt_is_repeated_after_a_stop() {
    let mut pair = Pair::new("stopped_attempt");
    let service = service_id::tcp(21);
    pair.sides[1].engine.listen(service).unwrap();
    let qpn = pair.sides[0].qp();
    pair.faults.loss = 1000;
    let sent = pair.sent;
    pair.call(qpn, service);
    assert!(pair.run_until(STOP, |p| p.sent == sent + 10));
    pair.now += STOP;
    pair.faults.loss = 0;
    assert!(pair.run_until(5 * SECOND, |p| !p.sides[1].events.is_empty()));
    establish(&mut pair);
}

/// The time limit of a resolution is over when the processes go on, but not without the stop.
#[test]
fn the_time_limit_of_a_resolution_does_not_count_a_stop() {
    let mut pair = Pair::new("stopped_resolution");
    let service = service_id::udp(13);
    pair.sides[1].engine.listen(service).unwrap();
    let ask = SidrRequest {
        timeout: Some(20 * SECOND),
        ..pair.ask(service)
    };
    pair.faults.loss = 1000;
    pair.sides[0].engine.sidr_request(pair.now, &ask).unwrap();
    pair.run_until(SECOND, |_| false);
    pair.now += STOP;
    pair.faults.loss = 0;
    assert!(pair.run_until(SECOND, |p| !p.sides[1].events.is_empty()));
    assert!(pair.sides[0].events.is_empty());
    // The peer is silent again.
    pair.faults.loss = 1000;
    let ended = |p: &mut Pair| !p.sides[0].events.is_empty();
    assert!(pair.run_until(60 * SECOND, ended));
    assert_eq!(pair.sides[0].cm_event().kind, CmEventKind::TimedOut);
}

/// Both processes run for less than a retransmission takes, again and again.
#[test]
fn stops_without_end_do_not_keep_a_dead_peer() {
    let mut pair = Pair::new("stopped_often");
    let qpns = pair.connected();
    let local = pair.sides[0].memory.register(vec![7; 8], ALL);
    pair.faults.loss = 1000;
    pair.post(0, qpns[0], &SendRequest::new(1, Op::Send, &[local]));
    let service = service_id::udp(13);
    let ask = pair.ask(service);
    pair.sides[0].engine.sidr_request(pair.now, &ask).unwrap();
    let caller = pair.sides[0].qp();
    pair.call(caller, service_id::tcp(21));
    for _ in 0..50 {
        let end = pair.now + SECOND / 5;
        pair.run_until(SECOND / 5, |_| false);
        pair.now = end + 4 * SECOND;
    }
    assert_eq!(pair.sides[0].completions[0].status, Status::RetryExceeded);
    let events = pair.sides[0].cm_events();
    let ended = events.iter().filter(|e| e.kind == CmEventKind::TimedOut);
    assert_eq!(ended.count(), 2, "{events:?}");
}
