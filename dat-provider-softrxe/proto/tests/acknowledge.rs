//! What an acknowledgement may name, and when the last one is sent.

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use common::memory::{ALL, at};
use common::pair::{Packet, Pair};
use softrxe_proto::opcode::Opcode;
use softrxe_proto::{Op, SendRequest, service_id};

const READ: u8 = Opcode::ReadRequest as u8;
const ADD: u8 = Opcode::FetchAdd as u8;
const DATA: u8 = Opcode::ReadResponseOnly as u8;
const OLD_VALUE: u8 = Opcode::AtomicAcknowledge as u8;
const ACK: u8 = Opcode::Acknowledge as u8;
const MANAGEMENT: u8 = Opcode::UdSendOnly as u8;

const MOMENT: Duration = Duration::from_millis(5);

type Seen = Rc<RefCell<Vec<(usize, u8, u32)>>>;

/// Records receiver, opcode and PSN of every packet, and drops those for which `passes` returns false.
fn watch(pair: &mut Pair, mut passes: impl FnMut(&Packet) -> bool + 'static) -> Seen {
    let seen = Seen::default();
    let noted = Rc::clone(&seen);
    pair.filter = Box::new(move |packet| {
        let seen = (packet.to, packet.bytes[0], packet.psn());
        noted.borrow_mut().push(seen);
        passes(packet)
    });
    seen
}

/// rdma_rxe takes an acknowledgement with the PSN of a READ or an atomic for the answer, and completes the request without
/// the data.
fn acknowledges_a_read_or_atomic(seen: &Seen) -> bool {
    let seen = seen.borrow();
    let asked = |psn| {
        seen.iter()
            .any(|s| s.2 == psn && [READ, ADD].contains(&s.1))
    };
    assert!(seen.iter().any(|s| [READ, ADD].contains(&s.1)));
    seen.iter().any(|s| s.0 == 0 && s.1 == ACK && asked(s.2))
}

#[test]
fn a_disconnect_does_not_acknowledge_a_read_whose_answer_was_lost() {
    for add in [false, true] {
        let mut pair = Pair::new("ack_hang_up");
        let (qpns, ids) = pair.connect_by_cm(service_id::tcp(9));
        let there = pair.sides[1].memory.register(vec![7; 8], ALL);
        let into = pair.sides[0].memory.register(vec![0; 8], ALL);
        let inbox = pair.sides[1].memory.register(vec![0; 8], ALL);
        pair.receive(1, qpns[1], 1, &[inbox]);
        let seen = watch(&mut pair, |packet| {
            ![DATA, OLD_VALUE].contains(&packet.bytes[0])
        });
        pair.post(0, qpns[0], &SendRequest::new(1, Op::Send, &[into]));
        let op = match add {
            false => Op::Read(at(there)),
            true => Op::FetchAdd {
                remote: at(there),
                add: 1,
            },
        };
        for number in 2..4 {
            pair.post(0, qpns[0], &SendRequest::new(number, op, &[into]));
        }
        pair.run_until(MOMENT, |_| false);
        let before = seen.borrow().len();
        pair.sides[1].engine.disconnect(pair.now, ids[1]).unwrap();
        pair.run_until(MOMENT, |_| false);
        // The message before them is acknowledged.
        assert_eq!(seen.borrow()[before].1, ACK);
        assert!(!acknowledges_a_read_or_atomic(&seen), "{seen:?}");
    }
}

#[test]
fn a_repeated_message_does_not_acknowledge_the_read_behind_it() {
    let mut pair = Pair::new("ack_repeated");
    let [a, b] = pair.connected();
    let there = pair.sides[1].memory.register(vec![7; 100], ALL);
    let inbox = pair.sides[1].memory.register(vec![0; 100], ALL);
    let into = pair.sides[0].memory.register(vec![0; 100], ALL);
    pair.receive(1, b, 1, &[inbox]);
    let mut reads = 0;
    let seen = watch(&mut pair, move |packet| {
        reads += u32::from(packet.bytes[0] == READ);
        // No answer of the first round arrives. The second READ is late, as from a peer that sends one request at a time.
        let lost = packet.to == 0 && reads < 2;
        let late = packet.bytes[0] == READ && reads == 2;
        !lost && !late
    });
    pair.post(0, a, &SendRequest::new(1, Op::Send, &[into]));
    pair.post(0, a, &SendRequest::new(2, Op::Read(at(there)), &[into]));
    assert!(
        pair.run_until(Duration::from_secs(9), |p| p.sides[0].completions.len()
            == 2)
    );
    assert!(!acknowledges_a_read_or_atomic(&seen), "{seen:?}");
    // One message at a time it succeeds.
    assert_eq!(pair.sides[0].memory.bytes(&into), [7; 100]);
    assert!(seen.borrow().iter().any(|s| (s.0, s.1) == (0, ACK)));
}

/// The delay of other acknowledgements does not matter.
#[test]
fn the_last_acknowledgement_is_not_delayed_behind_the_disconnect() {
    let mut pair = Pair::with("ack_delay", 1, |config| config.ack_delay = MOMENT);
    let (qpns, ids) = pair.connect_by_cm(service_id::tcp(14));
    pair.receive(1, qpns[1], 1, &[]);
    pair.post(0, qpns[0], &SendRequest::new(1, Op::Send, &[]));
    pair.hand_over(0);
    let seen = watch(&mut pair, |_| true);
    pair.sides[1].engine.disconnect(pair.now, ids[1]).unwrap();
    pair.run_until(2 * MOMENT, |_| false);
    let said: Vec<u8> = seen
        .borrow()
        .iter()
        .filter(|s| s.0 == 0)
        .map(|s| s.1)
        .collect();
    assert_eq!(said, [ACK, MANAGEMENT]);
}
