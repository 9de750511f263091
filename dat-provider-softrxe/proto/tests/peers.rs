//! Peers of other implementations, and packets that are late, lost or duplicated: no side reports what did not happen, and
//! none waits without end.

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use common::memory::{ALL, at};
use common::pair::Pair;
use softrxe_proto::opcode::Opcode;
use softrxe_proto::{
    Accept, CmEventKind, Connect, Event, Op, Psn, QpState, Qpn, SendRequest, Sge, Status,
    service_id,
};

const READ: u8 = Opcode::ReadRequest as u8;
const ACK: u8 = Opcode::Acknowledge as u8;
const MANAGEMENT: u8 = Opcode::UdSendOnly as u8;
const MOMENT: Duration = Duration::from_millis(5);

/// When rdma_rxe 6.1 has the first part of a READ, it takes any acknowledge packet with the next PSN for a sequence error,
/// and completes the READ as it is, with status success.
#[test]
fn the_rest_of_a_read_is_not_refused_with_a_psn_in_its_middle() {
    let mut pair = Pair::new("peers_read_middle");
    pair.own = false;
    let [a, b] = pair.connected();
    let there = pair.sides[1].memory.register(vec![7; 4096], ALL);
    let into = pair.sides[0].memory.register(vec![0; 4096], ALL);
    let naks = Rc::new(RefCell::new(Vec::new()));
    let noted = Rc::clone(&naks);
    let memory = pair.sides[1].memory.clone();
    let mut answers = 0;
    pair.filter = Box::new(move |p| {
        if p.to != 0 {
            return true;
        }
        if p.bytes[0] == ACK && p.bytes[12] == 0x62 {
            noted.borrow_mut().push(p.psn());
        }
        answers += 1;
        // The packet with PSN 100 arrives, the rest is lost, and the memory is deregistered.
        if answers == 4 {
            memory.deregister(there.key);
        }
        !(2..=4).contains(&answers)
    });
    pair.post(0, a, &SendRequest::new(1, Op::Read(at(there)), &[into]));
    pair.run_until(Duration::from_secs(20), |p| {
        !p.sides[0].completions.is_empty()
    });
    let naks = naks.borrow();
    assert!(!naks.is_empty() || pair.sides[1].engine.qp_state(b) == Some(QpState::Error));
    assert!(
        naks.iter().all(|at| !(101..=103).contains(at)),
        "READ 100..=103 refused at {naks:?}"
    );
}

/// A READ request is repeated after its answer arrived and its memory was freed.
#[test]
fn an_old_read_of_freed_memory_does_not_lose_the_answers_of_others() {
    let mut pair = Pair::new("peers_old_read");
    let [a, _] = pair.connected();
    let old = pair.sides[1].memory.register(vec![7; 8], ALL);
    let new = pair.sides[1].memory.register(vec![8; 8], ALL);
    let into = pair.sides[0].memory.register(vec![0; 8], ALL);
    let request = Rc::new(RefCell::new(None));
    let kept = Rc::clone(&request);
    pair.filter = Box::new(move |p| {
        if p.bytes[0] == READ {
            kept.borrow_mut().get_or_insert(p.clone());
        }
        true
    });
    pair.post(0, a, &SendRequest::new(1, Op::Read(at(old)), &[into]));
    assert!(pair.run_until(MOMENT, |p| p.sides[0].completions.len() == 1));
    pair.sides[1].memory.deregister(old.key);
    let again = request.borrow().clone().unwrap();
    pair.post(0, a, &SendRequest::new(2, Op::Read(at(new)), &[into]));
    pair.deliver(&again);
    pair.hand_over(0);
    pair.run_until(Duration::from_secs(1), |p| {
        p.sides[0].completions.len() == 2
    });
    assert_eq!(pair.sides[0].completions[1].status, Status::Success);
    assert_eq!(pair.sides[0].engine.counters().timeouts, 0);
}

/// The client gives up while the REP is in flight. `lost`: its REJ is lost, too.
fn given_up(lost: bool) {
    let mut pair = Pair::new("peers_given_up");
    pair.sides[1].engine.listen(service_id::tcp(7)).unwrap();
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    let id = pair.call(qpns[0], service_id::tcp(7));
    pair.answer(qpns[1]);
    // The REP was not sent yet.
    pair.sides[0].engine.disconnect(pair.now, id).unwrap();
    let mut first = true;
    pair.filter = Box::new(move |p| {
        let rej = p.to == 1 && p.bytes[0] == MANAGEMENT;
        !(lost && rej && std::mem::take(&mut first))
    });
    let start = pair.now;
    assert!(pair.run_until(Duration::from_secs(100), |p| !p.sides[1].events.is_empty()));
    let kind = pair.sides[1].cm_event().kind;
    let took = pair.now.since(start);
    assert!(
        matches!(kind, CmEventKind::Rejected { .. }) && took < Duration::from_secs(1),
        "{kind:?} after {took:?}"
    );
}

#[test]
fn a_client_that_gives_up_before_the_rep_arrives_ends_the_connection() {
    given_up(false);
}

#[test]
fn an_unexpected_rep_is_refused() {
    given_up(true);
}

/// Every message arrives once too early for its receive, and every packet twice.
#[test]
fn repeated_packets_do_not_use_up_the_rnr_retries() {
    let mut pair = Pair::new("peers_rnr");
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    let psns = [Psn::new(1), Psn::new(2)];
    for i in 0..2 {
        let mut path = pair.path(1 - i, qpns[1 - i], [psns[i], psns[1 - i]]);
        path.rnr_retry = 1;
        pair.sides[i].engine.connect_qp(qpns[i], &path).unwrap();
    }
    pair.faults.duplicate = 1000;
    pair.post(0, qpns[0], &SendRequest::new(1, Op::Send, &[]));
    pair.run_until(Duration::from_micros(300), |_| false);
    pair.receive(1, qpns[1], 1, &[]);
    pair.run_until(Duration::from_secs(1), |p| {
        !p.sides[0].completions.is_empty()
    });
    assert_eq!(pair.sides[0].completions[0].status, Status::Success);
}

/// An RNR NAK acknowledges what was sent before it, also if the acknowledgement itself is lost.
#[test]
fn an_rnr_nak_completes_the_requests_before_it() {
    let mut pair = Pair::new("peers_rnr_acknowledges");
    let [a, b] = pair.connected();
    pair.receive(1, b, 1, &[]);
    pair.filter = Box::new(|p| p.to != 0 || p.bytes[0] != ACK || p.bytes[12] >> 5 == 1);
    for id in 1..=3 {
        pair.post(0, a, &SendRequest::new(id, Op::Send, &[]));
    }
    let refused = |p: &mut Pair| p.sides[0].engine.counters().rnr_received == 1;
    assert!(pair.run_until(MOMENT, refused));
    let completed: Vec<_> = pair.sides[0].completions.iter().map(|c| c.wr_id).collect();
    assert_eq!(completed, [1]);
}

/// A peer has room for the READs and atomics that it stated, and may refuse another one.
#[test]
fn no_more_reads_and_atomics_are_outstanding_than_the_path_allows() {
    let depth = 4;
    for atomics in [false, true] {
        let mut pair = Pair::new("peers_depth");
        let [a, _] = pair.connected();
        let there = pair.sides[1].memory.register(vec![7; 8], ALL);
        let into = pair.sides[0].memory.register(vec![0; 8], ALL);
        // No answer arrives.
        pair.filter = Box::new(|p| p.to != 0);
        let op = if atomics {
            Op::FetchAdd {
                remote: at(there),
                add: 1,
            }
        } else {
            Op::Read(at(there))
        };
        for id in 0..2 * depth {
            pair.post(0, a, &SendRequest::new(id, op, &[into]));
        }
        pair.run_until(common::pair::LATENCY * 4, |_| false);
        assert_eq!(pair.sent, 2 * depth, "requests and their answers");
    }
}

/// Requests that were delivered before one that cannot be sent are not flushed.
#[test]
fn a_request_that_cannot_be_sent_does_not_flush_those_before_it() {
    let mut pair = Pair::new("peers_local_key");
    let [a, b] = pair.connected();
    let there = pair.sides[1].memory.register(vec![0; 64], ALL);
    pair.receive(1, b, 1, &[]);
    let wrong = Sge {
        address: 1,
        length: 8,
        key: 0xdead,
    };
    pair.post(0, a, &SendRequest::new(1, Op::Send, &[]));
    pair.post(0, a, &SendRequest::new(2, Op::Write(at(there)), &[wrong]));
    pair.post(0, a, &SendRequest::new(3, Op::Send, &[]));
    pair.run();
    let at_peer: Vec<Status> = pair.sides[1].completions.iter().map(|c| c.status).collect();
    assert_eq!(at_peer[0], Status::Success);
    let here: Vec<_> = pair.sides[0]
        .completions
        .iter()
        .map(|c| (c.wr_id, c.status))
        .collect();
    assert_eq!(
        here,
        [
            (1, Status::Success),
            (2, Status::LocalProtection),
            (3, Status::Flushed)
        ]
    );
}

/// rdma_rxe's connection manager sends requests from port 55,410, on which it does not listen. The REQ and the DREQ are of
/// a capture, or our own with another GUID.
#[test]
fn refusals_and_dreps_go_to_the_roce_port() {
    use softrxe_proto::wire::Packet as Parsed;
    let mut pair = Pair::with("peers_port", 1, |config| config.verify_icrc = false);
    let service = service_id::tcp(7);
    let packets = Rc::new(RefCell::new(Vec::new()));
    let kept = Rc::clone(&packets);
    pair.sides[1].engine.listen(service).unwrap();
    pair.filter = Box::new(move |p| {
        kept.borrow_mut().push(p.clone());
        true
    });
    let (_, ids) = pair.connect_by_cm(service);
    pair.sides[0].engine.disconnect(pair.now, ids[0]).unwrap();
    pair.run();
    pair.sides[1].engine.unlisten(service);
    for side in &pair.sides {
        assert_eq!(side.engine.connections(), 0);
    }
    let mut answered = 0;
    for packet in packets.borrow().iter() {
        let mut bytes = packet.bytes.clone();
        // BTH, DETH, MAD header.
        let (attribute, body) = (12 + 8 + 16, 12 + 8 + 24);
        let at = match u16::from_be_bytes([bytes[attribute], bytes[attribute + 1]]) {
            // Change the GUID of a REQ, the private data of a DREQ.
            0x10 => body + 16,
            0x15 => body + 12,
            _ => continue,
        };
        if packet.bytes[0] != MANAGEMENT {
            continue;
        }
        bytes[at..at + 8].fill(2);
        assert!(Parsed::parse(&bytes).is_ok());
        let mut source = packet.source;
        source.set_port(55_410);
        let meta = softrxe_proto::Meta { source, ip_id: 0 };
        let now = pair.now;
        let engine = &mut pair.sides[packet.to].engine;
        engine.handle_datagram(now, &meta, &bytes);
        let mut buffer = vec![0; 5000];
        let answer = engine.poll_transmit(now, &mut buffer).unwrap();
        assert_eq!(answer.destination, (source.ip(), 4791).into());
        answered += 1;
    }
    assert_eq!(answered, 2);
}

const LONG: Duration = Duration::from_secs(100);

/// Connects side 0 with this retry count. rdma_rxe's REQ allows 2.1 s (code 19) for an acknowledgement.
fn connected(retry_count: u8) -> (Pair, [Qpn; 2]) {
    let service = service_id::tcp(7);
    let mut pair = Pair::with("peers_patience", 1, |config| {
        config.verify_icrc = false;
    });
    pair.sides[1].engine.listen(service).unwrap();
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    let mut connect = Connect::new(pair.sides[1].address, service, &[]);
    connect.retry_count = retry_count;
    let now = pair.now;
    pair.sides[0]
        .engine
        .connect(now, qpns[0], &connect)
        .unwrap();
    // Make it a REQ of rdma_rxe.
    let mut buffer = vec![0; 5000];
    let run = pair.sides[0]
        .engine
        .poll_transmit(now, &mut buffer)
        .unwrap();
    buffer[12 + 8 + 24 + 95] = 19 << 3;
    let meta = softrxe_proto::Meta {
        source: pair.sides[0].address,
        ip_id: 0,
    };
    let engine = &mut pair.sides[1].engine;
    engine.handle_datagram(now, &meta, &buffer[..run.length]);
    assert!(pair.run_until(LONG, |p| !p.sides[1].events.is_empty()));
    let id = pair.sides[1].cm_event().id;
    let now = pair.now;
    let engine = &mut pair.sides[1].engine;
    engine.accept(now, id, qpns[1], &Accept::new(&[])).unwrap();
    let up = |event: &Event| matches!(event, Event::Cm(e) if matches!(e.kind, CmEventKind::Established(_)));
    assert!(pair.run_until(LONG, |p| p.sides.iter().all(|s| s.events.iter().any(up))));
    (pair, qpns)
}

#[test]
fn a_peer_that_asks_for_few_retries_may_be_silent_as_long_as_its_timeout_allows() {
    for retries in 0..3 {
        let (mut pair, qpns) = connected(retries);
        pair.receive(0, qpns[0], 1, &[]);
        pair.filter = Box::new(|_| false);
        pair.post(1, qpns[1], &SendRequest::new(1, Op::Send, &[]));
        let start = pair.now;
        pair.run_until(LONG, |p| !p.sides[1].completions.is_empty());
        assert_eq!(pair.sides[1].completions[0].status, Status::RetryExceeded);
        let waited = pair.now.since(start);
        let said = Duration::from_millis(2147) * (1 + u32::from(retries));
        assert!(waited >= said, "{retries}: {waited:?} of {said:?}");
    }
}

#[test]
fn a_lost_dreq_does_not_refuse_the_next_connection_of_the_queue_pair() {
    let mut pair = Pair::with("peers_reconnect", 1, |config| config.refused_repeats = 5);
    let service = service_id::tcp(10);
    let (qpns, ids) = pair.connect_by_cm(service);
    for side in &mut pair.sides {
        side.events.clear();
    }
    let now = pair.now;
    let mut first = true;
    pair.filter = Box::new(move |p| !(p.to == 1 && std::mem::take(&mut first)));
    pair.sides[0].engine.disconnect(now, ids[0]).unwrap();
    pair.transmit();
    pair.sides[0].engine.reset_qp(now, qpns[0]);
    let id = pair.call(qpns[0], service);
    let asked = |p: &mut Pair| {
        p.sides[1]
            .events
            .iter()
            .any(|e| matches!(e, Event::Cm(e) if matches!(e.kind, CmEventKind::Request(_))))
    };
    let over = |p: &mut Pair| {
        p.sides[0]
            .events
            .iter()
            .any(|e| matches!(e, Event::Cm(e) if e.id == id))
    };
    pair.run_until(LONG, |p| asked(p) || over(p));
    assert!(asked(&mut pair), "{:?}", pair.sides[0].cm_events());
}
