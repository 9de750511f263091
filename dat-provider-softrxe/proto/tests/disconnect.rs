//! The end of a connection between two engines: the last packets, and the completions of outstanding work.

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use common::memory::ALL;
use common::pair::Pair;
use softrxe_proto::opcode::Opcode;
use softrxe_proto::{
    CmError, CmEventKind, Event, Op, Psn, QpState, Remote, SendRequest, Status, service_id,
};

const LONG: Duration = Duration::from_secs(200);

fn a_disconnect_ends_both_sides_and_forgets_the_ids() {
    for who in 0..2 {
        let mut pair = Pair::new("disconnect");
        let (qpns, ids) = pair.connect_by_cm(service_id::tcp(1));
        for side in &mut pair.sides {
            side.events.clear();
        }
        let other = 1 - who;
        let inbox = pair.sides[other].memory.register(vec![0; 4], ALL);
        pair.receive(other, qpns[other], 5, &[inbox]);
        let now = pair.now;
        pair.sides[who].engine.disconnect(now, ids[who]).unwrap();
        pair.run();
        for (side, id) in pair.sides.iter_mut().zip(ids) {
            let event = side.cm_event();
            assert_eq!((event.id, event.kind), (id, CmEventKind::Disconnected));
            assert_eq!(side.engine.connections(), 0);
        }
        for (side, qpn) in pair.sides.iter().zip(qpns) {
            assert_eq!(side.engine.qp_state(qpn), Some(QpState::Error));
        }
        assert_eq!(pair.sides[other].completions[0].status, Status::Flushed);
        let now = pair.now;
        assert_eq!(
            pair.sides[who].engine.disconnect(now, ids[who]),
            Err(CmError::UnknownId(ids[who]))
        );
    }
}

/// Four messages for three receives; no answer arrives, and the receiver disconnects. Its DREQ claims `more` packets than
/// it received. Returns the sender's statuses.
fn disconnected_by_the_receiver(name: &str, more: u32) -> Vec<Status> {
    const DREQ: u16 = 0x15;
    /// Position after BTH, DETH, MAD header, the message's own fields and the mark.
    const RECEIVED: std::ops::Range<usize> = 60..64;
    let mut pair = Pair::with(name, 1, |config| config.verify_icrc = false);
    let (qpns, ids) = pair.connect_by_cm(service_id::tcp(9));
    let inbox = pair.sides[1].memory.register(vec![0; 3000], ALL);
    let local = pair.sides[0].memory.register(vec![3; 3000], ALL);
    for number in 0..3 {
        pair.receive(1, qpns[1], number, &[inbox]);
    }
    let disconnect = Rc::new(RefCell::new(None));
    let dreq = disconnect.clone();
    pair.filter = Box::new(move |packet| {
        if packet.to == 0 && packet.bytes.get(36..38) == Some(&DREQ.to_be_bytes()) {
            *dreq.borrow_mut() = Some(packet.clone());
        }
        packet.to == 1
    });
    for number in 0..4 {
        pair.post(0, qpns[0], &SendRequest::new(number, Op::Send, &[local]));
    }
    let moment = Duration::from_millis(20);
    assert!(pair.run_until(moment, |p| p.sides[1].completions.len() == 3));
    assert!(pair.sides[0].completions.is_empty());
    let now = pair.now;
    pair.sides[1].engine.disconnect(now, ids[1]).unwrap();
    pair.run_until(moment, |_| disconnect.borrow().is_some());
    let mut dreq = disconnect.borrow_mut().take().unwrap();
    let received = u32::from_be_bytes(dreq.bytes[RECEIVED].try_into().unwrap());
    let claimed = Psn::new(received + more).value();
    dreq.bytes[RECEIVED].copy_from_slice(&claimed.to_be_bytes());
    pair.deliver(&dreq);
    pair.run_until(moment, |_| false);
    assert_eq!(pair.sides[0].engine.qp_state(qpns[0]), Some(QpState::Error));
    let completions = pair.sides[0].completions.iter();
    completions.map(|completion| completion.status).collect()
}

fn a_delivered_message_is_not_flushed_when_its_acknowledgement_was_lost() {
    use Status::{Flushed, Success};
    assert_eq!(
        disconnected_by_the_receiver("last_word", 0),
        [Success, Success, Success, Flushed]
    );
    // A PSN beyond the newest ever sent acknowledges nothing.
    assert_eq!(disconnected_by_the_receiver("last_lie", 1000), [Flushed; 4]);
}

fn a_disconnect_repeats_the_last_acknowledgement() {
    for received in [false, true] {
        let mut pair = Pair::new("once_more");
        let (qpns, ids) = pair.connect_by_cm(service_id::tcp(9));
        let inbox = pair.sides[1].memory.register(vec![0; 100], ALL);
        let local = pair.sides[0].memory.register(vec![3; 100], ALL);
        if received {
            pair.receive(1, qpns[1], 1, &[inbox]);
            pair.post(0, qpns[0], &SendRequest::new(1, Op::Send, &[local]));
        }
        pair.run_until(Duration::from_millis(20), |_| false);
        let said = Rc::new(RefCell::new(Vec::new()));
        let heard = said.clone();
        pair.filter = Box::new(move |packet| {
            if packet.to == 0 {
                heard.borrow_mut().push(packet.bytes[0]);
            }
            true
        });
        let now = pair.now;
        pair.sides[1].engine.disconnect(now, ids[1]).unwrap();
        pair.run_until(Duration::from_millis(20), |_| false);
        let (ack, management) = (Opcode::Acknowledge as u8, Opcode::UdSendOnly as u8);
        let all: &[u8] = if received {
            &[ack, management]
        } else {
            &[management]
        };
        assert_eq!(*said.borrow(), all);
    }
}

/// The queue pair may have another connection when the driver reads the event.
fn a_failure_names_the_connection_that_it_ended() {
    let mut pair = Pair::new("failed_connection");
    let (qpns, ids) = pair.connect_by_cm(service_id::tcp(16));
    pair.sides[0].events.clear();
    let nowhere = Remote { address: 0, key: 1 };
    let from = pair.sides[0].memory.register(vec![9; 100], ALL);
    let write = SendRequest::new(1, Op::Write(nowhere), std::slice::from_ref(&from));
    pair.post(0, qpns[0], &write);
    assert!(pair.run_until(LONG, |p| !p.sides[0].events.is_empty()));
    pair.sides[0].engine.reset_qp(pair.now, qpns[0]);
    assert_ne!(pair.call(qpns[0], service_id::tcp(16)), ids[0]);
    assert!(matches!(
        pair.sides[0].events[0],
        Event::QpError { qpn, connection, .. } if (qpn, connection) == (qpns[0], Some(ids[0]))
    ));
}

/// dat_ep_reset and dat_ep_connect while the end of the first connection is still kept for repetitions.
fn a_failure_names_the_connection_that_came_after_one_that_is_kept() {
    let mut pair = Pair::new("connected_again");
    let service = service_id::tcp(17);
    let (qpns, ids) = pair.connect_by_cm(service);
    pair.sides[0].engine.disconnect(pair.now, ids[0]).unwrap();
    let moment = Duration::from_secs(1);
    assert!(pair.run_until(moment, |p| !p.sides[0].engine.is_leaving()));
    for (side, qpn) in pair.sides.iter_mut().zip(qpns) {
        side.engine.reset_qp(pair.now, qpn);
        side.events.clear();
        assert_eq!(side.engine.connections(), 1, "the old one");
    }
    let ids = [pair.call(qpns[0], service), pair.answer(qpns[1])];
    pair.run_until(10 * moment, |_| false);
    for side in &mut pair.sides {
        assert_eq!(side.engine.connections(), 1, "the new one");
        side.events.clear();
    }
    let nowhere = Remote { address: 0, key: 1 };
    let from = pair.sides[0].memory.register(vec![9; 100], ALL);
    pair.post(
        0,
        qpns[0],
        &SendRequest::new(1, Op::Write(nowhere), &[from]),
    );
    let failed = |p: &mut Pair| p.sides.iter().all(|side| !side.events.is_empty());
    assert!(pair.run_until(LONG, failed));
    for (side, id) in pair.sides.iter().zip(ids) {
        assert!(
            matches!(side.events[0], Event::QpError { connection, .. } if connection == Some(id)),
            "{:?}",
            side.events[0]
        );
    }
}

fn destroying_the_queue_pair_ends_its_connection() {
    let mut pair = Pair::new("destroy");
    let (qpns, _) = pair.connect_by_cm(service_id::tcp(12));
    for side in &mut pair.sides {
        side.events.clear();
    }
    let now = pair.now;
    pair.sides[0].engine.destroy_qp(now, qpns[0]);
    assert_eq!(pair.sides[0].engine.qp_state(qpns[0]), None);
    pair.run();
    assert_eq!(pair.sides[1].cm_event().kind, CmEventKind::Disconnected);
    assert_ne!(pair.sides[0].qp(), qpns[0], "the number is not used again");
    for side in &pair.sides {
        assert_eq!(side.engine.connections(), 0);
    }
}

fn a_peer_known_to_be_gone_need_not_confirm_the_end() {
    let mut pair = Pair::new("gone");
    let (qpns, ids) = pair.connect_by_cm(service_id::tcp(13));
    let (now, there) = (pair.now, pair.sides[1].address.ip());
    let engine = &mut pair.sides[0].engine;
    engine.disconnect(now, ids[0]).unwrap();
    engine.forget_gone(now, |ip, qpn| (ip, qpn) != (there, qpns[1]));
    assert!(engine.is_leaving());
    engine.forget_gone(now, |ip, qpn| (ip, qpn) == (there, qpns[1]));
    assert!(!engine.is_leaving());
    assert_eq!(engine.connections(), 0);
}

fn the_last_acknowledgement_goes_before_the_disconnect() {
    let mut pair = Pair::new("last_ack");
    let (qpns, ids) = pair.connect_by_cm(service_id::tcp(14));
    pair.receive(1, qpns[1], 1, &[]);
    pair.post(0, qpns[0], &SendRequest::new(1, Op::Send, &[]));
    pair.hand_over(0);
    pair.sides[1].engine.disconnect(pair.now, ids[1]).unwrap();
    pair.run();
    assert_eq!(pair.sides[0].completions[0].status, Status::Success);
}

fn a_refusal_goes_before_the_disconnect_that_it_causes() {
    let mut pair = Pair::new("last_nak");
    let (qpns, ids) = pair.connect_by_cm(service_id::tcp(15));
    let from = pair.sides[0].memory.register(vec![9; 100], ALL);
    let nowhere = Remote { address: 0, key: 1 };
    pair.post(
        0,
        qpns[0],
        &SendRequest::new(1, Op::Write(nowhere), &[from]),
    );
    pair.hand_over(0);
    pair.sides[1].engine.disconnect(pair.now, ids[1]).unwrap();
    pair.run();
    assert_eq!(pair.sides[0].completions[0].status, Status::RemoteAccess);
}

/// The program frees its endpoint at once, so the NAK is never sent: the wire has lost it, or the channel had no room for it.
fn a_refusal_that_the_disconnect_overtakes_is_not_lost() {
    for op in [Op::Read, Op::Write] {
        let mut pair = Pair::new("overtaken_nak");
        let (qpns, ids) = pair.connect_by_cm(service_id::tcp(16));
        let memory = pair.sides[0].memory.register(vec![9; 100], ALL);
        let nowhere = Remote { address: 0, key: 1 };
        pair.receive(1, qpns[1], 1, &[]);
        pair.post(0, qpns[0], &SendRequest::new(1, Op::Send, &[]));
        pair.hand_over(0);
        pair.post(0, qpns[0], &SendRequest::new(2, op(nowhere), &[memory]));
        pair.hand_over(0);
        pair.post(0, qpns[0], &SendRequest::new(3, op(nowhere), &[memory]));
        pair.sides[1].engine.disconnect(pair.now, ids[1]).unwrap();
        pair.sides[1].engine.destroy_qp(pair.now, qpns[1]);
        pair.run();
        let statuses: Vec<_> = pair.sides[0].completions.iter().map(|c| c.status).collect();
        assert_eq!(
            statuses,
            [Status::Success, Status::RemoteAccess, Status::Flushed]
        );
    }
}

over_both_links!(
    a_disconnect_ends_both_sides_and_forgets_the_ids,
    a_delivered_message_is_not_flushed_when_its_acknowledgement_was_lost,
    a_disconnect_repeats_the_last_acknowledgement,
    a_failure_names_the_connection_that_it_ended,
    a_failure_names_the_connection_that_came_after_one_that_is_kept,
    destroying_the_queue_pair_ends_its_connection,
    a_peer_known_to_be_gone_need_not_confirm_the_end,
    the_last_acknowledgement_goes_before_the_disconnect,
    a_refusal_goes_before_the_disconnect_that_it_causes,
    a_refusal_that_the_disconnect_overtakes_is_not_lost,
);
