//! Datagrams over channels: which ones take a channel, and what a record for a queue pair of datagrams must be.

mod common;

use common::channel::{self, ID};
use common::memory::ALL;
use common::pair::Pair;
use softrxe_proto::wire::{Bth, Deth};
use softrxe_proto::{
    CompletedOp, Completion, DatagramPeer, NearOut, Op, PostError, QpInit, QpKind, QpState, Qpn,
    RecordPart, Rights, SendRequest, Sge, Status, near,
};

const QKEY: u32 = 0x0123_4567;
/// Bytes before a received datagram.
const GRH: usize = 40;

/// Returns a pair with a channel, and a queue pair of datagrams on each side.
fn datagram_pair(name: &'static str) -> (Pair, [Qpn; 2]) {
    let mut pair = Pair::new(name);
    pair.open_channels(1024);
    let qpns = [0, 1].map(|side: usize| {
        let init = QpInit {
            kind: QpKind::Ud,
            qkey: QKEY,
            ..pair.sides[side].init()
        };
        pair.sides[side].engine.create_qp(&init).unwrap()
    });
    (pair, qpns)
}

/// Returns a datagram to `qpn` of side 1.
fn to(pair: &Pair, qpn: Qpn) -> Op {
    Op::Datagram {
        to: DatagramPeer {
            address: pair.sides[1].address.ip(),
            qpn,
            qkey: QKEY,
        },
        immediate: None,
    }
}

/// Returns the records that side 0 has sent.
fn records(pair: &Pair) -> u64 {
    pair.channels.as_ref().unwrap().progress(0).0
}

fn memory(pair: &Pair, side: usize, bytes: Vec<u8>) -> Sge {
    pair.sides[side].memory.register(bytes, ALL)
}

#[test]
fn a_datagram_takes_the_channel_and_arrives_as_over_the_wire() {
    let mut arrived = Vec::new();
    for near in [false, true] {
        let (mut pair, qpns) = datagram_pair("datagrams");
        if !near {
            pair.channels = None;
        }
        let from = memory(&pair, 0, (0..100).collect());
        let into = memory(&pair, 1, vec![0; GRH + 100]);
        pair.receive(1, qpns[1], 3, &[into]);
        let op = match to(&pair, qpns[1]) {
            Op::Datagram { to, .. } => Op::Datagram {
                to,
                immediate: Some(*b"imm!"),
            },
            _ => unreachable!(),
        };
        let sges = [from];
        let mut request = SendRequest::new(4, op, &sges);
        request.solicited = true;
        pair.post(0, qpns[0], &request);
        if near {
            assert_eq!(records(&pair), 192);
            assert!(!pair.sides[0].engine.has_datagrams());
        }
        pair.run();
        let sent = pair.sides[0].completions[0];
        assert_eq!((sent.wr_id, sent.status), (4, Status::Success));
        let got = pair.sides[1].completions[0];
        assert_eq!((got.wr_id, got.length), (3, 140));
        let source = (pair.sides[0].address.ip(), qpns[0]);
        assert_eq!(got.source, Some(source));
        let kept = Completion { token: 0, ..got };
        arrived.push((
            Completion {
                source: None,
                ..kept
            },
            pair.sides[1].memory.bytes(&into),
        ));
    }
    assert_eq!(arrived[0], arrived[1]);
}

/// A channel without room stops no datagram, and neither does one whose records are shorter.
#[test]
fn a_datagram_goes_over_the_wire_where_the_channel_has_no_room_for_it() {
    let (mut pair, qpns) = datagram_pair("datagrams_room");
    let from = memory(&pair, 0, vec![5; 1024]);
    let into = memory(&pair, 1, vec![0; GRH + 1024]);
    pair.channels.as_mut().unwrap().room = Some(1024);
    for id in 0..3 {
        pair.receive(1, qpns[1], id, &[into]);
        let op = to(&pair, qpns[1]);
        pair.post(0, qpns[0], &SendRequest::new(id, op, &[from]));
        assert_eq!(records(&pair), 0);
        pair.run();
        assert_eq!(pair.sides[1].completions.len(), id as usize + 1);
    }
    pair.channels.as_mut().unwrap().room = None;
    pair.sides[0].engine.near_down(pair.now, ID);
    let peer = (pair.sides[1].address, 7);
    let up = pair.sides[0].engine.near_up(ID, peer.0, peer.1, 512);
    up.unwrap();
    pair.receive(1, qpns[1], 3, &[into]);
    let op = to(&pair, qpns[1]);
    pair.post(0, qpns[0], &SendRequest::new(3, op, &[from]));
    assert_eq!(records(&pair), 0);
    pair.run();
    assert_eq!(pair.sides[1].completions.len(), 4);
}

/// The order of posts is kept while a datagram waits for the wire.
#[test]
fn a_datagram_does_not_overtake_one_that_waits_for_the_wire() {
    let (mut pair, qpns) = datagram_pair("datagrams_order");
    let from = memory(&pair, 0, vec![5; 64]);
    let into = memory(&pair, 1, vec![0; GRH + 64]);
    for id in 0..3 {
        pair.receive(1, qpns[1], id, &[into]);
    }
    let op = to(&pair, qpns[1]);
    let sges = [from];
    let (now, request) = (pair.now, SendRequest::new(1, op, &sges));
    // Posted without the channel, and not transmitted yet.
    let engine = &mut pair.sides[0].engine;
    engine.post_send(now, qpns[0], &request).unwrap();
    pair.post(0, qpns[0], &request);
    assert_eq!(records(&pair), 0);
    pair.run();
    pair.post(0, qpns[0], &request);
    assert_eq!(records(&pair), 128);
    pair.run();
    assert_eq!(pair.sides[1].completions.len(), 3);
}

#[test]
fn refused_posts_and_memory_that_is_gone_are_as_over_the_wire() {
    let (mut pair, qpns) = datagram_pair("datagrams_refused");
    let from = memory(&pair, 0, vec![5; 5000]);
    let op = to(&pair, qpns[1]);
    let now = pair.now;
    let mut out = NearOut::EMPTY;
    let mut post = |pair: &mut Pair, op, sge: Sge| {
        let engine = &mut pair.sides[0].engine;
        let sges = [sge];
        let request = SendRequest::new(1, op, &sges);
        pair.sides[0].memory.set_record(vec![0; 4096]);
        let engine_result = engine.post_near_datagram(now, ID, qpns[0], &request, 4096, &mut out);
        pair.sides[0].memory.take_record();
        engine_result
    };
    let long = post(&mut pair, op, from);
    assert_eq!(long, Err(PostError::Length(5000)));
    let other = post(&mut pair, Op::Send, Sge { length: 8, ..from });
    assert!(matches!(other, Err(PostError::Unsupported(_))), "{other:?}");
    let unknown = Sge {
        key: from.key ^ 0x55,
        length: 8,
        ..from
    };
    assert_eq!(post(&mut pair, op, unknown), Ok(false));
    pair.run();
    assert_eq!(pair.sides[0].completions[0].status, Status::LocalProtection);
    let state = pair.sides[0].engine.qp_state(qpns[0]);
    assert_eq!(state, Some(QpState::Error));
    assert_eq!(records(&pair), 0);
}

/// A peer writes what it wants: nothing but a datagram with the right Q_Key reaches a queue pair of datagrams.
#[test]
fn only_datagrams_reach_a_queue_pair_of_datagrams() {
    let (mut pair, qpns) = datagram_pair("datagrams_forged");
    let into = memory(&pair, 1, vec![0; GRH + 64]);
    pair.receive(1, qpns[1], 1, &[into]);
    let target = memory(&pair, 1, vec![0; 64]);
    let now = pair.now;
    let handle = |pair: &mut Pair, opcode: u8, headers: &[u8], lent: bool| {
        let mut bth = [0; Bth::LEN];
        let psn = softrxe_proto::Psn::new(0);
        Bth::new(opcode, qpns[1], psn).emit(&mut bth);
        let header = [&bth[..], headers].concat();
        let at = near::payload_at(header.len(), 64);
        pair.sides[1].memory.set_record(vec![7; at + 64]);
        let payload = RecordPart {
            at,
            length: 64,
            lent,
        };
        let engine = &mut pair.sides[1].engine;
        engine.handle_near(now, ID, &header, payload);
        pair.sides[1].memory.take_record();
        pair.run();
        pair.sides[1].completions.len()
    };
    let deth = |qkey| {
        let mut bytes = [0; Deth::LEN];
        let source = Qpn::new(9);
        Deth { qkey, source }.emit(&mut bytes);
        bytes
    };
    // SEND Only, RDMA WRITE Only, ACK: the opcodes of connections.
    let mut reth = target.address.to_be_bytes().to_vec();
    reth.extend(target.key.to_be_bytes());
    reth.extend(64_u32.to_be_bytes());
    assert_eq!(handle(&mut pair, 0x04, &[], false), 0);
    assert_eq!(handle(&mut pair, 0x0a, &reth, false), 0);
    assert_eq!(handle(&mut pair, 0x11, &[0; 4], false), 0);
    assert_eq!(handle(&mut pair, 0x64, &deth(QKEY), true), 0);
    assert_eq!(handle(&mut pair, 0x64, &deth(QKEY)[..7], false), 0);
    assert_eq!(handle(&mut pair, 0x64, &deth(QKEY + 1), false), 0);
    assert_eq!(pair.sides[1].memory.bytes(&target), vec![0; 64]);
    assert_eq!(pair.sides[1].memory.bytes(&into), vec![0; GRH + 64]);
    let counters = pair.sides[1].engine.counters();
    assert_eq!((counters.malformed, counters.foreign), (5, 1));
    assert_eq!(handle(&mut pair, 0x64, &deth(QKEY), false), 1);
    let got = pair.sides[1].completions[0];
    assert_eq!(
        (got.op, got.status),
        (CompletedOp::Receive, Status::Success)
    );
    // Without a receive it is dropped, and a queue pair of a connection takes none.
    assert_eq!(handle(&mut pair, 0x64, &deth(QKEY), false), 1);
    assert_eq!(pair.sides[1].engine.counters().ud_dropped, 1);
    channel::run_over_channel(|| {
        let mut pair = Pair::new("datagram_to_rc");
        let qpns = pair.connected();
        let into = memory(&pair, 1, vec![0; GRH + 64]);
        pair.receive(1, qpns[1], 1, &[into]);
        let rights = Rights::LOCAL_READ;
        let from = pair.sides[0].memory.register(vec![1; 8], rights);
        let init = QpInit {
            kind: QpKind::Ud,
            qkey: QKEY,
            ..pair.sides[0].init()
        };
        let sender = pair.sides[0].engine.create_qp(&init).unwrap();
        let op = to(&pair, qpns[1]);
        pair.post(0, sender, &SendRequest::new(2, op, &[from]));
        pair.run();
        assert!(pair.sides[1].completions.is_empty());
        let state = pair.sides[1].engine.qp_state(qpns[1]);
        assert_eq!(state, Some(QpState::ReadyToSend));
    });
}
