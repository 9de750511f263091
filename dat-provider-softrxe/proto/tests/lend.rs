//! Payload that the driver sends from its place: the packets are those of a copy. If the consumer changes the payload
//! against the rules, the packet is repeated.

mod common;

use std::time::Duration;

use common::Rng;
use common::memory::ALL;
use common::pair::Pair;
use softrxe_proto::{Op, Qpn, Remote, SendRequest, Sge, Status};

/// Splits `sge` at `cuts`.
fn cut(sge: Sge, cuts: &[u32]) -> Vec<Sge> {
    let mut from = 0;
    let mut parts = Vec::new();
    for to in cuts.iter().copied().chain([sge.length]) {
        parts.push(Sge {
            address: sge.address + u64::from(from),
            length: to - from,
            key: sge.key,
        });
        from = to;
    }
    parts
}

/// Returns all runs of `length` bytes cut at `cuts`, for each operation with a payload, and the number of lent payloads.
fn runs(lends: bool, own: bool, length: usize, cuts: &[u32]) -> (Vec<Vec<u8>>, usize) {
    let mut pair = Pair::new("lend");
    pair.own = own;
    let [a, _] = pair.connected();
    let memory = pair.sides[0].memory.clone();
    if lends {
        memory.lend_payload();
    }
    let local = memory.register(Rng::new(length as u64).bytes(length), ALL);
    let remote = Remote {
        address: 1 << 40,
        key: 0x1234,
    };
    let sges = cut(local, cuts);
    for op in [
        Op::Write(remote),
        Op::Send,
        Op::SendInvalidate(9),
        Op::WriteImm(remote, [1, 2, 3, 4]),
    ] {
        pair.post(0, a, &SendRequest::new(1, op, &sges));
    }
    let (mut runs, mut lent) = (Vec::new(), 0);
    let mut buffer = vec![0xa5; 65_000];
    while let Some(run) = pair.sides[0].engine.poll_transmit(pair.now, &mut buffer) {
        lent += memory.gather(&mut buffer[..run.length]);
        runs.push(buffer[..run.length].to_vec());
    }
    (runs, lent)
}

#[test]
fn lent_payload_makes_the_packets_that_copies_make() {
    for own in [false, true] {
        for length in [0, 1, 255, 256, 257, 1023, 1024, 1025, 3000, 9000] {
            for cuts in [vec![], vec![100], vec![1024], vec![700, 2500]] {
                let cuts: Vec<u32> = cuts.into_iter().filter(|at| *at < length as u32).collect();
                let (copied, none) = runs(false, own, length, &cuts);
                let (gathered, lent) = runs(true, own, length, &cuts);
                assert_eq!(copied, gathered, "{own} {length} {cuts:?}");
                assert_eq!(none, 0);
                if cuts.is_empty() && length <= 3000 {
                    // Every packet of four messages, except short tails; the longest message exceeds the window.
                    let tail = length % 1024;
                    let packets = length / 1024 + usize::from(tail >= 256);
                    assert_eq!(lent, 4 * packets, "{length}");
                }
            }
        }
    }
}

/// Creates a pair whose first side lends, and a message of 5000 bytes for the second.
fn lending() -> (Pair, [Qpn; 2], [Sge; 2]) {
    let mut pair = Pair::with("lending", 1, |c| c.ack_timeout = Duration::from_millis(1));
    let qpns = pair.connected();
    let from = pair.sides[0].memory.register(vec![1; 5000], ALL);
    let to = pair.sides[1].memory.register(vec![0; 5000], ALL);
    pair.sides[0].memory.lend_payload();
    pair.receive(1, qpns[1], 2, &[to]);
    (pair, qpns, [from, to])
}

#[test]
fn a_payload_that_changes_meanwhile_is_dropped_and_sent_again() {
    let (mut pair, [a, _], [from, to]) = lending();
    pair.post(0, a, &SendRequest::new(1, Op::Send, &[from]));
    // The consumer writes after the checksum was computed and before the packet is sent.
    let memory = pair.sides[0].memory.clone();
    let mut buffer = vec![0; 65_000];
    let now = pair.now;
    let run = pair.sides[0]
        .engine
        .poll_transmit(now, &mut buffer)
        .unwrap();
    memory.fill(&from, &[3; 3000]);
    assert_eq!(memory.gather(&mut buffer[..run.length]), 5);
    for (index, bytes) in buffer[..run.length].chunks(run.segment).enumerate() {
        let packet = common::pair::Packet {
            to: 1,
            ip_id: index as u16,
            source: pair.sides[0].address,
            bytes: bytes.to_vec(),
        };
        pair.deliver(&packet);
    }
    // Three packets are within the change or cut by its end. The first one is dropped, so the others arrive after a gap.
    let counters = pair.sides[1].engine.counters();
    assert_eq!((counters.bad_icrc, counters.out_of_sequence), (3, 2));
    assert_eq!(pair.sides[1].memory.bytes(&to), [0; 5000]);
    pair.run();
    for side in &pair.sides {
        assert_eq!(side.completions.len(), 1);
        assert_eq!(side.completions[0].status, Status::Success);
    }
    let mut want = [1; 5000];
    want[..3000].fill(3);
    assert_eq!(pair.sides[1].memory.bytes(&to), want);
}

#[test]
fn a_repetition_is_copied_so_that_it_arrives_however_often_the_payload_changes() {
    let (mut pair, [a, _], [from, to]) = lending();
    pair.post(0, a, &SendRequest::new(1, Op::Send, &[from]));
    let memory = pair.sides[0].memory.clone();
    let mut buffer = vec![0; 65_000];
    let mut lent = Vec::new();
    for _ in 0..3 {
        let side = &mut pair.sides[0].engine;
        let run = side.poll_transmit(pair.now, &mut buffer).unwrap();
        memory.fill(&from, &[lent.len() as u8 + 2; 5000]);
        lent.push(memory.gather(&mut buffer[..run.length]));
        pair.now = side.poll_timeout().unwrap();
        side.handle_timeout(pair.now);
    }
    assert_eq!(lent, [5, 0, 0]);
    pair.run();
    assert_eq!(pair.sides[0].completions[0].status, Status::Success);
    assert_eq!(pair.sides[1].memory.bytes(&to), [4; 5000]);
}

#[test]
fn freed_memory_is_not_lent() {
    let (mut pair, [a, _], [from, to]) = lending();
    pair.post(0, a, &SendRequest::new(1, Op::Send, &[from]));
    pair.sides[0].memory.deregister(from.key);
    pair.run();
    assert_eq!(pair.sides[0].completions[0].status, Status::LocalProtection);
    assert_eq!(pair.sides[1].memory.bytes(&to), [0; 5000]);
}
