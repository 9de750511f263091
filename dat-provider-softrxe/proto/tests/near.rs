//! Channels: which connections take one, room, stopped peers, ends, and records that do not belong to a channel's queue pairs.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::channel::{self, ID, LOOP};
use common::memory::{ALL, TestMemory, at};
use common::pair::Pair;
use common::stranger;
use softrxe_proto::wire::cm::CmMessage;
use softrxe_proto::{
    Accept, Capabilities, CmEventKind, CmId, Connect, Engine, Event, Link, Meta, NearId, Offer, Op,
    Psn, QpError, QpState, Qpn, RecordPart, RejectReason, SendRequest, Sge, Status, service_id,
};

const SERVICE: u64 = service_id::tcp(7);
const LONG: Duration = Duration::from_secs(100);

/// Offers of both sides, which of them have a channel to the other one, and what carries the connection.
struct Case {
    offers: [bool; 2],
    up: [bool; 2],
    taken: Result<bool, RejectReason>,
}

const fn case(offers: [bool; 2], up: [bool; 2], taken: Result<bool, RejectReason>) -> Case {
    Case { offers, up, taken }
}

#[test]
fn a_connection_takes_a_channel_if_both_offer_it_and_have_one() {
    let (no, yes) = (false, true);
    for Case { offers, up, taken } in [
        case([no, no], [yes, yes], Ok(no)),
        case([yes, no], [yes, yes], Ok(no)),
        case([no, yes], [yes, yes], Ok(no)),
        case([yes, yes], [no, no], Ok(no)),
        case([yes, yes], [yes, no], Ok(no)),
        // The passive side says NEAR, the active one has no channel to it.
        case([yes, yes], [no, yes], Err(RejectReason::UNSUPPORTED)),
        case([yes, yes], [yes, yes], Ok(yes)),
    ] {
        let what = format!("offers {offers:?}, up {up:?}");
        let mut pair = Pair::with("who_takes_near", 1, |config| {
            let first = config.local == std::net::Ipv4Addr::new(10, 9, 0, 1);
            if offers[usize::from(!first)] {
                config.offer = config.offer.with(Capabilities::NEAR);
            }
        });
        pair.open_channels(1024);
        for (side, up) in pair.sides.iter_mut().zip(up) {
            if !up {
                side.engine.near_down(pair.now, ID);
            }
        }
        let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
        pair.sides[1].engine.listen(SERVICE).unwrap();
        let client = pair.call(qpns[0], SERVICE);
        let server = pair.answer(qpns[1]);
        pair.run_until(Duration::from_millis(100), |_| false);
        let end = pair.sides[0].cm_event().kind;
        let near = match taken {
            Ok(near) => near,
            Err(expected) => {
                let CmEventKind::Rejected { reason, .. } = end else {
                    panic!("{what}: {end:?}");
                };
                assert_eq!(reason, expected, "{what}");
                let refused = pair.sides[1].cm_event().kind;
                assert!(matches!(refused, CmEventKind::Rejected { .. }), "{what}");
                assert_eq!(pair.sides[1].engine.qp_state(qpns[1]), Some(QpState::Error));
                continue;
            }
        };
        assert!(matches!(end, CmEventKind::Established(_)), "{what}");
        let records = pair.channels.as_ref().unwrap().progress(0).0;
        let from = pair.sides[0].memory.register(vec![7; 5000], ALL);
        let to = pair.sides[1].memory.register(vec![0; 5000], ALL);
        pair.post(0, qpns[0], &SendRequest::new(1, Op::Write(at(to)), &[from]));
        pair.run();
        assert_eq!(
            pair.sides[0].completions[0].status,
            Status::Success,
            "{what}"
        );
        assert_eq!(pair.sides[1].memory.bytes(&to), vec![7; 5000], "{what}");
        for (side, id) in [(0, client), (1, server)] {
            let engine = &pair.sides[side].engine;
            assert_eq!(engine.near_of(id), near.then_some(ID), "{what}");
            let agreed = engine.agreement(id).unwrap();
            assert_eq!(agreed.has(Capabilities::NEAR), near, "{what}");
            let peer = pair.sides[1 - side].engine.guid();
            assert_eq!(engine.peer_guid(id), Some(peer));
        }
        let after = pair.channels.as_ref().unwrap().progress(0).0;
        assert_eq!(after > records, near, "{what}");
    }
}

/// A foreign GUID with a word that offers everything.
#[test]
fn a_foreign_peer_gets_no_channel() {
    let mut pair = Pair::with("near_foreign", 1, |config| {
        config.offer = config.offer.with(Capabilities::NEAR);
    });
    let [peer, here] = [0, 1].map(|side| pair.sides[side].address);
    let (now, qpn) = (pair.now, pair.sides[1].qp());
    let engine = &mut pair.sides[1].engine;
    engine.near_up(ID, peer, stranger::FOREIGN, 4096).unwrap();
    engine.listen(SERVICE).unwrap();
    let names = (stranger::FOREIGN, 5, Qpn::new(6));
    let mut req = stranger::req(peer.ip(), here.ip(), SERVICE, names);
    req.qkey = Offer::CURRENT.with(Capabilities::NEAR).word();
    stranger::inject(engine, now, peer, 1, &CmMessage::Req(req));
    let Some(Event::Cm(request)) = engine.poll_event() else {
        panic!("no request");
    };
    engine
        .accept(now, request.id, qpn, &Accept::new(b""))
        .unwrap();
    assert_eq!(engine.near_of(request.id), None);
    let sent = stranger::sent(engine, now);
    let Some(CmMessage::Rep(rep)) = stranger::message(&sent[0].1) else {
        panic!("no REP");
    };
    assert_eq!(rep.qkey, 0);
}

/// Another user of the host has learned the GUID of an engine, and names its live queue pair. The answer would reach that queue pair.
#[test]
fn a_request_in_the_name_of_a_channels_peer_gets_no_channel() {
    let mut pair = Pair::with("near_named", 1, |config| {
        config.offer = config.offer.with(Capabilities::NEAR);
    });
    let [peer, here] = [0, 1].map(|side| pair.sides[side].address);
    let (now, guid) = (pair.now, pair.sides[0].engine.guid());
    let qpns: [Qpn; 3] = std::array::from_fn(|_| pair.sides[1].qp());
    let engine = &mut pair.sides[1].engine;
    engine.near_up(ID, peer, guid, 4096).unwrap();
    engine.listen(SERVICE).unwrap();
    let sources = [
        (SocketAddr::new(peer.ip(), peer.port() ^ 1), None),
        (SocketAddr::new([127, 0, 0, 99].into(), peer.port()), None),
        (peer, Some(ID)),
    ];
    for (id, ((source, near), qpn)) in sources.into_iter().zip(qpns).enumerate() {
        let names = (guid, 5 + id as u32, Qpn::new(6));
        let mut req = stranger::req(source.ip(), here.ip(), SERVICE, names);
        req.qkey = Offer::CURRENT.with(Capabilities::NEAR).word();
        stranger::inject(engine, now, source, 1 + id as u64, &CmMessage::Req(req));
        let Some(Event::Cm(request)) = engine.poll_event() else {
            panic!("no request from {source}");
        };
        let accept = Accept::new(b"");
        engine.accept(now, request.id, qpn, &accept).unwrap();
        assert_eq!(engine.near_of(request.id), near, "{source}");
    }
}

/// Connects two queue pairs of side 0 to each other. Returns them and their ids.
fn connect_to_itself(pair: &mut Pair) -> ([Qpn; 2], [CmId; 2]) {
    let qpns = [pair.sides[0].qp(), pair.sides[0].qp()];
    let (now, address) = (pair.now, pair.sides[0].address);
    let engine = &mut pair.sides[0].engine;
    engine.listen(SERVICE).unwrap();
    let connect = Connect::new(address, SERVICE, &[]);
    let client = engine.connect(now, qpns[0], &connect).unwrap();
    assert!(pair.run_until(LONG, |p| !p.sides[0].events.is_empty()));
    let server = pair.sides[0].cm_event().id;
    let now = pair.now;
    let engine = &mut pair.sides[0].engine;
    engine
        .accept(now, server, qpns[1], &Accept::new(&[]))
        .unwrap();
    assert!(pair.run_until(LONG, |p| p.sides[0].events.len() == 2));
    pair.sides[0].events.clear();
    (qpns, [client, server])
}

fn two_queue_pairs_of_one_engine() {
    let mut pair = Pair::new("near_loop");
    let ([a, b], ids) = connect_to_itself(&mut pair);
    for id in ids {
        assert_eq!(pair.sides[0].engine.near_of(id), Some(LOOP));
    }
    let memory = pair.sides[0].memory.clone();
    let [from, to, back] = [7, 0, 0].map(|fill| memory.register(vec![fill; 9000], ALL));
    for (here, there) in [(a, b), (b, a)] {
        pair.receive(0, there, 1, &[to]);
        pair.post(0, here, &SendRequest::new(2, Op::Send, &[from]));
        pair.post(0, here, &SendRequest::new(3, Op::Read(at(to)), &[back]));
        pair.run();
        assert_eq!(pair.sides[0].completions.len(), 3);
        let good = |c: &softrxe_proto::Completion| c.status == Status::Success;
        assert!(pair.sides[0].completions.drain(..).all(|c| good(&c)));
        assert_eq!(memory.bytes(&back), vec![7; 9000]);
        memory.fill(&to, &[0; 9000]);
        memory.fill(&back, &[0; 9000]);
    }
    pair.sides[0].engine.destroy_qp(pair.now, a);
    pair.run();
    let ends: Vec<_> = pair.sides[0]
        .cm_events()
        .into_iter()
        .map(|e| e.kind)
        .collect();
    assert_eq!(ends, [CmEventKind::Disconnected, CmEventKind::Disconnected]);
    assert_eq!(pair.sides[0].engine.connections(), 0);
}

/// Both directions full, with records of half the room; nothing is repeated.
fn large_messages_both_ways_through_little_room() {
    let mut pair = Pair::with("near_room", 1, |config| config.mtu = 4096);
    let qpns = pair.connected();
    pair.channels.as_mut().unwrap().room = Some(8448);
    let length = 300_000;
    let mut requests = Vec::new();
    for side in 0..2 {
        let memory = [0, 1].map(|i: usize| pair.sides[i].memory.clone());
        let from = memory[side].register((0..length).map(|n| n as u8).collect(), ALL);
        let to = memory[1 - side].register(vec![0; length], ALL);
        let back = memory[side].register(vec![0; length], ALL);
        let inbox = memory[1 - side].register(vec![0; length], ALL);
        pair.receive(1 - side, qpns[1 - side], 9, &[inbox]);
        for (id, op, sge) in [
            (1, Op::Write(at(to)), from),
            (2, Op::Send, from),
            (3, Op::Read(at(to)), back),
        ] {
            pair.post(side, qpns[side], &SendRequest::new(id, op, &[sge]));
        }
        requests.push((side, from, to, back, inbox));
    }
    pair.run();
    for (side, from, to, back, inbox) in requests {
        let statuses: Vec<_> = pair.sides[side]
            .completions
            .iter()
            .map(|c| c.status)
            .collect();
        assert_eq!(statuses, [Status::Success; 4]);
        let sent = pair.sides[side].memory.bytes(&from);
        assert!(pair.sides[side].memory.bytes(&back) == sent);
        assert!(pair.sides[1 - side].memory.bytes(&to) == sent);
        assert!(pair.sides[1 - side].memory.bytes(&inbox) == sent);
        let counters = pair.sides[side].engine.counters();
        assert_eq!((counters.go_backs, counters.duplicates), (0, 0));
    }
}

fn a_record_carries_32_kib() {
    let mut pair = Pair::new("near_mtu");
    pair.sides[0].engine.near_down(pair.now, ID);
    pair.sides[1].engine.near_down(pair.now, ID);
    for side in 0..2 {
        pair.sides[side].engine.near_down(pair.now, LOOP);
    }
    pair.open_channels(32_768);
    let [a, _] = pair.connected();
    let from = pair.sides[0].memory.register(vec![5; 100_000], ALL);
    let to = pair.sides[1].memory.register(vec![0; 100_000], ALL);
    pair.post(0, a, &SendRequest::new(1, Op::Write(at(to)), &[from]));
    pair.run();
    assert_eq!(pair.sides[1].memory.bytes(&to), vec![5; 100_000]);
    assert_eq!(pair.sides[0].engine.counters().sent, 4);
}

/// Returns how long it takes until a request to a peer that handles nothing fails. `blocked`: it finds no room.
fn time_to_break(blocked: bool) -> Duration {
    let mut pair = Pair::new("near_stopped");
    let qpns = pair.connected();
    let [c, _] = pair.connected();
    let from = pair.sides[0].memory.register(vec![5; 60_000], ALL);
    let to = pair.sides[1].memory.register(vec![0; 60_000], ALL);
    let write = SendRequest::new(1, Op::Write(at(to)), std::slice::from_ref(&from));
    // Something was consumed before.
    pair.post(0, qpns[0], &write);
    pair.run();
    pair.sides[0].completions.clear();
    match &mut pair.channels {
        Some(channels) => channels.stop(0, true),
        None => pair.filter = Box::new(|_| false),
    }
    let begin = pair.now;
    if blocked {
        for _ in 0..2 {
            pair.post(0, c, &write);
        }
    }
    pair.post(0, qpns[0], &write);
    let failed = |p: &mut Pair| p.sides[0].engine.qp_state(qpns[0]) == Some(QpState::Error);
    assert!(pair.run_until(LONG, failed));
    assert_eq!(pair.sides[0].engine.counters().timeouts % 8, 0);
    pair.now - begin
}

#[test]
fn a_stopped_peer_breaks_after_the_time_that_it_has_over_datagrams() {
    thread_local! {
        static TOOK: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
    }
    let over_wire = time_to_break(false);
    let late = Duration::from_millis(50);
    channel::run_over_channel(|| TOOK.set(time_to_break(false)));
    assert!(
        (over_wire..=over_wire + late).contains(&TOOK.get()),
        "{:?}",
        TOOK.get()
    );
    channel::run_over_channel(|| TOOK.set(time_to_break(true)));
    assert!(
        (over_wire..=over_wire + late).contains(&TOOK.get()),
        "{:?}",
        TOOK.get()
    );
}

/// The peer consumes one record a second, and acknowledges every sixteenth: over datagrams that would be too slow.
fn a_slow_peer_keeps_its_connection() {
    let mut pair = Pair::new("near_slow");
    let [a, _] = pair.connected();
    let from = pair.sides[0].memory.register(vec![5; 50_000], ALL);
    let to = pair.sides[1].memory.register(vec![0; 50_000], ALL);
    pair.channels.as_mut().unwrap().pace = Duration::from_secs(1);
    let begin = pair.now;
    pair.post(0, a, &SendRequest::new(1, Op::Write(at(to)), &[from]));
    pair.run();
    assert_eq!(pair.sides[0].completions[0].status, Status::Success);
    assert!(pair.now - begin > Duration::from_secs(45));
    assert_eq!(pair.sides[0].engine.counters().go_backs, 0);
}

fn the_end_of_a_channel_breaks_its_connections() {
    let mut pair = Pair::new("near_down");
    let ([a, b], [client, _]) = pair.connect_by_cm(SERVICE);
    pair.sides[0].events.clear();
    let ([c, _], _) = connect_to_itself(&mut pair);
    pair.sides[0].events.clear();
    pair.receive(0, a, 5, &[]);
    pair.sides[0].engine.near_down(pair.now, ID);
    pair.sides[0].engine.near_down(pair.now, NearId(9));
    let side = &mut pair.sides[0];
    let event = side.engine.poll_event().unwrap();
    let Event::QpError {
        qpn, connection, ..
    } = event
    else {
        panic!("{event:?}");
    };
    assert_eq!((qpn, connection), (a, Some(client)));
    assert_eq!(side.engine.qp_state(a), Some(QpState::Error));
    assert_eq!(side.engine.qp_state(c), Some(QpState::ReadyToSend));
    let (guid, source) = (pair.sides[1].engine.guid(), pair.sides[1].address);
    assert_eq!(pair.sides[0].engine.near_to(source, guid), None);
    // The id is free; the old queue pair does not use the new channel.
    pair.sides[0]
        .engine
        .near_up(ID, source, guid, 1024)
        .unwrap();
    pair.sides[0].engine.disconnect(pair.now, client).unwrap();
    assert!(!pair.sides[0].engine.has_near(ID));
    pair.run();
    assert_eq!(pair.sides[1].engine.qp_state(b), Some(QpState::Error));
    let [d, _] = pair.connected();
    pair.sides[0].engine.destroy_qp(pair.now, a);
    assert_eq!(pair.sides[0].engine.qp_state(d), Some(QpState::ReadyToSend));
}

/// Delivers an empty WRITE Only for `qpn` to side 1, as a record of `id` or as a datagram.
fn deliver_write(pair: &mut Pair, qpn: Qpn, near: Option<NearId>) {
    let mut bytes = vec![0x0a, 0x40, 0xff, 0xff, 0];
    bytes.extend(&qpn.value().to_be_bytes()[1..]);
    bytes.extend(&[0x80, 0, 0, 100]);
    bytes.extend(&[0; 16]);
    let engine = &mut pair.sides[1].engine;
    match near {
        Some(id) => engine.handle_near(pair.now, id, &bytes, RecordPart::default()),
        None => {
            let source = pair.sides[0].address;
            let flow = softrxe_proto::wire::icrc::Flow {
                source,
                destination: pair.sides[1].address,
            };
            let crc = softrxe_proto::wire::icrc::compute(&flow, 0, &bytes);
            bytes.extend(crc.to_le_bytes());
            engine.handle_datagram(pair.now, &Meta { source, ip_id: 0 }, &bytes);
        }
    }
}

#[test]
fn only_packets_of_its_link_reach_a_queue_pair() {
    let mut pair = Pair::new("near_links");
    pair.open_channels(1024);
    let [_, near] = pair.connected();
    let channels = pair.channels.take();
    let [_, wired] = pair.connected();
    pair.channels = channels;
    let foreign = |pair: &Pair| pair.sides[1].engine.counters().foreign;
    for (number, (qpn, over)) in [
        (near, None),
        (near, Some(LOOP)),
        (near, Some(NearId(77))),
        (wired, Some(ID)),
    ]
    .into_iter()
    .enumerate()
    {
        deliver_write(&mut pair, qpn, over);
        assert_eq!(foreign(&pair), number as u64 + 1);
        assert!(pair.poll(1).is_empty());
    }
    deliver_write(&mut pair, near, Some(ID));
    assert_eq!(pair.poll(1).len(), 1);
    deliver_write(&mut pair, wired, None);
    assert_eq!(pair.poll(1).len(), 1);
    assert_eq!(foreign(&pair), 4);
}

fn an_acknowledgement_goes_with_a_request_or_is_held_back() {
    let mut pair = Pair::new("near_ack");
    let [a, b] = pair.connected();
    let from = pair.sides[0].memory.register(vec![1; 64], ALL);
    let inbox = pair.sides[1].memory.register(vec![0; 64], ALL);
    for answers in [true, false] {
        pair.receive(0, a, 9, &[]);
        pair.receive(1, b, 1, &[inbox]);
        pair.post(0, a, &SendRequest::new(2, Op::Send, &[from]));
        pair.hand_over(0);
        let engine = &mut pair.sides[1].engine;
        for _ in 0..2 {
            assert_eq!(engine.poll_near(pair.now, ID, channel::ROOM, true), None);
            assert!(engine.holds_near(ID) && !engine.has_near(ID));
        }
        if answers {
            pair.post(1, b, &SendRequest::new(3, Op::Send, &[]));
        }
        // One record: the answer with the acknowledgement, or the acknowledgement.
        assert_eq!(pair.hand_over(1).len(), 1);
        assert!(!pair.sides[1].engine.has_near(ID) && !pair.sides[1].engine.holds_near(ID));
        assert!(!pair.sides[0].engine.in_flight(a));
        pair.run();
    }
}

/// The first queue pair has much to send; the second one's message does not wait for its end.
fn queue_pairs_of_a_channel_take_turns() {
    let mut pair = Pair::new("near_turns");
    let [a, _] = pair.connected();
    let [c, _] = pair.connected();
    let from = pair.sides[0].memory.register(vec![1; 60_000], ALL);
    let to = pair.sides[1].memory.register(vec![0; 60_000], ALL);
    pair.post(0, a, &SendRequest::new(1, Op::Write(at(to)), &[from]));
    let short = Sge { length: 8, ..from };
    pair.post(0, c, &SendRequest::new(2, Op::Write(at(to)), &[short]));
    let lengths = pair.hand_over(0);
    let first_short = lengths.iter().position(|length| *length < 100).unwrap();
    assert!(first_short <= 16, "{first_short} records before");
    pair.run();
    assert_eq!(pair.sides[0].completions.len(), 2);
}

/// Side 1 owes an acknowledgement when the channel ends. Its queue pair then sends over the next channel, as a new one would.
fn a_queue_pair_is_used_again_after_its_channel_ended() {
    let mut pair = Pair::new("near_again");
    let qpns = pair.connected();
    let from = pair.sides[0].memory.register(vec![1; 64], ALL);
    let inbox = pair.sides[1].memory.register(vec![0; 64], ALL);
    pair.receive(1, qpns[1], 1, &[inbox]);
    pair.post(0, qpns[0], &SendRequest::new(2, Op::Send, &[from]));
    pair.hand_over(0);
    assert!(pair.sides[1].engine.owes_ack() && pair.sides[1].engine.holds_near(ID));
    assert!(pair.sides[1].engine.has_records(false) && !pair.sides[1].engine.has_records(true));
    for (side, qpn) in pair.sides.iter_mut().zip(qpns) {
        side.engine.near_down(pair.now, ID);
        assert!(!side.engine.owes_ack());
        side.engine.reset_qp(pair.now, qpn);
        side.completions.clear();
        let (guid, source) = (1000, side.address);
        side.engine
            .near_up(ID, source, guid, pair.channel_mtu)
            .unwrap();
    }
    pair.join(qpns, [Psn::new(7), Psn::new(8)]);
    let back = pair.sides[0].memory.register(vec![0; 64], ALL);
    pair.receive(0, qpns[0], 3, &[back]);
    pair.post(1, qpns[1], &SendRequest::new(4, Op::Send, &[inbox]));
    pair.run();
    assert_eq!(pair.sides[0].memory.bytes(&back), vec![1; 64]);
    assert!(!pair.sides[1].engine.in_flight(qpns[1]));
}

/// The driver reads its UDP socket often only while a queue pair uses it.
#[test]
fn an_engine_says_whether_queue_pairs_use_datagrams() {
    let mut pair = Pair::new("wire_users");
    assert!(!pair.sides[0].engine.uses_wire());
    let qpns = pair.connected();
    assert!(pair.sides[0].engine.uses_wire());
    pair.sides[0].engine.reset_qp(pair.now, qpns[0]);
    assert!(!pair.sides[0].engine.uses_wire());
    let init = softrxe_proto::QpInit {
        kind: softrxe_proto::QpKind::Ud,
        ..pair.sides[0].init()
    };
    let datagrams = pair.sides[0].engine.create_qp(&init).unwrap();
    pair.sides[0].engine.reset_qp(pair.now, datagrams);
    assert!(pair.sides[0].engine.uses_wire());
    pair.sides[0].engine.destroy_qp(pair.now, datagrams);
    pair.sides[0].engine.destroy_qp(pair.now, qpns[0]);
    assert!(!pair.sides[0].engine.uses_wire());
    channel::run_over_channel(|| {
        let mut pair = Pair::new("near_users");
        let qpns = pair.connected();
        assert!(!pair.sides[0].engine.uses_wire());
        pair.sides[0].engine.near_down(pair.now, ID);
        pair.sides[0].engine.destroy_qp(pair.now, qpns[0]);
        assert!(!pair.sides[0].engine.uses_wire());
    });
}

#[test]
fn a_channel_is_named_once_and_has_an_mtu_that_exists() {
    let mut pair = Pair::new("near_names");
    let source = pair.sides[1].address;
    let engine: &mut Engine<TestMemory> = &mut pair.sides[0].engine;
    for mtu in [0, 128, 255, 1000, 32_769, u16::MAX] {
        assert!(matches!(
            engine.near_up(ID, source, 5, mtu),
            Err(QpError::Invalid(_))
        ));
    }
    assert_eq!(engine.near_to(source, 5), None);
    assert_eq!(engine.near_up(ID, source, 5, 256), Ok(()));
    assert!(matches!(
        engine.near_up(ID, source, 6, 256),
        Err(QpError::Invalid(_))
    ));
    assert_eq!(engine.near_to(source, 5), Some(ID));
    assert_eq!(engine.near_to(source, 6), None);
    let elsewhere = ["127.9.9.9:1", "127.9.9.9:4791"].map(|at| at.parse().unwrap());
    let port = SocketAddr::new(source.ip(), source.port() ^ 1);
    for other in elsewhere.into_iter().chain([port]) {
        assert_eq!(engine.near_to(other, 5), None, "{other}");
    }
    assert!(!engine.has_near(ID) && !engine.has_near(NearId(u16::MAX)));
    let qpn = pair.sides[0].qp();
    for (link, mtu) in [
        (Link::Near(ID), 512),
        (Link::Near(LOOP), 256),
        (Link::Down, 256),
    ] {
        let path = softrxe_proto::Path {
            link,
            mtu,
            ..pair.path(1, Qpn::new(9), [Psn::new(1), Psn::new(2)])
        };
        let refused = pair.sides[0].engine.connect_qp(qpn, &path);
        assert!(matches!(refused, Err(QpError::Invalid(_))), "{link:?}");
    }
}

mod over_channel {
    use super::common::channel::run_over_channel;

    macro_rules! run {
        ($($test:ident),* $(,)?) => {
            $(#[test] fn $test() { run_over_channel(super::$test); })*
        };
    }
    run!(
        two_queue_pairs_of_one_engine,
        large_messages_both_ways_through_little_room,
        a_record_carries_32_kib,
        a_slow_peer_keeps_its_connection,
        the_end_of_a_channel_breaks_its_connections,
        an_acknowledgement_goes_with_a_request_or_is_held_back,
        a_queue_pair_is_used_again_after_its_channel_ended,
        queue_pairs_of_a_channel_take_turns,
    );
}
