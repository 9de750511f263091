//! The connection manager and hosts that are up to no good: what does not come from the peer of a connection neither ends nor hinders it,
//! and no flood fills a table or makes the engine send more than it received.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::memory::ALL;
use common::pair::{Pair, Side};
use common::stranger::{self, FOREIGN};
use softrxe_proto::wire::cm::{CmMessage, Rep};
use softrxe_proto::{
    Accept, CmEvent, CmEventKind, CmId, Event, Op, Path, Psn, QpState, Qpn, RejectReason,
    SendRequest, Status, service_id,
};

const LONG: Duration = Duration::from_secs(200);
const SERVICE: u64 = service_id::tcp(4000);

/// Another host, another process of the first side's address.
fn strangers(pair: &Pair) -> [SocketAddr; 2] {
    let mut process = pair.sides[0].address;
    process.set_port(40_000);
    ["10.9.0.66:4791".parse().unwrap(), process]
}

/// A message goes from the first side to the other one, and an answer comes back.
#[track_caller]
fn talk(pair: &mut Pair, qpns: [Qpn; 2]) {
    let from = pair.sides[0].memory.register(b"data".to_vec(), ALL);
    let to = pair.sides[1].memory.register(vec![0; 4], ALL);
    for (side, there) in [(0, 1), (1, 0)] {
        pair.receive(there, qpns[there], 1, &[if there == 1 { to } else { from }]);
        pair.post(
            side,
            qpns[side],
            &SendRequest::new(2, Op::Send, &[if side == 0 { from } else { to }]),
        );
        pair.run_until(Duration::from_secs(5), |p| {
            !p.sides[side].completions.is_empty() && !p.sides[there].completions.is_empty()
        });
        for side in &mut pair.sides {
            let done: Vec<_> = side.completions.drain(..).map(|c| c.status).collect();
            assert_eq!(done, [Status::Success]);
        }
    }
    assert_eq!(pair.sides[1].memory.bytes(&to), b"data");
}

/// The service hears that these came in, and nothing else.
#[track_caller]
fn requests(side: &mut Side) -> Vec<CmId> {
    let events = side.cm_events();
    let request = |event: CmEvent| {
        assert!(matches!(event.kind, CmEventKind::Request(_)), "{event:?}");
        event.id
    };
    events.into_iter().map(request).collect()
}

/// The REQ, DREQ, REJ and RTU that end a connection when its peer sends them.
#[test]
fn messages_that_do_not_come_from_the_peer_do_not_end_a_connection() {
    let mut pair = Pair::new("abuse_strangers");
    let (qpns, [client, server]) = pair.connect_by_cm(SERVICE);
    pair.run_until(Duration::from_secs(1), |_| false);
    let guid = pair.sides[0].engine.guid();
    for side in &mut pair.sides {
        side.events.clear();
    }
    for source in strangers(&pair) {
        let to = pair.sides[1].address.ip();
        for step in 0..18 {
            let qpn = Qpn::new(qpns[0].value() - 9 + step);
            let req = stranger::req(source.ip(), to, SERVICE, (guid, 1000 + step, qpn));
            let engine = &mut pair.sides[1].engine;
            stranger::inject(engine, pair.now, source, 5, &CmMessage::Req(req));
        }
        let ids = (client.number(), server.number());
        for message in [
            stranger::dreq(ids.0, ids.1, qpns[1]),
            stranger::dreq(0, ids.1, qpns[1]),
            stranger::rej(ids.0, ids.1, RejectReason::INVALID_COMM_ID, guid),
            stranger::rej(ids.0, ids.1, RejectReason::TIMEOUT, guid),
        ] {
            let engine = &mut pair.sides[1].engine;
            stranger::inject(engine, pair.now, source, 5, &message);
        }
        pair.run_until(Duration::from_millis(100), |_| false);
        // They are requests like any other.
        assert_eq!(requests(&mut pair.sides[1]).len(), 18, "{source}");
        talk(&mut pair, qpns);
    }
    assert_eq!(pair.sides[0].cm_events(), []);
}

/// The peer's address and port, but not its id: whoever guesses only ours.
#[test]
fn a_message_without_the_peers_id_does_not_end_a_connection() {
    let mut pair = Pair::new("abuse_half_an_id");
    let (qpns, [_, server]) = pair.connect_by_cm(SERVICE);
    pair.run_until(Duration::from_secs(1), |_| false);
    pair.sides[1].events.clear();
    let source = pair.sides[0].address;
    for message in [
        stranger::dreq(0, server.number(), qpns[1]),
        stranger::rej(0, server.number(), RejectReason::CONSUMER, FOREIGN),
    ] {
        let engine = &mut pair.sides[1].engine;
        stranger::inject(engine, pair.now, source, 5, &message);
    }
    assert_eq!(requests(&mut pair.sides[1]), []);
    talk(&mut pair, qpns);
}

/// An answer to a REQ comes from its address and brings its transaction id back.
#[test]
fn a_request_is_not_refused_by_a_forger_who_guesses_its_id() {
    let mut pair = Pair::new("abuse_forged_rej");
    pair.sides[1].engine.listen(SERVICE).unwrap();
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    let id = pair.call(qpns[0], SERVICE);
    let mut source = pair.sides[1].address;
    source.set_port(40_000);
    for message in [
        stranger::rej(0, id.number(), RejectReason::CONSUMER, FOREIGN),
        stranger::mra(0, id.number()),
    ] {
        let engine = &mut pair.sides[0].engine;
        stranger::inject(engine, pair.now, source, 5, &message);
    }
    pair.answer(qpns[1]);
    assert!(pair.run_until(LONG, |p| !p.sides[0].events.is_empty()));
    let kind = pair.sides[0].cm_event().kind;
    assert!(matches!(kind, CmEventKind::Established(_)), "{kind:?}");
}

/// A process of the peer's address may send as the peer's queue pair only from the peer's port.
#[test]
fn packets_of_another_process_of_the_peers_address_are_not_the_peers() {
    let mut pair = Pair::new("abuse_packets");
    let (qpns, _) = pair.connect_by_cm(SERVICE);
    pair.run_until(Duration::from_secs(1), |_| false);
    let to = pair.sides[1].memory.register(vec![0; 4], ALL);
    pair.receive(1, qpns[1], 1, &[to]);
    let from = pair.sides[0].memory.register(b"evil".to_vec(), ALL);
    pair.post(0, qpns[0], &SendRequest::new(2, Op::Send, &[from]));
    let now = pair.now;
    let (_, mut bytes) = stranger::sent(&mut pair.sides[0].engine, now).remove(0);
    pair.sides[0].memory.gather(&mut bytes);
    let source = strangers(&pair)[1];
    let end = bytes.len() - 4;
    let flow = softrxe_proto::wire::icrc::Flow {
        source,
        destination: pair.sides[1].address,
    };
    let crc = softrxe_proto::wire::icrc::compute(&flow, 0, &bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    let meta = softrxe_proto::Meta { source, ip_id: 0 };
    pair.sides[1].engine.handle_datagram(now, &meta, &bytes);
    let foreign = pair.sides[1].engine.counters().foreign;
    assert_eq!((foreign, pair.sides[1].memory.bytes(&to)), (1, vec![0; 4]));
}

/// The first side connects as rdma_rxe does: with another GUID, and from any port.
fn foreign_client(pair: &mut Pair) -> ([Qpn; 2], CmId) {
    let [from, to] = [0, 1].map(|i: usize| pair.sides[i].address);
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    let _ = pair.sides[1].engine.listen(SERVICE);
    let req = stranger::req(from.ip(), to.ip(), SERVICE, (FOREIGN, 77, qpns[0]));
    let now = pair.now;
    let engine = &mut pair.sides[1].engine;
    stranger::inject(engine, now, from, 5, &CmMessage::Req(req));
    pair.run_until(Duration::from_millis(1), |_| false);
    let id = requests(&mut pair.sides[1])[0];
    let engine = &mut pair.sides[1].engine;
    engine.accept(now, id, qpns[1], &Accept::new(&[])).unwrap();
    let answers = stranger::sent(engine, now);
    let rep: Vec<Rep> = answers
        .iter()
        .filter_map(|(_, bytes)| match stranger::message(bytes)? {
            CmMessage::Rep(rep) => Some(rep),
            _ => None,
        })
        .collect();
    let path = Path {
        own: false,
        ..pair.path(1, rep[0].qpn, [rep[0].starting_psn, Psn::new(100)])
    };
    pair.sides[0].engine.connect_qp(qpns[0], &path).unwrap();
    let rtu = stranger::rtu(77, id.number());
    let engine = &mut pair.sides[1].engine;
    stranger::inject(engine, now, from, 5, &rtu);
    pair.run_until(Duration::from_millis(1), |_| false);
    let up = pair.sides[1].cm_event();
    assert!(matches!(up.kind, CmEventKind::Established(_)), "{up:?}");
    (qpns, id)
}

/// Any process of a host with rdma_rxe can send a REQ with the kernel's GUID, from any port.
#[test]
fn a_foreign_peer_whose_queue_pair_another_request_claims_is_asked_and_stays() {
    let mut pair = Pair::new("abuse_claim");
    let (qpns, _) = foreign_client(&mut pair);
    let to = pair.sides[1].address;
    let mut source = pair.sides[0].address;
    source.set_port(55_555);
    for id in 0..10 {
        let req = stranger::req(source.ip(), to.ip(), SERVICE, (FOREIGN, id, qpns[0]));
        let now = pair.now;
        let engine = &mut pair.sides[1].engine;
        stranger::inject(engine, now, source, 5, &CmMessage::Req(req));
        pair.run_until(Duration::from_secs(20), |_| false);
    }
    assert_eq!(requests(&mut pair.sides[1]), []);
    talk(&mut pair, qpns);
}

/// The host was restarted: its queue pair numbers begin anew.
#[test]
fn a_foreign_peer_that_is_gone_is_noticed_when_another_request_claims_its_queue_pair() {
    let mut pair = Pair::new("abuse_restart");
    let (qpns, id) = foreign_client(&mut pair);
    let now = pair.now;
    pair.sides[0].engine.destroy_qp(now, qpns[0]);
    let (from, to) = (pair.sides[0].address, pair.sides[1].address);
    let req = stranger::req(from.ip(), to.ip(), SERVICE, (FOREIGN, 78, qpns[0]));
    let engine = &mut pair.sides[1].engine;
    stranger::inject(engine, now, from, 5, &CmMessage::Req(req));
    let answer = stranger::sent(engine, now);
    let answer = answer
        .iter()
        .find_map(|(_, bytes)| stranger::message(bytes));
    assert!(
        matches!(answer, Some(CmMessage::Rej(rej)) if rej.reason == RejectReason::STALE_CONNECTION)
    );
    let broken = |event: &Event| matches!(event, Event::QpError { qpn, connection: Some(c), .. } if (*qpn, *c) == (qpns[1], id));
    assert!(pair.run_until(LONG, |p| p.sides[1].events.iter().any(broken)));
    assert_eq!(pair.sides[1].engine.qp_state(qpns[1]), Some(QpState::Error));
}
