//! The connection manager between two engines.

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use common::pair::{Faults, Pair};
use common::stranger;
use softrxe_proto::wire::cm::CmMessage;
use softrxe_proto::{
    Accept, CmError, CmEventKind, Connect, Event, Op, QpState, Qpn, RejectReason, SendRequest,
    service_id,
};

const LONG: Duration = Duration::from_secs(200);

fn a_connection_carries_private_data_both_ways_and_then_messages() {
    let mut pair = Pair::new("connect");
    let service = service_id::tcp(7001);
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    pair.sides[1].engine.listen(service).unwrap();
    assert_eq!(
        pair.sides[1].engine.listen(service),
        Err(CmError::ServiceInUse(service))
    );
    let mut connect = Connect::new(pair.sides[1].address, service, b"hello");
    connect.source_port = 4242;
    connect.initiator_depth = 3;
    let now = pair.now;
    let id = pair.sides[0]
        .engine
        .connect(now, qpns[0], &connect)
        .unwrap();
    assert!(pair.run_until(LONG, |p| !p.sides[1].events.is_empty()));
    let event = pair.sides[1].cm_event();
    let CmEventKind::Request(request) = event.kind else {
        panic!("{event:?}");
    };
    assert_eq!(request.service_id, service);
    assert_eq!(request.remote, "10.9.0.1:4242".parse().unwrap());
    assert_eq!(
        (request.initiator_depth, request.responder_resources),
        (3, 16)
    );
    assert_eq!(request.private_data.len(), 56);
    assert_eq!(request.private_data[..6], *b"hello\0");
    let now = pair.now;
    pair.sides[1]
        .engine
        .accept(now, event.id, qpns[1], &Accept::new(b"welcome"))
        .unwrap();
    pair.run();
    let up = pair.sides[0].cm_event();
    assert_eq!((up.id, up.qpn), (id, Some(qpns[0])));
    let CmEventKind::Established(data) = up.kind else {
        panic!("not established");
    };
    assert_eq!((data.len(), &data[..8]), (196, b"welcome\0".as_slice()));
    assert!(matches!(
        pair.sides[1].cm_event().kind,
        CmEventKind::Established(_)
    ));

    let from = pair.sides[0]
        .memory
        .register(b"data".to_vec(), common::memory::ALL);
    let to = pair.sides[1]
        .memory
        .register(vec![0; 4], common::memory::ALL);
    pair.receive(1, qpns[1], 1, &[to]);
    pair.post(0, qpns[0], &SendRequest::new(1, Op::Send, &[from]));
    pair.run();
    assert_eq!(pair.sides[1].memory.bytes(&to), b"data");
}

#[test]
fn communication_ids_have_their_engines_prefix() {
    for seed in 0..20 {
        let mut pair = Pair::with("prefix", seed, |config| {
            let first = config.local == std::net::Ipv4Addr::new(10, 9, 0, 1);
            config.qp_bits = 10;
            config.qpn_prefix = if first { 5 } else { 1000 };
            config.qpn_prefix_bits = 10;
        });
        let (_, [client, server]) = pair.connect_by_cm(service_id::tcp(7001));
        assert_eq!((client.number() >> 22, server.number() >> 22), (5, 1000));
    }
}

fn an_attempt_fails_without_a_listener_by_refusal_and_without_a_peer() {
    let mut pair = Pair::new("refused");
    let service = service_id::tcp(7);
    let start = |pair: &mut Pair| {
        let qpn = pair.sides[0].qp();
        pair.call(qpn, service);
    };
    start(&mut pair);
    pair.run();
    let CmEventKind::Rejected { reason, .. } = pair.sides[0].cm_event().kind else {
        panic!("not rejected");
    };
    assert_eq!(reason, RejectReason::INVALID_SERVICE_ID);

    pair.sides[1].engine.listen(service).unwrap();
    start(&mut pair);
    assert!(pair.run_until(LONG, |p| !p.sides[1].events.is_empty()));
    let request = pair.sides[1].cm_event();
    let now = pair.now;
    pair.sides[1]
        .engine
        .reject(now, request.id, RejectReason::CONSUMER, b"go away")
        .unwrap();
    pair.run();
    let CmEventKind::Rejected {
        reason,
        private_data,
    } = pair.sides[0].cm_event().kind
    else {
        panic!("not rejected");
    };
    assert_eq!(reason, RejectReason::CONSUMER);
    assert_eq!(
        (private_data.len(), &private_data[..8]),
        (148, b"go away\0".as_slice())
    );

    pair.faults.loss = 1000;
    start(&mut pair);
    pair.run();
    assert_eq!(pair.sides[0].cm_event().kind, CmEventKind::TimedOut);
    for side in &pair.sides {
        assert_eq!(side.engine.connections(), 0);
    }
}

/// The netdev of the client has room for larger packets than that of the server, which refuses the path MTU. The refusal comes twice.
#[test]
fn a_client_connects_with_the_path_mtu_of_a_server_with_a_smaller_one() {
    for (mtus, agreed) in [
        ([4096, 1024], 1024),
        ([4096, 256], 256),
        ([1024, 4096], 1024),
    ] {
        let mut pair = Pair::with("mtus", 1, |config| {
            let first = config.local == std::net::Ipv4Addr::new(10, 9, 0, 1);
            config.mtu = mtus[usize::from(!first)];
        });
        pair.faults.duplicate = 1000;
        let (qpns, _) = pair.connect_by_cm(service_id::tcp(22));
        let from = pair.sides[0]
            .memory
            .register(vec![7; 5000], common::memory::ALL);
        let to = pair.sides[1]
            .memory
            .register(vec![0; 5000], common::memory::ALL);
        pair.receive(1, qpns[1], 1, &[to]);
        let before = pair.sent;
        pair.post(0, qpns[0], &SendRequest::new(1, Op::Send, &[from]));
        pair.run_until(Duration::from_secs(1), |p| {
            p.sides[1].completions.len() == 1
        });
        assert_eq!(pair.sides[1].memory.bytes(&to), [7; 5000]);
        let packets = 5000_u64.div_ceil(agreed);
        assert!(
            (packets..packets + 20).contains(&(pair.sent - before)),
            "{mtus:?}"
        );
    }
}

fn a_request_without_a_listener_is_repeated_for_a_moment() {
    let service = service_id::tcp(8);
    let begin = |pair: &mut Pair| {
        let qpn = pair.sides[0].qp();
        pair.call(qpn, service);
    };
    let mut pair = Pair::with("no_listener", 1, |config| config.refused_repeats = 5);
    let start = pair.now;
    begin(&mut pair);
    pair.run();
    let end = pair.sides[0].cm_event();
    let CmEventKind::Rejected { reason, .. } = end.kind else {
        panic!("{end:?}");
    };
    assert_eq!(reason, RejectReason::INVALID_SERVICE_ID);
    // Six requests and six refusals, the last one after 10 + 20 + 40 + 80 + 160 ms.
    assert_eq!(pair.sent, 12);
    assert!(pair.now - start >= Duration::from_millis(310));
    assert_eq!(pair.sides[0].engine.connections(), 0);

    let mut pair = Pair::with("late_listener", 1, |config| config.refused_repeats = 5);
    begin(&mut pair);
    pair.run_until(Duration::from_millis(50), |_| false);
    assert!(pair.sides[0].events.is_empty());
    pair.sides[1].engine.listen(service).unwrap();
    let qpn = pair.sides[1].qp();
    pair.answer(qpn);
    pair.run_until(Duration::from_secs(1), |_| false);
    assert!(matches!(
        pair.sides[0].cm_event().kind,
        CmEventKind::Established(_)
    ));
}

fn a_late_refusal_of_a_request_that_was_repeated_and_accepted_does_not_count() {
    const REJ: u16 = 0x12;
    let mut pair = Pair::with("late_refusal", 1, |config| config.refused_repeats = 5);
    let service = service_id::tcp(8);
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    // A copy of the first refusal arrives much later. The attribute id is after BTH and DETH.
    let late = Rc::new(RefCell::new(None));
    let first = late.clone();
    pair.filter = Box::new(move |packet| {
        if packet.bytes[20 + 16..20 + 18] == REJ.to_be_bytes() {
            first.borrow_mut().get_or_insert_with(|| packet.clone());
        }
        true
    });
    pair.call(qpns[0], service);
    assert!(pair.run_until(LONG, |_| late.borrow().is_some()));
    pair.sides[1].engine.listen(service).unwrap();
    pair.answer(qpns[1]);
    assert!(pair.run_until(LONG, |p| !p.sides[0].events.is_empty()));
    assert!(matches!(
        pair.sides[0].cm_event().kind,
        CmEventKind::Established(_)
    ));
    let late = late.borrow_mut().take().unwrap();
    pair.deliver(&late);
    pair.run_until(Duration::from_secs(1), |_| false);
    assert!(pair.sides[0].events.is_empty());
    assert_eq!(
        pair.sides[0].engine.qp_state(qpns[0]),
        Some(QpState::ReadyToSend)
    );
}

/// The process that holds the shared port may pass on a repeated REQ when the connection has come and gone.
fn a_late_repetition_of_a_request_that_was_answered_is_no_new_one() {
    const REQ: u16 = 0x10;
    for accepted in [true, false] {
        let mut pair = Pair::new("late_repetition");
        let service = service_id::tcp(19);
        let late = Rc::new(RefCell::new(None));
        let first = late.clone();
        pair.filter = Box::new(move |packet| {
            if packet.bytes.len() == 280 && packet.bytes[20 + 16..20 + 18] == REQ.to_be_bytes() {
                first.borrow_mut().get_or_insert_with(|| packet.clone());
            }
            true
        });
        if accepted {
            let (_, ids) = pair.connect_by_cm(service);
            let now = pair.now;
            pair.sides[0].engine.disconnect(now, ids[0]).unwrap();
        } else {
            pair.sides[1].engine.listen(service).unwrap();
            let qpn = pair.sides[0].qp();
            pair.call(qpn, service);
            assert!(pair.run_until(LONG, |p| !p.sides[1].events.is_empty()));
            let id = pair.sides[1].cm_event().id;
            let now = pair.now;
            pair.sides[1]
                .engine
                .reject(now, id, RejectReason::CONSUMER, b"")
                .unwrap();
        }
        // Until both sides have forgotten the connection.
        pair.run();
        assert_eq!(pair.sides[1].engine.connections(), 0);
        pair.sides.iter_mut().for_each(|side| side.events.clear());
        let late = late.borrow_mut().take().unwrap();
        pair.deliver(&late);
        pair.run();
        for side in &mut pair.sides {
            assert_eq!(side.cm_events(), [], "accepted: {accepted}");
        }
        // The same peer may connect again.
        let before = pair.sides[1].engine.connections();
        pair.connect_by_cm(service);
        assert_eq!(pair.sides[1].engine.connections(), before + 1);
    }
}

fn an_mra_gives_a_slow_consumer_time() {
    let mut pair = Pair::new("slow");
    let service = service_id::tcp(8);
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    pair.sides[1].engine.listen(service).unwrap();
    pair.call(qpns[0], service);
    let begin = pair.now;
    pair.run_until(LONG, |p| p.now - begin > Duration::from_secs(60));
    assert!(pair.sides[0].events.is_empty());
    // REQ, its repetition, MRA; then silence for the 69 s of the MRA, and the REQ again.
    assert_eq!(pair.sent, 4);
    assert!(pair.now - begin > Duration::from_secs(69));
    pair.answer(qpns[1]);
    pair.run_until(Duration::from_secs(1), |_| false);
    assert!(matches!(
        pair.sides[0].cm_event().kind,
        CmEventKind::Established(_)
    ));
}

fn data_stands_for_an_rtu_that_was_lost() {
    let mut pair = Pair::new("implied_rtu");
    pair.filter = Box::new(|packet| packet.bytes.len() != 280 || packet.bytes[20 + 17] != 0x14);
    let service = service_id::tcp(9);
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    pair.sides[1].engine.listen(service).unwrap();
    pair.call(qpns[0], service);
    let id = pair.answer(qpns[1]);
    assert!(pair.run_until(LONG, |p| !p.sides[0].events.is_empty()));
    assert!(pair.sides[1].events.is_empty());
    pair.receive(1, qpns[1], 1, &[]);
    pair.post(0, qpns[0], &SendRequest::new(1, Op::Send, &[]));
    pair.run_until(Duration::from_millis(1), |p| !p.sides[1].events.is_empty());
    let event = pair.sides[1].cm_event();
    assert_eq!(event.id, id);
    assert!(matches!(event.kind, CmEventKind::Established(_)));
}

/// The first request is not answered yet when another one arrives from the same queue pair: the first one is over.
fn a_request_whose_peer_restarted_cannot_be_accepted() {
    let mut pair = Pair::new("asked_twice");
    let service = service_id::tcp(17);
    pair.sides[1].engine.listen(service).unwrap();
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    pair.call(qpns[0], service);
    pair.run_until(Duration::from_secs(1), |p| !p.sides[1].events.is_empty());
    let first = pair.sides[1].cm_event();
    assert!(matches!(first.kind, CmEventKind::Request(_)));
    // The message that withdraws the first request is lost.
    let now = pair.now;
    pair.sides[0].engine.reset_qp(now, qpns[0]);
    pair.poll(0);
    pair.call(qpns[0], service);
    let refused = |p: &mut Pair| !p.sides[0].cm_events().is_empty();
    assert!(pair.run_until(Duration::from_secs(1), refused));
    let accept = Accept::new(&[]);
    let now = pair.now;
    let answer = pair.sides[1].engine.accept(now, first.id, qpns[1], &accept);
    assert!(
        matches!(answer, Err(CmError::State { id, .. }) if id == first.id),
        "{answer:?}"
    );
}

#[test]
fn a_restarted_peer_is_refused_as_stale_while_its_old_connection_exists() {
    let mut pair = Pair::new("stale");
    let service = service_id::tcp(10);
    let (qpns, _) = pair.connect_by_cm(service);
    for side in &mut pair.sides {
        side.events.clear();
    }
    // An engine with the same GUID and QPN replaces the client's: same seed, same calls.
    let config = pair.sides[0].engine.config().clone();
    let memory = pair.sides[0].memory.clone();
    pair.sides[0].engine = softrxe_proto::Engine::new(config, memory);
    pair.sides[0].cq = pair.sides[0].engine.create_cq().unwrap();
    assert_eq!(pair.sides[0].qp(), qpns[0]);
    // Its communication ids differ only if it has made more of them.
    let now = pair.now;
    let spare = softrxe_proto::SidrRequest {
        remote: pair.sides[1].address,
        service_id: 1,
        source_port: 0,
        private_data: &[],
        timeout: None,
    };
    pair.sides[0].engine.sidr_request(now, &spare).unwrap();
    pair.call(qpns[0], service);
    pair.run();
    assert_eq!(
        pair.sides[1].cm_event().kind,
        CmEventKind::Disconnected,
        "the old connection"
    );
    let refused = pair.sides[0].cm_events();
    assert!(refused.iter().any(|event| matches!(
        event.kind,
        CmEventKind::Rejected {
            reason: RejectReason::STALE_CONNECTION,
            ..
        }
    )));
}

/// Both sides are established, or neither; every id is gone after the end, whatever the network does. A side that did not
/// learn of the end probes its peer at some time.
fn connections_agree_under_loss_duplication_and_reordering() {
    let mut established = 0;
    for seed in 0..150 {
        let mut pair = Pair::with("cm_faults", seed, |config| {
            config.keepalive = Some(Duration::from_secs(30));
        });
        pair.faults = Faults {
            loss: [0, 100, 300, 600][seed as usize % 4],
            duplicate: 200,
            reorder: 300,
            corrupt: 20,
        };
        let service = service_id::tcp(11);
        let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
        pair.sides[1].engine.listen(service).unwrap();
        pair.call(qpns[0], service);
        let (mut up, mut down) = ([0, 0], [0, 0]);
        let mut accepted = false;
        let end = pair.now + LONG;
        while pair.now < end && pair.step() {
            for i in 0..2 {
                for event in std::mem::take(&mut pair.sides[i].events) {
                    let now = pair.now;
                    if let Event::QpError {
                        connection: Some(id),
                        ..
                    } = event
                    {
                        let _ = pair.sides[i].engine.disconnect(now, id);
                    }
                    let Event::Cm(event) = event else { continue };
                    match event.kind {
                        CmEventKind::Request(_) => {
                            assert!(!std::mem::replace(&mut accepted, true), "seed {seed}");
                            let accept = Accept::new(b"y");
                            let engine = &mut pair.sides[1].engine;
                            engine.accept(now, event.id, qpns[1], &accept).unwrap();
                        }
                        CmEventKind::Established(_) => up[i] += 1,
                        _ => down[i] += 1,
                    }
                }
            }
        }
        let live = |i: usize| up[i] == 1 && down[i] == 0;
        assert!(up[0] <= 1 && up[1] <= 1, "seed {seed}: {up:?}");
        assert_eq!(live(0), live(1), "seed {seed}: up {up:?} down {down:?}");
        if live(0) {
            established += 1;
            let (now, id) = (pair.now, 0);
            pair.sides[id].engine.destroy_qp(now, qpns[id]);
            pair.run();
        }
        pair.sides[0].engine.destroy_qp(pair.now, qpns[0]);
        pair.sides[1].engine.destroy_qp(pair.now, qpns[1]);
        pair.run();
        for side in &pair.sides {
            assert_eq!(side.engine.connections(), 0, "seed {seed}");
        }
    }
    assert!(established > 100, "{established}");
}

/// Connects the first side to itself through `manager`, and sends a message. Returns the two queue pairs.
#[track_caller]
fn talk_to_itself(pair: &mut Pair, manager: std::net::SocketAddr) -> [Qpn; 2] {
    let service = service_id::tcp(16);
    let [a, b] = [pair.sides[0].qp(), pair.sides[0].qp()];
    let now = pair.now;
    let engine = &mut pair.sides[0].engine;
    engine.listen(service).unwrap();
    engine
        .connect(now, a, &Connect::new(manager, service, &[]))
        .unwrap();
    assert!(pair.run_until(LONG, |p| !p.sides[0].events.is_empty()));
    let request = pair.sides[0].cm_event();
    let now = pair.now;
    let engine = &mut pair.sides[0].engine;
    engine
        .accept(now, request.id, b, &Accept::new(&[]))
        .unwrap();
    pair.run();
    assert_eq!(pair.sides[0].cm_events().len(), 2);
    pair.receive(0, b, 1, &[]);
    pair.post(0, a, &SendRequest::new(2, Op::Send, &[]));
    pair.run();
    assert_eq!(pair.sides[0].completions.len(), 2);
    [a, b]
}

fn an_engine_connects_to_itself() {
    let mut pair = Pair::new("itself");
    let manager = pair.sides[0].address;
    let [a, _] = talk_to_itself(&mut pair, manager);
    let now = pair.now;
    pair.sides[0].engine.destroy_qp(now, a);
    pair.run();
    assert_eq!(pair.sides[0].engine.connections(), 0);
}

#[test]
fn a_communication_id_may_be_used_again_at_once() {
    let mut pair = Pair::new("id_again");
    let (from, to) = (pair.sides[0].address, pair.sides[1].address.ip());
    let service = service_id::tcp(7001);
    pair.sides[1].engine.listen(service).unwrap();
    let req = stranger::req(
        from.ip(),
        to,
        service,
        (stranger::FOREIGN, 77, Qpn::new(40)),
    );
    let req = CmMessage::Req(req);
    let requests = |pair: &mut Pair, transaction| {
        stranger::inject(&mut pair.sides[1].engine, pair.now, from, transaction, &req);
        let mut ids = Vec::new();
        while let Some(event) = pair.sides[1].engine.poll_event() {
            if let Event::Cm(event) = event {
                ids.push(event.id);
            }
        }
        ids
    };
    for transaction in [5, 6] {
        let ids = requests(&mut pair, transaction);
        assert_eq!(ids.len(), 1, "{transaction}");
        let (now, engine) = (pair.now, &mut pair.sides[1].engine);
        let consumer = RejectReason::CONSUMER;
        engine.reject(now, ids[0], consumer, b"no").unwrap();
        assert!(requests(&mut pair, transaction).is_empty(), "a repetition");
    }
}

#[test]
fn ports_whose_icrc_equals_that_of_another_identification_work() {
    // The ICRC of a packet to 4791 is that of a packet to one of these ports with another IPv4 identification.
    for port in [33_262, 42_845, 54_890, 40_000] {
        let mut pair = Pair::with("ports", 1, |config| config.port = port);
        let manager = pair.sides[0].address;
        pair.sides[0].address.set_port(port);
        talk_to_itself(&mut pair, manager);
    }
}

over_both_links!(
    a_connection_carries_private_data_both_ways_and_then_messages,
    an_attempt_fails_without_a_listener_by_refusal_and_without_a_peer,
    a_request_without_a_listener_is_repeated_for_a_moment,
    a_late_refusal_of_a_request_that_was_repeated_and_accepted_does_not_count,
    a_late_repetition_of_a_request_that_was_answered_is_no_new_one,
    an_mra_gives_a_slow_consumer_time,
    data_stands_for_an_rtu_that_was_lost,
    a_request_whose_peer_restarted_cannot_be_accepted,
    connections_agree_under_loss_duplication_and_reordering,
    an_engine_connects_to_itself,
);
