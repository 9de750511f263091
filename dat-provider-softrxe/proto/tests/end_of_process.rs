//! What peers learn when a process ends without a disconnect, and what it leaves as it was.

mod common;

use std::time::Duration;

use common::memory::ALL;
use common::pair::Pair;
use softrxe_proto::opcode::Opcode;
use softrxe_proto::{
    CmEventKind, CmId, Op, QpState, RejectReason, SendRequest, Status, service_id,
};

/// More connections than runs of queue pairs that are sent before a waiting management datagram.
const MANY: u64 = 30;
const MOMENT: Duration = Duration::from_millis(20);

/// Delivers what `side` has to send. Returns the opcodes.
fn deliver(pair: &mut Pair, side: usize) -> Vec<u8> {
    let packets = pair.poll(side);
    let source = pair.sides[side].address;
    let meta = softrxe_proto::Meta { source, ip_id: 0 };
    let (now, peer) = (pair.now, &mut pair.sides[1 - side].engine);
    for packet in &packets {
        peer.handle_datagram(now, &meta, packet);
    }
    packets.iter().map(|packet| packet[0]).collect()
}

/// Says to the peers of `side` that its process ends, as a driver does. Returns the opcodes of what it sent for that.
fn end(pair: &mut Pair, side: usize) -> Vec<u8> {
    deliver(pair, side);
    let open = pair.sides[side].engine.open_connections(|_| false);
    let said = open.into_iter().flat_map(|id| {
        let now = pair.now;
        pair.sides[side].engine.say_process_ends(now, id);
        deliver(pair, side)
    });
    said.collect()
}

fn kinds(pair: &mut Pair, side: usize) -> Vec<CmEventKind> {
    let events = pair.sides[side].cm_events();
    events.into_iter().map(|event| event.kind).collect()
}

#[test]
fn each_peer_gets_the_last_acknowledgement_and_then_one_dreq() {
    let mut pair = Pair::new("end_of_process");
    let local = pair.sides[0].memory.register(vec![3; 100], ALL);
    let inbox = pair.sides[1].memory.register(vec![0; 100], ALL);
    let mut open = Vec::new();
    for number in 0..MANY {
        let (qpns, ids) = pair.connect_by_cm(service_id::tcp(1));
        open.push((qpns, ids));
        for side in &mut pair.sides {
            side.events.clear();
        }
        pair.receive(1, qpns[1], number, &[inbox]);
        pair.post(0, qpns[0], &SendRequest::new(number, Op::Send, &[local]));
    }
    pair.run_until(MOMENT, |_| false);
    for side in &mut pair.sides {
        side.completions.clear();
    }
    // Each connection has a message that is not acknowledged, and its receiver ends.
    for (number, (qpns, _)) in (0..).zip(&open) {
        pair.receive(1, qpns[1], number, &[inbox]);
        pair.post(0, qpns[0], &SendRequest::new(number, Op::Send, &[local]));
        pair.hand_over(0);
    }
    let said = end(&mut pair, 1);
    let (ack, management) = (Opcode::Acknowledge as u8, Opcode::UdSendOnly as u8);
    assert_eq!(said, [ack, management].repeat(MANY as usize));
    pair.run_until(10 * MOMENT, |_| false);

    let ended = vec![CmEventKind::Disconnected; MANY as usize];
    assert_eq!(kinds(&mut pair, 0), ended);
    let completions = &pair.sides[0].completions;
    assert_eq!(completions.len(), MANY as usize);
    assert!(
        completions
            .iter()
            .all(|done| done.status == Status::Success)
    );
    // A thread of the process that still runs sees no end, and may disconnect.
    assert_eq!(kinds(&mut pair, 1), []);
    assert!(!pair.sides[1].engine.is_leaving());
    for (qpns, ids) in open {
        let engine = &mut pair.sides[1].engine;
        assert_eq!(engine.qp_state(qpns[1]), Some(QpState::ReadyToSend));
        engine.disconnect(pair.now, ids[1]).unwrap();
    }
    pair.run_until(10 * MOMENT, |_| false);
    assert_eq!(kinds(&mut pair, 1), ended);
    assert!(!pair.sides[1].engine.is_leaving(), "confirmed once more");
}

/// The peer of an attempt, or of a request, need not wait until it gives up.
#[test]
fn attempts_and_unanswered_requests_are_refused() {
    for side in 0..2 {
        let mut pair = Pair::new("end_of_attempt");
        let service = service_id::tcp(2);
        pair.sides[1].engine.listen(service).unwrap();
        let qpn = pair.sides[0].qp();
        let id: CmId = pair.call(qpn, service);
        assert!(pair.run_until(MOMENT, |p| !p.sides[1].events.is_empty()));
        assert!(matches!(kinds(&mut pair, 1)[..], [CmEventKind::Request(_)]));
        assert_eq!(end(&mut pair, side), [Opcode::UdSendOnly as u8]);
        pair.run_until(MOMENT, |_| false);
        let reason = [RejectReason::TIMEOUT, RejectReason::CONSUMER][side];
        let events = kinds(&mut pair, 1 - side);
        let [CmEventKind::Rejected { reason: said, .. }] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(*said, reason);
        assert_eq!(kinds(&mut pair, side), []);
        if side == 0 {
            pair.sides[0].engine.disconnect(pair.now, id).unwrap();
        }
    }
}

/// Its records come before the DREQ.
#[test]
fn connections_over_a_channel_end_in_the_same_way() {
    common::channel::run_over_channel(|| {
        let mut pair = Pair::new("end_of_channel");
        let (qpns, ids) = pair.connect_by_cm(service_id::tcp(3));
        for side in &mut pair.sides {
            side.events.clear();
        }
        pair.receive(1, qpns[1], 1, &[]);
        pair.post(0, qpns[0], &SendRequest::new(1, Op::Send, &[]));
        pair.hand_over(0);
        let engine = &mut pair.sides[1].engine;
        assert_eq!(engine.open_connections(|_| false), [ids[1]]);
        assert_eq!(engine.open_connections(|_| true), []);
        engine.say_process_ends(pair.now, ids[1]);
        pair.run_until(MOMENT, |_| false);
        assert_eq!(kinds(&mut pair, 0), [CmEventKind::Disconnected]);
        assert_eq!(pair.sides[0].completions[0].status, Status::Success);
    });
}
