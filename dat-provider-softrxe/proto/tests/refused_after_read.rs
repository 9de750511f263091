//! A refusal of a request behind a READ whose answer is missing: the peer's queue pair is in Error, and repeats no answer.

mod common;

use std::cell::RefCell;
use std::rc::Rc;

use common::memory::{ALL, at};
use common::pair::{Packet, Pair};
use softrxe_proto::opcode::Opcode;
use softrxe_proto::{Op, Remote, SendRequest, Sge, Status};

const LENGTH: usize = 100;

type Kept = Rc<RefCell<Vec<Packet>>>;

/// Posts a READ, a WRITE with a wrong key, and a SEND. The response of the READ does not arrive. Returns it, and where it is to be placed.
fn read_without_answer(name: &str) -> (Pair, Kept, Sge) {
    let mut pair = Pair::new(name);
    let [a, _] = pair.connected();
    let memory = [0, 1].map(|i: usize| pair.sides[i].memory.clone());
    let back = memory[0].register(vec![0; LENGTH], ALL);
    let there = memory[1].register(vec![7; LENGTH], ALL);
    let kept = Kept::default();
    let missing = Rc::clone(&kept);
    pair.filter = Box::new(move |packet| {
        let is_answer = packet.bytes[0] == Opcode::ReadResponseOnly as u8;
        if is_answer {
            missing.borrow_mut().push(packet.clone());
        }
        !is_answer
    });
    let wrong = Remote {
        key: there.key ^ 1,
        ..at(there)
    };
    for (id, op) in [(1, Op::Read(at(there))), (2, Op::Write(wrong))] {
        pair.post(0, a, &SendRequest::new(id, op, &[back]));
    }
    pair.post(0, a, &SendRequest::new(3, Op::Send, &[]));
    (pair, kept, back)
}

fn statuses(pair: &Pair) -> Vec<Status> {
    let completions = pair.sides[0].completions.iter();
    completions.map(|c| c.status).collect()
}

#[test]
fn the_read_fails_at_the_first_timeout() {
    let (mut pair, kept, _) = read_without_answer("refused_after_lost");
    pair.run();
    let expected = [Status::RemoteAccess, Status::Flushed, Status::Flushed];
    assert_eq!(statuses(&pair), expected);
    assert_eq!(pair.sides[0].engine.counters().timeouts, 1);
    assert_eq!(kept.borrow().len(), 1, "responses");
}

#[test]
fn the_read_completes_if_its_response_was_overtaken() {
    let (mut pair, kept, back) = read_without_answer("refused_after_late");
    let refused = |pair: &mut Pair| pair.sides[1].engine.counters().refused == 1;
    assert!(pair.run_until(common::pair::LATENCY * 4, refused));
    // The NAK arrives.
    pair.run_until(common::pair::LATENCY * 4, |_| false);
    assert_eq!(statuses(&pair), []);
    let late = kept.borrow_mut().pop().expect("a response");
    pair.deliver(&late);
    pair.run();
    let expected = [Status::Success, Status::RemoteAccess, Status::Flushed];
    assert_eq!(statuses(&pair), expected);
    assert_eq!(pair.sides[0].memory.bytes(&back), [7; LENGTH]);
    assert_eq!(pair.sides[0].engine.counters().timeouts, 0);
}

#[test]
fn a_send_between_the_read_and_the_refused_request_completes() {
    let mut pair = Pair::new("refused_after_send");
    let [a, b] = pair.connected();
    let memory = [0, 1].map(|i: usize| pair.sides[i].memory.clone());
    let back = memory[0].register(vec![0; LENGTH], ALL);
    let there = memory[1].register(vec![7; LENGTH], ALL);
    pair.receive(1, b, 9, &[]);
    let late: Kept = Kept::default();
    let kept = Rc::clone(&late);
    pair.filter = Box::new(move |packet| {
        let is_answer = packet.bytes[0] == Opcode::ReadResponseOnly as u8;
        if is_answer {
            kept.borrow_mut().push(packet.clone());
        }
        !is_answer
    });
    let wrong = Remote {
        key: there.key ^ 1,
        ..at(there)
    };
    let sges = [back];
    let requests = [
        SendRequest::new(1, Op::Read(at(there)), &sges),
        SendRequest::new(2, Op::Send, &[]),
        SendRequest::new(3, Op::Write(wrong), &sges),
        SendRequest::new(4, Op::Send, &[]),
    ];
    for request in &requests {
        pair.post(0, a, request);
    }
    // The NAK arrives before the response.
    pair.run_until(common::pair::LATENCY * 8, |_| false);
    assert_eq!(statuses(&pair), []);
    let response = late.borrow_mut().pop().expect("a response");
    pair.deliver(&response);
    pair.run();
    let received = pair.sides[1].completions.iter().map(|c| c.status);
    assert_eq!(received.collect::<Vec<_>>(), [Status::Success]);
    let expected = [
        Status::Success,
        Status::Success,
        Status::RemoteAccess,
        Status::Flushed,
    ];
    assert_eq!(statuses(&pair), expected);
    assert_eq!(pair.sides[0].engine.counters().timeouts, 0);
}
