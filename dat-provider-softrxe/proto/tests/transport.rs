//! The reliable connection between two engines: every operation, every byte checked.

mod common;

use common::Rng;
use common::memory::ALL;
use common::pair::Pair;
use softrxe_proto::{
    CompletedOp, Completion, Op, Psn, QpState, Remote, Rights, SendRequest, Sge, Status,
};

fn remote(sge: &Sge) -> Remote {
    Remote {
        address: sge.address,
        key: sge.key,
    }
}

#[track_caller]
fn only(completions: &mut Vec<Completion>) -> Completion {
    assert_eq!(completions.len(), 1, "{completions:?}");
    completions.remove(0)
}

/// Lengths around multiples of the path MTU.
const LENGTHS: [usize; 12] = [0, 1, 2, 3, 7, 8, 1023, 1024, 1025, 2048, 5000, 100_000];

fn sends_of_every_length_arrive_whole_and_in_order() {
    let mut pair = Pair::new("sends");
    let [a, b] = pair.connected();
    let mut rng = Rng::new(5);
    for (i, length) in LENGTHS.into_iter().enumerate() {
        let data = rng.bytes(length);
        let from = pair.sides[0]
            .memory
            .register(data.clone(), Rights::LOCAL_READ);
        let to = pair.sides[1].memory.register(vec![0; length + 3], ALL);
        pair.receive(1, b, 100 + i as u64, &[to]);
        pair.post(0, a, &SendRequest::new(i as u64, Op::Send, &[from]));
        pair.run();
        let sent = only(&mut pair.sides[0].completions);
        assert_eq!((sent.wr_id, sent.status), (i as u64, Status::Success));
        let got = only(&mut pair.sides[1].completions);
        assert_eq!(
            (got.wr_id, got.status, got.op, got.length, got.token),
            (
                100 + i as u64,
                Status::Success,
                CompletedOp::Receive,
                length as u32,
                99
            )
        );
        let bytes = pair.sides[1].memory.bytes(&to);
        assert_eq!(bytes[..length], data);
        assert_eq!(bytes[length..], [0; 3]);
    }
}

fn writes_and_reads_of_every_length() {
    for (mtu, own) in [256, 512, 1024, 2048, 4096]
        .map(|mtu| [(mtu, true), (mtu, false)])
        .into_iter()
        .flatten()
    {
        let mut pair = Pair::with("write_read", 3, |c| c.mtu = mtu);
        pair.own = own;
        let [a, _] = pair.connected();
        let mut rng = Rng::new(6);
        for length in LENGTHS {
            let data = rng.bytes(length);
            let from = pair.sides[0]
                .memory
                .register(data.clone(), Rights::LOCAL_READ);
            let back = pair.sides[0].memory.register(vec![0; length], ALL);
            let there = pair.sides[1].memory.register(vec![0xee; length + 8], ALL);
            let write = Op::Write(remote(&there));
            let read = Op::Read(remote(&there));
            pair.post(0, a, &SendRequest::new(1, write, &[from]));
            pair.post(0, a, &SendRequest::new(2, read, &[back]));
            pair.run();
            let done: Vec<_> = pair.sides[0].completions.drain(..).collect();
            assert_eq!(
                done.iter()
                    .map(|c| (c.wr_id, c.status, c.op, c.length))
                    .collect::<Vec<_>>(),
                [
                    (1, Status::Success, CompletedOp::Write, length as u32),
                    (2, Status::Success, CompletedOp::Read, length as u32)
                ],
                "mtu {mtu} own {own} length {length}"
            );
            let bytes = pair.sides[1].memory.bytes(&there);
            assert_eq!(bytes[..length], data);
            assert_eq!(bytes[length..], [0xee; 8]);
            assert_eq!(pair.sides[0].memory.bytes(&back), data);
        }
    }
}

fn psns_wrap_in_the_middle_of_messages() {
    for start in 0xff_fff0..=0xff_ffff {
        let mut pair = Pair::with("wrap", 9, |c| c.mtu = 256);
        let [a, b] = pair.connected_at([Psn::new(start), Psn::new(start + 3)]);
        let data = Rng::new(7).bytes(6000);
        let from = pair.sides[0].memory.register(data.clone(), ALL);
        let back = pair.sides[0].memory.register(vec![0; 6000], ALL);
        let there = pair.sides[1].memory.register(vec![0; 6000], ALL);
        let inbox = pair.sides[1].memory.register(vec![0; 6000], ALL);
        pair.receive(1, b, 9, &[inbox]);
        pair.post(
            0,
            a,
            &SendRequest::new(1, Op::Write(remote(&there)), &[from]),
        );
        pair.post(
            0,
            a,
            &SendRequest::new(2, Op::Read(remote(&there)), &[back]),
        );
        pair.post(0, a, &SendRequest::new(3, Op::Send, &[from]));
        pair.run();
        assert_eq!(pair.sides[0].completions.len(), 3);
        assert_eq!(pair.sides[0].memory.bytes(&back), data);
        assert_eq!(pair.sides[1].memory.bytes(&inbox), data);
    }
}

fn immediate_data_and_solicited_events_arrive_with_their_message() {
    let mut pair = Pair::new("immediate");
    let [a, b] = pair.connected();
    let from = pair.sides[0].memory.register(vec![5; 3000], ALL);
    let there = pair.sides[1].memory.register(vec![0; 3000], ALL);
    let inbox = pair.sides[1].memory.register(vec![0; 3000], ALL);
    pair.receive(1, b, 1, &[inbox]);
    pair.receive(1, b, 2, &[inbox]);
    let write = Op::WriteImm(remote(&there), *b"wimm");
    pair.post(0, a, &SendRequest::new(1, write, &[from]));
    let mut send = SendRequest::new(2, Op::SendImm(*b"simm"), &[]);
    send.solicited = true;
    pair.post(0, a, &send);
    pair.run();
    let got = &pair.sides[1].completions;
    assert_eq!(
        (got[0].op, got[0].length, got[0].immediate),
        (CompletedOp::ReceiveWriteImm, 3000, Some(*b"wimm"))
    );
    assert_eq!(
        (got[1].op, got[1].length, got[1].immediate, got[1].solicited),
        (CompletedOp::Receive, 0, Some(*b"simm"), true)
    );
    assert_eq!(pair.sides[1].memory.bytes(&there), vec![5; 3000]);
}

fn atomics_return_the_value_before() {
    let mut pair = Pair::new("atomics");
    let [a, _] = pair.connected();
    let old = pair.sides[0].memory.register(vec![0; 32], ALL);
    let there = pair.sides[1]
        .memory
        .register(40u64.to_ne_bytes().to_vec(), ALL);
    let target = remote(&there);
    let slot = |i: u64| Sge {
        address: old.address + 8 * i,
        length: 8,
        key: old.key,
    };
    let add = Op::FetchAdd {
        remote: target,
        add: 2,
    };
    let miss = Op::CompareSwap {
        remote: target,
        compare: 0,
        swap: 1,
    };
    let hit = Op::CompareSwap {
        remote: target,
        compare: 42,
        swap: u64::MAX,
    };
    for (i, op) in [add, miss, hit, add].into_iter().enumerate() {
        pair.post(0, a, &SendRequest::new(i as u64, op, &[slot(i as u64)]));
    }
    pair.run();
    let values: Vec<u64> = pair.sides[0]
        .memory
        .bytes(&old)
        .chunks(8)
        .map(|b| u64::from_ne_bytes(b.try_into().unwrap()))
        .collect();
    assert_eq!(values, [40, 42, 42, u64::MAX]);
    assert_eq!(pair.sides[1].memory.bytes(&there), 1u64.to_ne_bytes());
}

#[test]
fn a_run_is_of_equal_packets_and_small_messages_share_one() {
    let mut pair = Pair::new("runs");
    let [a, _] = pair.connected();
    let from = pair.sides[0].memory.register(vec![1; 64], ALL);
    let there = pair.sides[1].memory.register(vec![0; 64], ALL);
    for i in 0..16 {
        pair.post(
            0,
            a,
            &SendRequest::new(i, Op::Write(remote(&there)), &[from]),
        );
    }
    let mut buffer = vec![0; 65_000];
    let now = pair.now;
    let run = pair.sides[0]
        .engine
        .poll_transmit(now, &mut buffer)
        .unwrap();
    assert_eq!((run.packets(), run.segment), (16, 12 + 16 + 64 + 4));
    assert!(
        pair.sides[0]
            .engine
            .poll_transmit(now, &mut buffer)
            .is_none()
    );
}

fn one_acknowledgement_answers_a_batch() {
    let mut pair = Pair::new("batch");
    let [a, _] = pair.connected();
    let from = pair.sides[0].memory.register(vec![1; 64], ALL);
    let there = pair.sides[1].memory.register(vec![0; 64], ALL);
    for i in 0..10 {
        pair.post(
            0,
            a,
            &SendRequest::new(i, Op::Write(remote(&there)), &[from]),
        );
    }
    pair.run();
    assert_eq!(pair.sides[0].completions.len(), 10);
    assert_eq!(pair.sides[1].engine.counters().sent, 1);
}

fn a_request_that_is_not_signaled_completes_only_with_a_failure() {
    let mut pair = Pair::new("unsignaled");
    let [a, b] = pair.connected();
    let silent = |id| SendRequest {
        signaled: false,
        ..SendRequest::new(id, Op::Send, &[])
    };
    for id in 0..3 {
        pair.receive(1, b, id, &[]);
    }
    pair.post(0, a, &silent(0));
    pair.post(0, a, &SendRequest::new(1, Op::Send, &[]));
    pair.post(0, a, &silent(2));
    pair.run();
    assert_eq!(pair.sides[1].completions.len(), 3);
    assert_eq!(only(&mut pair.sides[0].completions).wr_id, 1);
    pair.sides[0].engine.fail_qp(pair.now, a);
    pair.post(0, a, &silent(3));
    pair.run();
    let flushed = only(&mut pair.sides[0].completions);
    assert_eq!((flushed.wr_id, flushed.status), (3, Status::Flushed));
}

fn an_error_flushes_what_is_outstanding_in_order() {
    let mut pair = Pair::new("flush");
    let [a, b] = pair.connected();
    let inbox = pair.sides[1].memory.register(vec![0; 64], ALL);
    pair.receive(1, b, 7, &[inbox]);
    pair.receive(1, b, 8, &[inbox]);
    let now = pair.now;
    pair.sides[1].engine.fail_qp(now, b);
    assert_eq!(pair.sides[1].engine.qp_state(b), Some(QpState::Error));
    pair.receive(1, b, 9, &[inbox]);
    pair.run();
    let flushed: Vec<_> = pair.sides[1].completions.drain(..).collect();
    assert_eq!(
        flushed
            .iter()
            .map(|c| (c.wr_id, c.status))
            .collect::<Vec<_>>(),
        [
            (7, Status::Flushed),
            (8, Status::Flushed),
            (9, Status::Flushed)
        ]
    );
    // The peer does not exist: after all retries its request fails, and those after it are flushed.
    let from = pair.sides[0].memory.register(vec![1; 64], ALL);
    for i in 0..3 {
        pair.post(0, a, &SendRequest::new(i, Op::Send, &[from]));
    }
    pair.run();
    let ended: Vec<_> = pair.sides[0].completions.iter().map(|c| c.status).collect();
    assert_eq!(
        ended,
        [Status::RetryExceeded, Status::Flushed, Status::Flushed]
    );
    assert_eq!(pair.sides[0].engine.counters().timeouts, 8);
}

#[test]
fn an_acknowledgement_that_is_held_back_goes_with_the_answer_or_with_the_next_poll() {
    let mut buffer = vec![0; 65_000];
    for (own, answers) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut pair = Pair::new("held");
        pair.own = own;
        let [a, b] = pair.connected();
        let from = pair.sides[0].memory.register(vec![1; 64], ALL);
        let to = pair.sides[1].memory.register(vec![0; 64], ALL);
        let back = pair.sides[0].memory.register(vec![0; 64], ALL);
        let now = pair.now;
        pair.receive(0, a, 9, &[back]);
        pair.receive(1, b, 1, &[to]);
        pair.post(0, a, &SendRequest::new(2, Op::Send, &[from]));
        assert!(!pair.sides[1].engine.owes_ack());
        pair.hand_over(0);
        let peer = &mut pair.sides[1].engine;
        for _ in 0..2 {
            assert!(peer.owes_ack());
            assert_eq!(peer.poll_transmit_data(now, &mut buffer), None);
        }
        let mut done = [Completion::default(); 4];
        assert_eq!(peer.poll_cq(pair.sides[1].cq, &mut done), 1);
        if answers {
            pair.post(1, b, &SendRequest::new(3, Op::Send, &[to]));
        }
        // An answer with the acknowledgement behind its headers; or the acknowledgement before it, or alone.
        let with_answer = own && answers;
        assert_eq!(pair.hand_over(1), [if with_answer { 84 } else { 20 }]);
        if answers && !own {
            assert_eq!(pair.hand_over(1), [80]);
        }
        assert_eq!(
            pair.sides[1].engine.poll_transmit(now, &mut [0; 4200]),
            None
        );
        assert!(!pair.sides[1].engine.owes_ack());
        pair.run();
        let expected = if answers { 2 } else { 1 };
        assert_eq!(pair.sides[0].completions.len(), expected);
        pair.sides[0].completions.clear();
        pair.sides[1].completions.clear();
        assert!(!pair.sides[0].engine.in_flight(a) && !pair.sides[1].engine.in_flight(b));
    }
}

#[test]
fn a_queue_pair_number_is_reused_as_late_as_possible() {
    // Several processes share an address: no bit is left for a salt.
    let shared = |bits| {
        move |c: &mut softrxe_proto::Config| {
            c.qp_bits = bits;
            c.qpn_prefix_bits = 24 - bits;
            c.qpn_prefix = 5;
        }
    };
    let mut pair = Pair::with("numbers", 1, shared(14));
    let mut seen = std::collections::HashSet::new();
    for _ in 0..1000 {
        let qpn = pair.sides[0].qp();
        assert!(seen.insert(qpn), "{qpn:?} again");
        pair.sides[0].engine.destroy_qp(pair.now, qpn);
    }
    // All slots of a small table are used before the first is reused, and none twice at a time.
    let mut pair = Pair::with("few_numbers", 1, shared(8));
    let init = pair.sides[0].init();
    let engine = &mut pair.sides[0].engine;
    let all: Vec<_> = std::iter::from_fn(|| engine.create_qp(&init).ok()).collect();
    assert_eq!(all.len(), 254);
    for (a, b) in [(7, 3), (3, 7)] {
        engine.destroy_qp(pair.now, all[a]);
        engine.destroy_qp(pair.now, all[b]);
        assert_eq!(engine.create_qp(&init), Ok(all[a]));
        assert_eq!(engine.create_qp(&init), Ok(all[b]));
        assert!(engine.create_qp(&init).is_err());
    }
}

over_both_links!(
    sends_of_every_length_arrive_whole_and_in_order,
    writes_and_reads_of_every_length,
    psns_wrap_in_the_middle_of_messages,
    immediate_data_and_solicited_events_arrive_with_their_message,
    atomics_return_the_value_before,
    one_acknowledgement_answers_a_batch,
    a_request_that_is_not_signaled_completes_only_with_a_failure,
    an_error_flushes_what_is_outstanding_in_order,
);
