//! Silent peers: they are probed without any effect on them, and the connection breaks when they do not answer.

mod common;

use std::time::Duration;

use common::memory::ALL;
use common::pair::Pair;
use softrxe_proto::opcode::Opcode;
use softrxe_proto::wire::Packet;
use softrxe_proto::{Event, Op, QpState, Qpn, SendRequest, Status, service_id};

const INTERVAL: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);

fn connected(name: &str) -> (Pair, [Qpn; 2]) {
    let mut pair = Pair::with(name, 3, |config| config.keepalive = Some(INTERVAL));
    let (qpns, _) = pair.connect_by_cm(service_id::tcp(1));
    for side in &mut pair.sides {
        side.events.clear();
    }
    (pair, qpns)
}

/// Sends messages both ways, one after the other.
fn talk(pair: &mut Pair, qpns: [Qpn; 2]) {
    for from in 0..2 {
        let to = 1 - from;
        let inbox = pair.sides[to].memory.register(vec![0; 3000], ALL);
        let local = pair.sides[from].memory.register(vec![7; 3000], ALL);
        pair.receive(to, qpns[to], 9, &[inbox]);
        pair.post(from, qpns[from], &SendRequest::new(1, Op::Send, &[local]));
        let limit = Duration::from_secs(1);
        assert!(pair.run_until(limit, |p| p.sides.iter().all(|s| s.completions.len() == 1)));
        for side in &mut pair.sides {
            assert_eq!(side.completions.remove(0).status, Status::Success);
        }
        assert_eq!(pair.sides[to].memory.bytes(&inbox), vec![7; 3000]);
    }
}

fn an_idle_connection_is_probed_rarely_and_stays() {
    for talked_before in [false, true] {
        let (mut pair, qpns) = connected("idle");
        if talked_before {
            talk(&mut pair, qpns);
        }
        // These receives must stay posted.
        for (side, qpn) in qpns.into_iter().enumerate() {
            pair.receive(side, qpn, 5, &[]);
        }
        let sent = pair.sent;
        pair.run_until(MINUTE, |_| false);
        let asked = pair.sent - sent;
        assert!((4..=24).contains(&asked), "{asked} packets in a minute");
        for (side, qpn) in pair.sides.iter().zip(qpns) {
            assert!(side.events.is_empty() && side.completions.is_empty());
            assert_eq!(side.engine.qp_state(qpn), Some(QpState::ReadyToSend));
            assert_eq!(side.engine.counters().refused, 0);
        }
        for (side, qpn) in qpns.into_iter().enumerate() {
            let other = 1 - side;
            pair.post(side, qpn, &SendRequest::new(1, Op::Send, &[]));
            pair.run_until(Duration::from_secs(1), |_| false);
            assert_eq!(pair.sides[other].completions.remove(0).wr_id, 5);
            pair.sides[side].completions.clear();
        }
    }
}

fn a_probe_has_no_effect_on_the_peer() {
    let (mut pair, qpns) = connected("question");
    talk(&mut pair, qpns);
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let into = std::rc::Rc::clone(&seen);
    pair.filter = Box::new(move |packet| {
        let parsed = Packet::parse(&packet.bytes).unwrap();
        into.borrow_mut()
            .push((parsed.opcode, parsed.bth.psn, parsed.payload.len()));
        true
    });
    pair.run_until(3 * INTERVAL, |_| false);
    let seen = seen.borrow();
    let (opcode, psn, length) = seen[0];
    assert_eq!((opcode, length), (Opcode::WriteOnly, 0));
    // The answer is an acknowledgement of the PSN before.
    assert_eq!((seen[1].0, seen[1].1), (Opcode::Acknowledge, psn));
}

fn a_peer_that_is_gone_is_detected() {
    let (mut pair, qpns) = connected("gone");
    pair.receive(0, qpns[0], 5, &[]);
    pair.filter = Box::new(|_| false);
    let noticed = |p: &mut Pair| !p.sides[0].events.is_empty();
    assert!(pair.run_until(2 * INTERVAL + Duration::from_secs(12), noticed));
    let side = &mut pair.sides[0];
    let status = Status::RetryExceeded;
    assert!(
        matches!(side.events[0], Event::QpError { qpn, status: s, .. } if (qpn, s) == (qpns[0], status))
    );
    assert_eq!(side.completions[0].status, Status::Flushed);
}

#[test]
fn lost_probes_are_repeated() {
    let (mut pair, qpns) = connected("lost");
    pair.faults.loss = 200;
    pair.run_until(MINUTE, |_| false);
    for (side, qpn) in pair.sides.iter().zip(qpns) {
        assert!(side.events.is_empty());
        assert_eq!(side.engine.qp_state(qpn), Some(QpState::ReadyToSend));
    }
}

fn no_timer_is_left_after_the_last_connection() {
    let (mut pair, qpns) = connected("over");
    assert!(pair.sides[0].engine.poll_timeout().is_some());
    let now = pair.now;
    pair.sides[0].engine.destroy_qp(now, qpns[0]);
    // The pair comes to rest, which it would not while a probe is outstanding.
    pair.run();
    for side in &mut pair.sides {
        assert_eq!(side.engine.poll_timeout(), None);
    }
}

over_both_links!(
    an_idle_connection_is_probed_rarely_and_stays,
    a_probe_has_no_effect_on_the_peer,
    a_peer_that_is_gone_is_detected,
    no_timer_is_left_after_the_last_connection,
);
