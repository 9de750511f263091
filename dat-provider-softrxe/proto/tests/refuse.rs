//! What a responder refuses without any change outside the granted memory, and how a requester handles the refusal.

mod common;

use std::time::Duration;

use common::Rng;
use common::lines::Lines;
use common::memory::ALL;
use common::pair::Pair;
use softrxe_proto::wire::{Bth, Headers, Packet as WirePacket, Reth};
use softrxe_proto::{
    CompletedOp, Event, MwBind, Op, QpState, Remote, Rights, SendRequest, Sge, Status, WindowType,
};
use tracing::Level;

const LOCAL: Rights = Rights::LOCAL_READ.union(Rights::LOCAL_WRITE);

fn remote(sge: &Sge, offset: i64) -> Remote {
    Remote {
        address: sge.address.wrapping_add_signed(offset),
        key: sge.key,
    }
}

/// Posts a request that must be refused with `status` and leave all memory of the target unchanged.
#[track_caller]
fn refused(name: &str, rights: Rights, status: Status, make: impl Fn(&Sge) -> (Op, u32)) {
    for own in [true, false] {
        refused_by(name, own, rights, status, &make);
    }
}

#[track_caller]
fn refused_by(
    name: &str,
    own: bool,
    rights: Rights,
    status: Status,
    make: impl Fn(&Sge) -> (Op, u32),
) {
    let mut pair = Pair::new(name);
    pair.own = own;
    let [a, b] = pair.connected();
    let local = pair.sides[0].memory.register(vec![0x77; 10_000], ALL);
    pair.sides[1].memory.register(vec![1; 5000], Rights::all());
    let there = pair.sides[1].memory.register(vec![2; 5000], rights);
    pair.sides[1].memory.register(vec![3; 5000], Rights::all());
    let before = pair.sides[1].memory.snapshot();
    let (op, length) = make(&there);
    let sge = Sge { length, ..local };
    pair.post(0, a, &SendRequest::new(1, op, &[sge]));
    pair.post(0, a, &SendRequest::new(2, Op::Send, &[]));
    pair.run();
    let ended: Vec<_> = pair.sides[0].completions.iter().map(|c| c.status).collect();
    assert_eq!(ended, [status, Status::Flushed], "{name}");
    assert_eq!(pair.sides[1].memory.snapshot(), before, "{name}");
    for (side, qpn) in pair.sides.iter().zip([a, b]) {
        assert_eq!(side.engine.qp_state(qpn), Some(QpState::Error), "{name}");
        assert!(matches!(side.events[..], [Event::QpError { .. }]), "{name}");
    }
}

fn accesses_that_are_not_granted() {
    let access = Status::RemoteAccess;
    let everything = Rights::all();
    refused("bad_key", everything, access, |t| {
        let wrong = Remote {
            key: t.key ^ 1,
            ..remote(t, 0)
        };
        (Op::Write(wrong), 100)
    });
    for (offset, length) in [(-1, 1), (5000, 1), (4999, 2), (i64::MIN, 8), (-1, 9000)] {
        refused("write_bounds", everything, access, |t| {
            (Op::Write(remote(t, offset)), length)
        });
        refused("read_bounds", everything, access, |t| {
            (Op::Read(remote(t, offset)), length)
        });
    }
    refused_by("write_end", false, everything, access, |t| {
        (Op::Write(remote(t, 0)), 5001)
    });
    refused("read_end", everything, access, |t| {
        (Op::Read(remote(t, 0)), 5001)
    });
    refused("no_write", LOCAL | Rights::REMOTE_READ, access, |t| {
        (Op::Write(remote(t, 0)), 3000)
    });
    refused("no_read", LOCAL | Rights::REMOTE_WRITE, access, |t| {
        (Op::Read(remote(t, 0)), 3000)
    });
    refused("no_atomic", LOCAL | Rights::REMOTE_WRITE, access, |t| {
        let remote = remote(t, 0);
        (Op::FetchAdd { remote, add: 1 }, 8)
    });
    refused(
        "misaligned",
        everything,
        Status::RemoteInvalidRequest,
        |t| {
            let remote = remote(t, 1);
            (Op::FetchAdd { remote, add: 1 }, 8)
        },
    );
}

/// To an engine of this project each packet of an RDMA WRITE is a request: the packets before the refused one are placed.
fn a_write_that_runs_over_the_end_changes_only_what_it_was_granted() {
    let mut pair = Pair::new("run_over");
    let [a, _] = pair.connected();
    let local = pair.sides[0].memory.register(vec![0x77; 10_000], ALL);
    let [below, there, above] =
        [1, 2, 3].map(|n| pair.sides[1].memory.register(vec![n; 5000], ALL));
    let sge = Sge {
        length: 5001,
        ..local
    };
    pair.post(
        0,
        a,
        &SendRequest::new(1, Op::Write(remote(&there, 0)), &[sge]),
    );
    pair.run();
    assert_eq!(pair.sides[0].completions[0].status, Status::RemoteAccess);
    let memory = &pair.sides[1].memory;
    let placed = 4 * 1024;
    assert_eq!(memory.bytes(&there)[..placed], vec![0x77; placed]);
    assert_eq!(memory.bytes(&there)[placed..], vec![2; 5000 - placed]);
    assert_eq!(memory.bytes(&below), vec![1; 5000]);
    assert_eq!(memory.bytes(&above), vec![3; 5000]);
}

fn a_queue_pair_without_the_right_refuses_before_the_key_is_looked_at() {
    let mut pair = Pair::new("qp_rights");
    let a = pair.sides[0].qp();
    let mut init = pair.sides[1].init();
    init.access = Rights::empty();
    let b = pair.sides[1].engine.create_qp(&init).unwrap();
    pair.join(
        [a, b],
        [softrxe_proto::Psn::new(1), softrxe_proto::Psn::new(2)],
    );
    let local = pair.sides[0].memory.register(vec![0; 8], ALL);
    let there = pair.sides[1].memory.register(vec![0; 8], ALL);
    pair.post(
        0,
        a,
        &SendRequest::new(1, Op::Write(remote(&there, 0)), &[local]),
    );
    pair.run();
    assert_eq!(
        pair.sides[0].completions[0].status,
        Status::RemoteInvalidRequest
    );
}

fn memory_that_is_freed_in_the_middle_is_not_touched_again() {
    for write in [true, false] {
        let mut pair = Pair::new("freed");
        let [a, _] = pair.connected();
        let local = pair.sides[0].memory.register(vec![9; 12_000], ALL);
        let there = pair.sides[1].memory.register(vec![0; 12_000], ALL);
        let op = match write {
            true => Op::Write(remote(&there, 0)),
            false => Op::Read(remote(&there, 0)),
        };
        pair.post(0, a, &SendRequest::new(1, op, &[local]));
        let mut packets = 0;
        let memory = pair.sides[1].memory.clone();
        pair.filter = Box::new(move |_| {
            packets += 1;
            if packets == 1 {
                memory.deregister(there.key);
            }
            true
        });
        pair.run();
        assert_eq!(pair.sides[0].completions[0].status, Status::RemoteAccess);
    }
}

fn a_local_key_that_is_wrong_fails_its_own_request() {
    let mut pair = Pair::new("local_key");
    let [a, _] = pair.connected();
    let there = pair.sides[1].memory.register(vec![0; 64], ALL);
    let wrong = Sge {
        address: 1,
        length: 8,
        key: 0xdead,
    };
    pair.post(
        0,
        a,
        &SendRequest::new(1, Op::Write(remote(&there, 0)), &[wrong]),
    );
    pair.run();
    assert_eq!(pair.sides[0].completions[0].status, Status::LocalProtection);
    assert_eq!(pair.sides[0].engine.qp_state(a), Some(QpState::Error));
}

fn a_message_longer_than_its_receive_fails_both() {
    let mut pair = Pair::new("too_long");
    let [a, b] = pair.connected();
    let local = pair.sides[0].memory.register(vec![9; 3000], ALL);
    let inbox = pair.sides[1].memory.register(vec![0; 5000], ALL);
    let short = Sge {
        length: 2000,
        ..inbox
    };
    pair.receive(1, b, 4, &[short]);
    pair.post(0, a, &SendRequest::new(1, Op::Send, &[local]));
    pair.run();
    assert_eq!(
        pair.sides[0].completions[0].status,
        Status::RemoteInvalidRequest
    );
    let got = pair.sides[1].completions[0];
    assert_eq!((got.wr_id, got.status), (4, Status::LocalLength));
    assert_eq!(pair.sides[1].memory.bytes(&inbox)[2000..], [0; 3000]);
}

fn a_send_waits_for_its_receive() {
    let mut pair = Pair::new("rnr");
    let [a, b] = pair.connected();
    let local = pair.sides[0].memory.register(vec![9; 3000], ALL);
    let inbox = pair.sides[1].memory.register(vec![0; 3000], ALL);
    let there = pair.sides[1].memory.register(vec![0; 3000], ALL);
    pair.post(0, a, &SendRequest::new(1, Op::Send, &[local]));
    let write = Op::WriteImm(remote(&there, 0), *b"late");
    pair.post(0, a, &SendRequest::new(2, write, &[local]));
    pair.run_until(Duration::from_millis(5), |_| false);
    assert!(pair.sides[0].completions.is_empty());
    let waits = pair.sides[1].engine.counters().rnr_sent;
    assert!((4..=9).contains(&waits), "{waits} waits of 0.64 ms in 5 ms");
    pair.receive(1, b, 1, &[inbox]);
    pair.run_until(Duration::from_millis(5), |_| false);
    assert_eq!(pair.sides[0].completions.len(), 1);
    pair.receive(1, b, 2, &[]);
    pair.run();
    assert_eq!(pair.sides[0].completions.len(), 2);
    assert_eq!(pair.sides[1].memory.bytes(&inbox), vec![9; 3000]);
    assert_eq!(pair.sides[1].memory.bytes(&there), vec![9; 3000]);
}

#[test]
fn rnr_retries_end_with_a_line_that_says_so() {
    let lines = Lines::from(Level::INFO);
    tracing::subscriber::with_default(lines.clone(), rnr_retries_end);
    let lines = lines.all();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["no receive posted", "rnr_retry", "peer=10.9.0.2:4791"] {
        assert!(lines[0].contains(part), "{part} in {lines:?}");
    }
}

fn rnr_retries_end() {
    let mut pair = Pair::new("rnr_end");
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    let psns = [softrxe_proto::Psn::new(1), softrxe_proto::Psn::new(2)];
    for i in 0..2 {
        let mut path = pair.path(1 - i, qpns[1 - i], [psns[i], psns[1 - i]]);
        path.rnr_retry = 3;
        pair.sides[i].engine.connect_qp(qpns[i], &path).unwrap();
    }
    pair.post(0, qpns[0], &SendRequest::new(1, Op::Send, &[]));
    pair.run();
    assert_eq!(
        pair.sides[0].completions[0].status,
        Status::RnrRetryExceeded
    );
    assert_eq!(pair.sides[1].engine.counters().rnr_sent, 4);
}

fn a_shared_receive_queue_serves_several_and_says_when_it_runs_low() {
    let mut pair = Pair::new("srq");
    let srq = pair.sides[1].engine.create_srq(8, 1).unwrap();
    let inbox = pair.sides[1].memory.register(vec![0; 10], ALL);
    for i in 0..4 {
        pair.sides[1]
            .engine
            .post_srq_recv(srq, i, &[inbox])
            .unwrap();
    }
    pair.sides[1].engine.set_srq_limit(srq, 3);
    let mut clients = Vec::new();
    for token in 0..2 {
        let mut init = pair.sides[1].init();
        init.srq = Some(srq);
        init.token = token;
        let b = pair.sides[1].engine.create_qp(&init).unwrap();
        let a = pair.sides[0].qp();
        pair.join(
            [a, b],
            [softrxe_proto::Psn::new(1), softrxe_proto::Psn::new(2)],
        );
        assert!(pair.sides[1].engine.post_recv(b, 1, &[inbox]).is_err());
        clients.push(a);
    }
    pair.post(0, clients[0], &SendRequest::new(1, Op::Send, &[]));
    pair.run();
    assert!(pair.sides[1].events.is_empty());
    pair.post(0, clients[1], &SendRequest::new(1, Op::Send, &[]));
    pair.run();
    assert_eq!(pair.sides[1].events, [Event::SrqLimit(srq)]);
    let got: Vec<_> = pair.sides[1]
        .completions
        .iter()
        .map(|c| (c.wr_id, c.token))
        .collect();
    assert_eq!(got, [(0, 0), (1, 1)]);
}

fn a_window_opens_and_the_peer_closes_it() {
    for kind in [WindowType::Type1, WindowType::Type2] {
        let mut pair = Pair::new("window");
        let [a, b] = pair.connected();
        let region = pair.sides[1]
            .memory
            .register(vec![0; 100], LOCAL | Rights::WINDOW_BIND);
        let local = pair.sides[0].memory.register(vec![5; 50], ALL);
        let old_key = pair.sides[1].memory.window();
        let bind = MwBind {
            window: old_key.into(),
            order: 1,
            new_key: old_key | 7,
            lkey: region.key,
            address: region.address + 10,
            length: 50,
            rights: Rights::REMOTE_WRITE,
            kind,
        };
        pair.post(1, b, &SendRequest::new(1, Op::Bind(bind), &[]));
        pair.run();
        let bound = pair.sides[1].completions.remove(0);
        assert_eq!(
            (bound.op, bound.status),
            (CompletedOp::Bind, Status::Success)
        );
        let window = Remote {
            address: region.address + 10,
            key: old_key | 7,
        };
        pair.post(0, a, &SendRequest::new(2, Op::Write(window), &[local]));
        pair.run();
        assert_eq!(pair.sides[0].completions[0].status, Status::Success);
        assert_eq!(pair.sides[1].memory.bytes(&region)[10..60], [5; 50]);

        pair.receive(1, b, 3, &[]);
        let close = Op::SendInvalidate(old_key | 7);
        pair.post(0, a, &SendRequest::new(3, close, &[]));
        pair.post(0, a, &SendRequest::new(4, Op::Write(window), &[local]));
        pair.run();
        let got = pair.sides[1].completions[0];
        let last: Vec<_> = pair.sides[0].completions[1..]
            .iter()
            .map(|c| c.status)
            .collect();
        if kind == WindowType::Type2 {
            assert_eq!(
                (got.status, got.invalidated),
                (Status::Success, Some(old_key | 7))
            );
            assert_eq!(last, [Status::Success, Status::RemoteAccess]);
        } else {
            // Only its own side may unbind a window of type 1.
            assert_eq!(got.status, Status::RemoteInvalidRequest);
            assert_eq!(last, [Status::RemoteInvalidRequest, Status::Flushed]);
        }
    }
}

fn a_local_request_completes_in_its_turn() {
    let mut pair = Pair::new("local_order");
    let [a, _] = pair.connected();
    let local = pair.sides[0].memory.register(vec![5; 5000], ALL);
    let there = pair.sides[1].memory.register(vec![0; 5000], ALL);
    let key = pair.sides[0].memory.window();
    let bind = MwBind {
        window: key.into(),
        order: 1,
        new_key: key | 1,
        lkey: local.key,
        address: local.address,
        length: 8,
        rights: Rights::REMOTE_READ,
        kind: WindowType::Type2,
    };
    pair.post(
        0,
        a,
        &SendRequest::new(1, Op::Write(remote(&there, 0)), &[local]),
    );
    pair.post(0, a, &SendRequest::new(2, Op::Bind(bind), &[]));
    let mut fenced = SendRequest::new(3, Op::LocalInvalidate(key | 1), &[]);
    fenced.fence = true;
    pair.post(0, a, &fenced);
    pair.post(0, a, &SendRequest::new(4, Op::LocalInvalidate(0xbad), &[]));
    pair.run();
    let ended: Vec<_> = pair.sides[0]
        .completions
        .iter()
        .map(|c| (c.wr_id, c.status))
        .collect();
    assert_eq!(ended.last(), Some(&(4, Status::MemoryWindowBind)));
    assert_eq!(ended.iter().map(|e| e.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

/// Packets that no correct requester sends, well formed or not: no panic, and nothing outside the granted range changes.
fn a_hostile_peer_changes_only_what_it_was_granted() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::with("hostile", seed, |_| {});
        let [_, b] = pair.connected();
        let granted = pair.sides[1].memory.register(vec![0; 4096], Rights::all());
        let secret = pair.sides[1].memory.register(vec![0; 4096], LOCAL);
        let inbox = pair.sides[1].memory.register(vec![0; 500], LOCAL);
        for i in 0..8 {
            pair.receive(1, b, i, &[inbox]);
        }
        let mut psn = softrxe_proto::Psn::new(100);
        for _ in 0..60 {
            let code = (rng.below(0x18) as u8, rng.next() as u8);
            let opcode = if rng.chance(950) { code.0 } else { code.1 };
            let length = [0, 1, 8, 64, 1024, 1024, 1025][rng.below(7) as usize];
            let target = if rng.chance(500) { granted } else { secret };
            let offset = rng.below(9000) as i64 - 2000;
            let payload = rng.bytes(length);
            let headers = Headers {
                reth: Some(Reth {
                    va: target.address.wrapping_add_signed(offset),
                    rkey: target.key,
                    length: [length as u32, 2048, u32::MAX, 0][rng.below(4) as usize],
                }),
                ..Headers::default()
            };
            let mut bth = Bth::new(opcode, b, psn);
            bth.pad = softrxe_proto::wire::packet::pad(length);
            bth.ack_request = rng.chance(500);
            let keeps_reth = matches!(opcode, 0x06 | 0x0a | 0x0b | 0x0c);
            let packet = WirePacket {
                bth,
                opcode: softrxe_proto::opcode::Opcode::SendOnly,
                headers: if keeps_reth {
                    headers
                } else {
                    Headers::default()
                },
                payload: &payload,
            };
            let mut bytes = vec![0; 1200];
            let end = packet.emit(&mut bytes);
            bytes.truncate(end);
            pair.inject(bytes);
            pair.poll(1);
            psn = psn.plus([1, 1, 1, 0, 2][rng.below(5) as usize]);
        }
        assert_eq!(
            pair.sides[1].memory.bytes(&secret),
            [0; 4096],
            "seed {seed}"
        );
    }
}

over_both_links!(
    accesses_that_are_not_granted,
    a_write_that_runs_over_the_end_changes_only_what_it_was_granted,
    a_queue_pair_without_the_right_refuses_before_the_key_is_looked_at,
    memory_that_is_freed_in_the_middle_is_not_touched_again,
    a_local_key_that_is_wrong_fails_its_own_request,
    a_message_longer_than_its_receive_fails_both,
    a_send_waits_for_its_receive,
    rnr_retries_end,
    a_shared_receive_queue_serves_several_and_says_when_it_runs_low,
    a_window_opens_and_the_peer_closes_it,
    a_local_request_completes_in_its_turn,
    a_hostile_peer_changes_only_what_it_was_granted,
);

/// A connection that was never made has no depth of READs.
#[test]
fn a_read_is_flushed_in_error_whatever_the_depth() {
    let mut pair = Pair::new("refuse_flushed_read");
    let qpn = pair.sides[0].qp();
    let to = pair.sides[0].memory.register(vec![0; 8], ALL);
    let now = pair.now;
    pair.sides[0].engine.fail_qp(now, qpn);
    let read = Op::Read(remote(&to, 0));
    pair.post(0, qpn, &SendRequest::new(1, read, &[to]));
    pair.run();
    let statuses = pair.sides[0].completions.iter().map(|c| c.status);
    assert_eq!(statuses.collect::<Vec<_>>(), [Status::Flushed]);
}
