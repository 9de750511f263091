//! A path whose round trip is longer than the configured timeout: packets are not sent twice, and the window grows. A short path that loses
//! packets is not taken for one.

mod common;

use std::time::Duration;

use common::memory::ALL;
use common::pair::Pair;
use softrxe_proto::{Op, Psn, Qpn, Remote, SendRequest, Status};

/// Packets of all WRITEs, with the path MTU 1024.
const PACKETS: u64 = 60 * 64;

/// Posts 60 WRITEs of 64 KiB, and returns the time that they take.
fn write(pair: &mut Pair, qpns: [Qpn; 2]) -> Duration {
    transfer(pair, qpns, Op::Write)
}

/// Posts 60 WRITEs or READs of 64 KiB, and returns the time that they take.
fn transfer(pair: &mut Pair, qpns: [Qpn; 2], op: fn(Remote) -> Op) -> Duration {
    let (from, to) = match op(Remote { address: 0, key: 0 }) {
        Op::Read(_) => (1, 0),
        _ => (0, 1),
    };
    let regions = [0, 1].map(|side| {
        let byte = if side == from { 7 } else { 0 };
        pair.sides[side].memory.register(vec![byte; 65_536], ALL)
    });
    let [local, target] = regions;
    let remote = Remote {
        address: target.address,
        key: target.key,
    };
    for id in 0..60 {
        pair.post(0, qpns[0], &SendRequest::new(id, op(remote), &[local]));
    }
    let before = pair.now;
    let limit = Duration::from_secs(600);
    assert!(pair.run_until(limit, |pair| pair.sides[0].completions.len() == 60));
    let completions = std::mem::take(&mut pair.sides[0].completions);
    assert!(
        completions
            .iter()
            .all(|done| done.status == Status::Success)
    );
    assert_eq!(pair.sides[to].memory.bytes(&regions[to]), vec![7; 65_536]);
    pair.now.since(before)
}

#[test]
fn packets_are_sent_once_although_the_answer_takes_longer_than_the_timeout() {
    for own in [true, false] {
        for millis in [30, 100, 250] {
            let mut pair = Pair::new("long_path");
            (pair.own, pair.latency) = (own, Duration::from_millis(millis));
            let qpns = pair.connected_at([Psn::new(100), Psn::new(5000)]);
            let took = write(&mut pair, qpns);
            let counters = pair.sides[1].engine.counters();
            // Those sent before a round trip was measured.
            assert!(counters.duplicates <= 100, "{millis} ms: {counters:?}");
            // 30 windows of 128, and some until the window has grown.
            let round_trips = took.as_millis() / u128::from(2 * millis);
            assert!(round_trips <= 45, "{millis} ms: {round_trips} round trips");
            let repeated = pair.sides[0].engine.counters().timeouts;
            write(&mut pair, qpns);
            assert_eq!(pair.sides[0].engine.counters().timeouts, repeated);
            assert!(pair.sent < 4 * PACKETS, "{} packets", pair.sent);
        }
    }
}

#[test]
fn the_receive_buffer_of_this_side_limits_reads_only_of_a_foreign_peer() {
    let mut pair = Pair::with("foreign_window", 1, |config| config.max_window = 48);
    (pair.own, pair.latency) = (false, Duration::from_millis(10));
    let qpns = pair.connected();
    write(&mut pair, qpns);
    let mut windows = |op| PACKETS / (transfer(&mut pair, qpns, op).as_millis() as u64 / 20);
    assert!(windows(Op::Write) > 100);
    let reads = windows(Op::Read);
    assert!((32..=48).contains(&reads), "{reads}");
}

#[test]
fn a_loss_is_repeated_soon_again_once_the_path_is_short() {
    let mut pair = Pair::new("path_gets_short");
    pair.latency = Duration::from_millis(250);
    let qpns = pair.connected();
    write(&mut pair, qpns);
    pair.latency = common::pair::LATENCY;
    // The last packet of a run: only a timeout repeats it.
    let mut waits = Vec::new();
    for _ in 0..8 {
        let mut sent = 0;
        pair.filter = Box::new(move |packet| {
            sent += u64::from(packet.to == 1);
            packet.to == 0 || sent != PACKETS
        });
        waits.push(write(&mut pair, qpns));
    }
    assert!(waits[7] < Duration::from_millis(200), "{waits:?}");
}

/// Keeps 16 WRITEs of 64 bytes outstanding until 2000 are done, with 20 % of the packets lost. Returns the time for each timeout.
fn small_writes(name: &str, latency: Duration) -> Duration {
    let mut pair = Pair::new(name);
    (pair.latency, pair.faults.loss) = (latency, 200);
    let qpns = pair.connected();
    let local = pair.sides[0].memory.register(vec![7; 64], ALL);
    let target = pair.sides[1].memory.register(vec![0; 64], ALL);
    let remote = Remote {
        address: target.address,
        key: target.key,
    };
    let before = pair.now;
    let mut posted = 0;
    while pair.sides[0].completions.len() < 2000 {
        while posted < pair.sides[0].completions.len() as u64 + 16 {
            pair.post(
                0,
                qpns[0],
                &SendRequest::new(posted, Op::Write(remote), &[local]),
            );
            posted += 1;
        }
        let done = pair.sides[0].completions.len();
        let limit = Duration::from_secs(60);
        assert!(pair.run_until(limit, |pair| pair.sides[0].completions.len() > done));
    }
    pair.now.since(before) / pair.sides[0].engine.counters().timeouts as u32
}

#[test]
fn lost_answers_do_not_make_a_short_path_a_long_one() {
    // 50 ms for a timeout, and more for the second and third ones in a row.
    let each = small_writes("short_path_with_losses", common::pair::LATENCY);
    assert!(each < Duration::from_millis(100), "{each:?}");
    // Nor one whose round trip is not much shorter than the timeout: three round trips and the timeout, and more for those in a row.
    let each = small_writes("longer_path_with_losses", Duration::from_millis(10));
    assert!(each < Duration::from_millis(150), "{each:?}");
}
