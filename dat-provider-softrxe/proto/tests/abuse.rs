//! The connection manager under attack: a message that is not from a connection's peer neither ends nor delays it. For floods see `floods.rs`.

mod common;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use common::attacked::{SERVICE, foreign_client, requests, talk};
use common::memory::ALL;
use common::pair::Pair;
use common::stranger::{self, FOREIGN};
use softrxe_proto::wire::cm::CmMessage;
use softrxe_proto::{CmEventKind, Event, Op, QpState, Qpn, RejectReason, Remote, SendRequest};

const LONG: Duration = Duration::from_secs(200);

/// Addresses of another host, and of another process at the first side's address.
fn strangers(pair: &Pair) -> [SocketAddr; 2] {
    let mut process = pair.sides[0].address;
    process.set_port(40_000);
    ["10.9.0.66:4791".parse().unwrap(), process]
}

/// Sends the REQ, DREQ, REJ and RTU that end a connection when its peer sends them.
#[test]
fn messages_that_do_not_come_from_the_peer_do_not_end_a_connection() {
    let mut pair = Pair::new("abuse_strangers");
    let (qpns, [client, server]) = pair.connect_by_cm(SERVICE);
    pair.run_until(Duration::from_secs(1), |_| false);
    let guid = pair.sides[0].engine.guid();
    for side in &mut pair.sides {
        side.events.clear();
    }
    for source in strangers(&pair) {
        let to = pair.sides[1].address.ip();
        for step in 0..18 {
            let qpn = Qpn::new(qpns[0].value() - 9 + step);
            let req = stranger::req(source.ip(), to, SERVICE, (guid, 1000 + step, qpn));
            let engine = &mut pair.sides[1].engine;
            stranger::inject(engine, pair.now, source, 5, &CmMessage::Req(req));
        }
        let ids = (client.number(), server.number());
        for message in [
            stranger::dreq(ids.0, ids.1, qpns[1]),
            stranger::dreq(0, ids.1, qpns[1]),
            stranger::rej(ids.0, ids.1, RejectReason::INVALID_COMM_ID, guid),
            stranger::rej(ids.0, ids.1, RejectReason::TIMEOUT, guid),
        ] {
            let engine = &mut pair.sides[1].engine;
            stranger::inject(engine, pair.now, source, 5, &message);
        }
        pair.run_until(Duration::from_millis(100), |_| false);
        // They are raised as new requests.
        assert_eq!(requests(&mut pair.sides[1]).len(), 18, "{source}");
        talk(&mut pair, qpns);
    }
    assert_eq!(pair.sides[0].cm_events(), []);
}

/// The message has the peer's address and port but not its id, as from a forger that has guessed only our id.
#[test]
fn a_message_without_the_peers_id_does_not_end_a_connection() {
    let mut pair = Pair::new("abuse_half_an_id");
    let (qpns, [_, server]) = pair.connect_by_cm(SERVICE);
    pair.run_until(Duration::from_secs(1), |_| false);
    pair.sides[1].events.clear();
    let source = pair.sides[0].address;
    for message in [
        stranger::dreq(0, server.number(), qpns[1]),
        stranger::rej(0, server.number(), RejectReason::CONSUMER, FOREIGN),
    ] {
        let engine = &mut pair.sides[1].engine;
        stranger::inject(engine, pair.now, source, 5, &message);
    }
    assert_eq!(requests(&mut pair.sides[1]), []);
    talk(&mut pair, qpns);
}

/// An answer to a REQ comes from the REQ's destination and has its transaction id.
#[test]
fn a_request_is_not_refused_by_a_forger_who_guesses_its_id() {
    let mut pair = Pair::new("abuse_forged_rej");
    pair.sides[1].engine.listen(SERVICE).unwrap();
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    let id = pair.call(qpns[0], SERVICE);
    let mut source = pair.sides[1].address;
    source.set_port(40_000);
    for message in [
        stranger::rej(0, id.number(), RejectReason::CONSUMER, FOREIGN),
        stranger::mra(0, id.number()),
    ] {
        let engine = &mut pair.sides[0].engine;
        stranger::inject(engine, pair.now, source, 5, &message);
    }
    pair.answer(qpns[1]);
    assert!(pair.run_until(LONG, |p| !p.sides[0].events.is_empty()));
    let kind = pair.sides[0].cm_event().kind;
    assert!(matches!(kind, CmEventKind::Established(_)), "{kind:?}");
}

/// A process of the peer's address counts as the peer's queue pair only if it sends from the peer's port.
#[test]
fn packets_of_another_process_of_the_peers_address_are_not_the_peers() {
    let mut pair = Pair::new("abuse_packets");
    let (qpns, _) = pair.connect_by_cm(SERVICE);
    pair.run_until(Duration::from_secs(1), |_| false);
    let to = pair.sides[1].memory.register(vec![0; 4], ALL);
    pair.receive(1, qpns[1], 1, &[to]);
    let from = pair.sides[0].memory.register(b"evil".to_vec(), ALL);
    pair.post(0, qpns[0], &SendRequest::new(2, Op::Send, &[from]));
    let now = pair.now;
    let (_, mut bytes) = stranger::sent(&mut pair.sides[0].engine, now).remove(0);
    pair.sides[0].memory.gather(&mut bytes);
    let source = strangers(&pair)[1];
    let end = bytes.len() - 4;
    let flow = softrxe_proto::wire::icrc::Flow {
        source,
        destination: pair.sides[1].address,
    };
    let crc = softrxe_proto::wire::icrc::compute(&flow, 0, &bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    let meta = softrxe_proto::Meta { source, ip_id: 0 };
    pair.sides[1].engine.handle_datagram(now, &meta, &bytes);
    let foreign = pair.sides[1].engine.counters().foreign;
    assert_eq!((foreign, pair.sides[1].memory.bytes(&to)), (1, vec![0; 4]));
}

/// Any process of a host with rdma_rxe can send a REQ with the kernel's GUID, from any port.
#[test]
fn a_foreign_peer_whose_queue_pair_another_request_claims_is_probed_and_stays() {
    let mut pair = Pair::new("abuse_claim");
    let (qpns, _) = foreign_client(&mut pair, 77);
    let to = pair.sides[1].address;
    let mut source = pair.sides[0].address;
    source.set_port(55_555);
    for id in 0..10 {
        let req = stranger::req(source.ip(), to.ip(), SERVICE, (FOREIGN, id, qpns[0]));
        let now = pair.now;
        let engine = &mut pair.sides[1].engine;
        stranger::inject(engine, now, source, 5, &CmMessage::Req(req));
        pair.run_until(Duration::from_secs(20), |_| false);
    }
    assert_eq!(requests(&mut pair.sides[1]), []);
    talk(&mut pair, qpns);
}

/// A connection to queue pair 1 would send its packets to the peer's connection manager.
#[test]
fn a_peer_cannot_connect_a_queue_pair_with_a_reserved_number() {
    let mut pair = Pair::new("abuse_reserved");
    let (from, to) = (pair.sides[0].address, pair.sides[1].address);
    pair.sides[1].engine.listen(SERVICE).unwrap();
    for (id, qpn) in [0, 1, 0xff_ffff].into_iter().enumerate() {
        let peer = (FOREIGN, id as u32, Qpn::new(qpn));
        let req = CmMessage::Req(stranger::req(from.ip(), to.ip(), SERVICE, peer));
        let now = pair.now;
        let engine = &mut pair.sides[1].engine;
        stranger::inject(engine, now, from, 5, &req);
        let sent = stranger::sent(engine, now);
        let answer = sent.iter().find_map(|(_, bytes)| stranger::message(bytes));
        assert!(
            matches!(&answer, Some(CmMessage::Rej(rej)) if rej.reason == RejectReason::UNSUPPORTED),
            "{qpn}: {answer:?}"
        );
    }
    assert_eq!(requests(&mut pair.sides[1]), []);
}

/// The host was restarted, so its queue pair numbers start again.
#[test]
fn a_foreign_peer_that_is_gone_is_detected_when_another_request_claims_its_queue_pair() {
    let mut pair = Pair::new("abuse_restart");
    let (qpns, id) = foreign_client(&mut pair, 77);
    let now = pair.now;
    pair.sides[0].engine.destroy_qp(now, qpns[0]);
    let (from, to) = (pair.sides[0].address, pair.sides[1].address);
    let req = stranger::req(from.ip(), to.ip(), SERVICE, (FOREIGN, 78, qpns[0]));
    let engine = &mut pair.sides[1].engine;
    stranger::inject(engine, now, from, 5, &CmMessage::Req(req));
    let answer = stranger::sent(engine, now);
    let answer = answer
        .iter()
        .find_map(|(_, bytes)| stranger::message(bytes));
    assert!(
        matches!(answer, Some(CmMessage::Rej(rej)) if rej.reason == RejectReason::STALE_CONNECTION)
    );
    let broken = |event: &Event| matches!(event, Event::QpError { qpn, connection: Some(c), .. } if (*qpn, *c) == (qpns[1], id));
    assert!(pair.run_until(LONG, |p| p.sides[1].events.iter().any(broken)));
    assert_eq!(pair.sides[1].engine.qp_state(qpns[1]), Some(QpState::Error));
}

/// A probe has a deadline, which only a queue pair that sends handles: the engine would find it again without end.
#[test]
fn a_queue_pair_in_error_whose_peer_sends_another_request_is_not_probed() {
    let mut pair = Pair::new("abuse_failed_claim");
    let (qpns, _) = foreign_client(&mut pair, 77);
    let wrong = Remote {
        address: 0,
        key: 0x1234,
    };
    let data = pair.sides[0].memory.register(vec![0; 4], ALL);
    pair.post(0, qpns[0], &SendRequest::new(1, Op::Write(wrong), &[data]));
    let failed = |pair: &Pair| pair.sides[1].engine.qp_state(qpns[1]) == Some(QpState::Error);
    assert!(pair.run_until(LONG, |pair| failed(pair)));
    // The consumer has not ended the connection yet.
    let (from, to) = (pair.sides[0].address, pair.sides[1].address);
    let req = stranger::req(from.ip(), to.ip(), SERVICE, (FOREIGN, 78, qpns[0]));
    let now = pair.now;
    let engine = &mut pair.sides[1].engine;
    let before = engine.poll_timeout();
    stranger::inject(engine, now, from, 5, &CmMessage::Req(req));
    assert_eq!(engine.poll_timeout(), before);
    pair.run_until(Duration::from_secs(1), |_| false);
}

/// Every RTU is lost, and the client sends no data: its queue pair answers the probe.
#[test]
fn a_silent_client_whose_rtu_is_lost_is_found() {
    let mut pair = Pair::new("abuse_lost_rtu");
    pair.filter = Box::new(|p| p.bytes.len() != 280 || p.bytes[20 + 17] != 0x14);
    pair.sides[1].engine.listen(SERVICE).unwrap();
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    pair.call(qpns[0], SERVICE);
    pair.answer(qpns[1]);
    assert!(pair.run_until(Duration::from_secs(2), |p| !p.sides[1].events.is_empty()));
    let kind = pair.sides[1].cm_event().kind;
    assert!(matches!(kind, CmEventKind::Established(_)), "{kind:?}");
    assert_eq!(pair.sides[0].cm_events().len(), 1);
    pair.run();
    talk(&mut pair, qpns);
}

/// A queue pair number can be guessed. The PSN of the REP shows that the sender has received it.
#[test]
fn a_packet_with_a_guessed_psn_does_not_establish_a_connection() {
    use softrxe_proto::opcode::Opcode;
    use softrxe_proto::wire::{Bth, Headers, Packet, icrc};
    let mut pair = Pair::new("abuse_guessed_psn");
    pair.sides[1].engine.listen(SERVICE).unwrap();
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    pair.call(qpns[0], SERVICE);
    let rep = Rc::new(RefCell::new(None));
    let noted = Rc::clone(&rep);
    pair.filter = Box::new(move |p| {
        if let Some(CmMessage::Rep(rep)) = stranger::message(&p.bytes) {
            noted.borrow_mut().get_or_insert(rep.starting_psn);
        }
        p.to == 1
    });
    pair.answer(qpns[1]);
    pair.run_until(Duration::from_millis(1), |_| false);
    let flow = icrc::Flow {
        source: pair.sides[0].address,
        destination: pair.sides[1].address,
    };
    let psn = rep.borrow().unwrap();
    let guesses = [psn.minus(2), psn.plus(2000), psn.plus(1 << 22), psn.plus(1)];
    for (guess, up) in guesses.into_iter().zip([false, false, false, true]) {
        let packet = Packet {
            bth: Bth::new(Opcode::SendOnly as u8, qpns[1], guess),
            opcode: Opcode::SendOnly,
            headers: Headers::default(),
            payload: &[],
        };
        let mut bytes = vec![0; 64];
        let end = packet.emit(&mut bytes);
        bytes.truncate(end);
        let crc = icrc::compute(&flow, 0, &bytes);
        bytes.extend(crc.to_le_bytes());
        let meta = softrxe_proto::Meta {
            source: flow.source,
            ip_id: 0,
        };
        let now = pair.now;
        pair.sides[1].engine.handle_datagram(now, &meta, &bytes);
        pair.run_until(Duration::from_millis(1), |_| false);
        assert_eq!(
            pair.sides[1].cm_events().len(),
            usize::from(up),
            "{guess:?}"
        );
    }
}
