//! Long payloads that records lend: the receiver copies them out of the sender's memory, or gets them once more, copied.

mod common;

use common::channel;
use common::memory::{ALL, at};
use common::pair::{LATENCY, Pair};
use softrxe_proto::{Op, QpState, Qpn, SendRequest, Sge, Status, near};

const LENGTH: usize = 1_200_000;
/// Records that lend a message, or a READ response, of this length.
const PIECES: usize = LENGTH.div_ceil(near::MAX_LENT as usize);

fn bytes(seed: usize) -> Vec<u8> {
    (0..LENGTH)
        .map(|n| (n / 251 * 31 + n + seed) as u8)
        .collect()
}

/// Two sides with channels of an MTU of 32 KiB, which lend.
fn lending(name: &str) -> (Pair, [Qpn; 2]) {
    let mut pair = Pair::new(name);
    for side in 0..2 {
        for id in [channel::ID, channel::LOOP] {
            pair.sides[side].engine.near_down(pair.now, id);
        }
        pair.sides[side].memory.lend_records();
    }
    pair.open_channels(32_768);
    let qpns = pair.connected();
    (pair, qpns)
}

/// Posts a WRITE, a SEND and a READ of side `side`. Returns source, and destinations.
fn post_all(pair: &mut Pair, side: usize, qpns: [Qpn; 2]) -> (Sge, [(usize, Sge); 3]) {
    let memory = [0, 1].map(|i: usize| pair.sides[i].memory.clone());
    let from = memory[side].register(bytes(side), ALL);
    let source = memory[1 - side].register(bytes(side), ALL);
    let to = memory[1 - side].register(vec![0; LENGTH], ALL);
    let inbox = memory[1 - side].register(vec![0; LENGTH], ALL);
    let back = memory[side].register(vec![0; LENGTH], ALL);
    pair.receive(1 - side, qpns[1 - side], 9, &[inbox]);
    for (id, op, sge) in [
        (1, Op::Write(at(to)), from),
        (2, Op::Send, from),
        (3, Op::Read(at(source)), back),
    ] {
        pair.post(side, qpns[side], &SendRequest::new(id, op, &[sge]));
    }
    (from, [(1 - side, to), (1 - side, inbox), (side, back)])
}

fn assert_all_arrived(pair: &Pair, side: usize, places: [(usize, Sge); 3], what: &str) {
    for (index, (of, place)) in places.into_iter().enumerate() {
        let got = pair.sides[of].memory.bytes(&place);
        assert!(got == bytes(side), "{what}: destination {index}");
    }
}

fn statuses(pair: &Pair, side: usize) -> Vec<Status> {
    let completions = pair.sides[side].completions.iter();
    completions.map(|c| c.status).collect()
}

#[test]
fn long_messages_are_lent_in_large_pieces() {
    channel::run_over_channel(|| {
        let (mut pair, qpns) = lending("lent_all");
        let before = pair.sides[0].engine.counters().sent;
        let (_, places) = post_all(&mut pair, 0, qpns);
        pair.run();
        assert_eq!(statuses(&pair, 0), [Status::Success; 3]);
        assert_all_arrived(&pair, 0, places, "all");
        assert_eq!(pair.sides[0].memory.records_lent(), 2 * PIECES);
        // Two READ requests of 16 packets each, and one for the rest.
        assert_eq!(pair.sides[1].memory.records_lent(), 3);
        assert_eq!(pair.sides[0].engine.counters().go_backs, 0);
        let sent = pair.sides[0].engine.counters().sent - before;
        assert_eq!(sent as usize, 2 * PIECES + 3);
    });
}

#[test]
fn short_messages_and_lists_of_segments_are_copied() {
    channel::run_over_channel(|| {
        let (mut pair, [a, _]) = lending("lent_short");
        let memory = [0, 1].map(|i: usize| pair.sides[i].memory.clone());
        let from = memory[0].register(bytes(5), ALL);
        let to = memory[1].register(vec![0; LENGTH], ALL);
        let short = Sge {
            length: near::MIN_LENT - 1,
            ..from
        };
        let rest = Sge {
            address: from.address + u64::from(short.length),
            length: 100_000,
            ..from
        };
        let write = Op::Write(at(to));
        pair.post(0, a, &SendRequest::new(1, write, &[short]));
        pair.post(0, a, &SendRequest::new(2, write, &[short, rest]));
        pair.run();
        assert_eq!(statuses(&pair, 0), [Status::Success; 2]);
        let length = (short.length + rest.length) as usize;
        assert!(memory[1].bytes(&to)[..length] == bytes(5)[..length]);
        assert_eq!(memory[0].records_lent(), 0);
    });
}

/// Each of the first payloads in turn is the first one that cannot be read, once and for ever.
#[test]
fn what_cannot_be_read_is_repeated_and_copied() {
    channel::run_over_channel(|| {
        for at_side in [0, 1] {
            for (good, failing) in (0..3 * PIECES)
                .map(|good| (good, 1))
                .chain([(0, usize::MAX)])
            {
                let what = format!("side {at_side}, {good} then {failing}");
                let (mut pair, qpns) = lending("lent_unreadable");
                let memory = pair.sides[at_side].memory.clone();
                memory.fail_pulls(good..good.saturating_add(failing));
                let first = post_all(&mut pair, 0, qpns).1;
                let second = post_all(&mut pair, 1, qpns).1;
                pair.run();
                for (side, places) in [(0, first), (1, second)] {
                    assert_eq!(statuses(&pair, side), [Status::Success; 4], "{what}");
                    assert_all_arrived(&pair, side, places, &what);
                }
                let withdrawn = pair.sides[at_side].engine.counters().withdrawn;
                assert!(withdrawn > 0, "{what}");
                assert_eq!(pair.sides[0].engine.counters().timeouts, 0, "{what}");
            }
        }
    });
}

/// The response of the second READ waits for room while both are repeated, and comes before that of the first, which the requester misses.
#[test]
fn a_read_whose_response_waited_while_it_was_repeated_completes() {
    channel::run_over_channel(|| {
        let (mut pair, [a, _]) = lending("lent_waited");
        let memory = [0, 1].map(|i: usize| pair.sides[i].memory.clone());
        memory[0].fail_pulls(0..1);
        let source = memory[1].register(bytes(1), ALL);
        let back = [0, 1].map(|_| memory[0].register(vec![0; 100_000], ALL));
        let some = |pair: &mut Pair| {
            let end = pair.now + 3 * LATENCY;
            pair.run_until(3 * LATENCY, |_| false);
            pair.now = end;
        };
        let post = |pair: &mut Pair, id: usize| {
            let read = Op::Read(at(source));
            pair.post(0, a, &SendRequest::new(id as u64, read, &[back[id]]));
        };
        pair.channels.as_mut().unwrap().stop(1, true);
        post(&mut pair, 0);
        some(&mut pair);
        assert_eq!(memory[1].records_lent(), 1);
        pair.channels.as_mut().unwrap().set_full(1, true);
        post(&mut pair, 1);
        some(&mut pair);
        pair.channels.as_mut().unwrap().stop(1, false);
        some(&mut pair);
        assert_eq!(pair.sides[0].engine.counters().withdrawn, 1);
        assert_eq!(pair.sides[1].engine.counters().duplicates, 2);
        assert_eq!(memory[1].records_lent(), 1, "the second one waits");
        pair.channels.as_mut().unwrap().set_full(1, false);
        pair.run();
        assert_eq!(statuses(&pair, 0), [Status::Success; 2]);
        for to in &back {
            assert!(memory[0].bytes(to) == bytes(1)[..100_000]);
        }
        assert_eq!(pair.sides[0].engine.counters().timeouts, 0);
    });
}

#[test]
fn memory_that_is_deregistered_meanwhile_is_not_read() {
    channel::run_over_channel(|| {
        // The requester's own memory.
        let (mut pair, [a, _]) = lending("lent_own_freed");
        let memory = [0, 1].map(|i: usize| pair.sides[i].memory.clone());
        let from = memory[0].register(bytes(1), ALL);
        let to = memory[1].register(vec![0; LENGTH], ALL);
        pair.post(0, a, &SendRequest::new(1, Op::Write(at(to)), &[from]));
        pair.transmit();
        assert!(memory[0].records_lent() > 0);
        memory[0].deregister(from.key);
        pair.run();
        assert_eq!(statuses(&pair, 0), [Status::LocalProtection]);
        assert!(memory[1].bytes(&to) == vec![0; LENGTH]);

        // What the peer reads.
        let (mut pair, [a, _]) = lending("lent_read_freed");
        let memory = [0, 1].map(|i: usize| pair.sides[i].memory.clone());
        let source = memory[1].register(bytes(1), ALL);
        let back = memory[0].register(vec![0; LENGTH], ALL);
        pair.post(0, a, &SendRequest::new(1, Op::Read(at(source)), &[back]));
        let lent = |pair: &mut Pair| pair.sides[1].memory.records_lent() > 0;
        assert!(pair.run_until(std::time::Duration::from_secs(1), lent));
        memory[1].deregister(source.key);
        pair.run();
        assert_eq!(statuses(&pair, 0), [Status::RemoteAccess]);
        assert!(memory[0].bytes(&back) == vec![0; LENGTH]);
    });
}

/// The response of the READ is void, and the WRITE behind it is refused before the READ is repeated.
#[test]
fn a_read_of_memory_that_is_deregistered_fails_with_a_refused_write_behind_it() {
    channel::run_over_channel(|| {
        let (mut pair, [a, _]) = lending("lent_read_refused");
        let memory = [0, 1].map(|i: usize| pair.sides[i].memory.clone());
        let source = memory[1].register(bytes(1), ALL);
        let back = memory[0].register(vec![0; 100_000], ALL);
        pair.post(0, a, &SendRequest::new(1, Op::Read(at(source)), &[back]));
        let lent = |pair: &mut Pair| pair.sides[1].memory.records_lent() > 0;
        assert!(pair.run_until(std::time::Duration::from_secs(1), lent));
        memory[1].deregister(source.key);
        pair.post(0, a, &SendRequest::new(2, Op::Write(at(source)), &[back]));
        pair.run();
        let expected = [Status::RemoteAccess, Status::Flushed];
        assert_eq!(statuses(&pair, 0), expected);
        assert_eq!(pair.sides[0].engine.counters().timeouts, 0);
    });
}

/// The consumer may change the memory of a request that was flushed.
#[test]
fn the_end_of_a_queue_pair_takes_back_what_it_lends() {
    channel::run_over_channel(|| {
        for (what, state) in [
            ("fail", Some(QpState::Error)),
            ("reset", Some(QpState::Init)),
            ("destroy", None),
        ] {
            let (mut pair, [a, b]) = lending("lent_recalled");
            let memory = [0, 1].map(|i: usize| pair.sides[i].memory.clone());
            let from = memory[0].register(bytes(1), ALL);
            let to = memory[1].register(vec![0; LENGTH], ALL);
            pair.post(0, a, &SendRequest::new(1, Op::Write(at(to)), &[from]));
            pair.transmit();
            assert!(memory[0].records_lent() > 0);
            let engine = &mut pair.sides[0].engine;
            match what {
                "fail" => engine.fail_qp(pair.now, a),
                "reset" => engine.reset_qp(pair.now, a),
                _ => engine.destroy_qp(pair.now, a),
            }
            assert_eq!(engine.qp_state(a), state, "{what}");
            memory[0].fill(&from, &vec![0xee; LENGTH]);
            pair.run();
            assert!(memory[1].bytes(&to) == vec![0; LENGTH], "{what}");
            let withdrawn = pair.sides[1].engine.counters().withdrawn;
            assert_eq!(withdrawn, 1, "{what}");
            if what == "fail" {
                let peer = pair.sides[1].engine.qp_state(b);
                assert_eq!(peer, Some(QpState::ReadyToSend));
            }
        }
    });
}
