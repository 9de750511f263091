//! Forged answers of the connection manager: neither guessed ids nor another address are accepted.

mod common;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use common::pair::{Packet, Pair};
use common::stranger;
use softrxe_proto::wire::cm::CmMessage;
use softrxe_proto::wire::{MadHeader, Packet as WirePacket};
use softrxe_proto::{CmEventKind, QpKind, Qpn, SidrReply, service_id};

const SERVICE: u64 = service_id::tcp(4000);
const MOMENT: Duration = Duration::from_millis(1);

/// A message that did not arrive: transaction id, message, source.
type Held = (u64, CmMessage, SocketAddr);

fn parse(packet: &Packet) -> Option<Held> {
    let message = stranger::message(&packet.bytes)?;
    let whole = WirePacket::parse(&packet.bytes).ok()?;
    let header = MadHeader::parse(whole.payload)?;
    Some((header.transaction_id, message, packet.source))
}

/// Drops the messages for which `which` returns true, and keeps the last of them.
fn hold(pair: &mut Pair, which: fn(&CmMessage) -> bool) -> Rc<RefCell<Option<Held>>> {
    let held = Rc::new(RefCell::new(None));
    let note = Rc::clone(&held);
    pair.filter = Box::new(move |packet| match parse(packet) {
        Some(one) if which(&one.1) => {
            *note.borrow_mut() = Some(one);
            false
        }
        _ => true,
    });
    held
}

/// Addresses of another host, and of another process at the peer's address.
fn strangers(peer: SocketAddr) -> [SocketAddr; 2] {
    [
        "10.9.0.66:4791".parse().unwrap(),
        (peer.ip(), 40_000).into(),
    ]
}

/// Delivers a message to side `to`.
fn give(pair: &mut Pair, to: usize, (transaction, message, source): &Held) {
    let engine = &mut pair.sides[to].engine;
    stranger::inject(engine, pair.now, *source, *transaction, message);
    pair.run_until(MOMENT, |_| false);
}

#[test]
fn a_rep_brings_the_transaction_and_the_id_of_its_req_back_from_its_address() {
    let mut pair = Pair::new("forged_rep");
    let held = hold(&mut pair, |m| matches!(m, CmMessage::Rep(_)));
    pair.sides[1].engine.listen(SERVICE).unwrap();
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    pair.call(qpns[0], SERVICE);
    pair.answer(qpns[1]);
    assert!(pair.run_until(Duration::from_secs(1), |_| held.borrow().is_some()));
    let right = held.borrow().clone().unwrap();
    let CmMessage::Rep(rep) = right.1 else {
        unreachable!("as held");
    };
    let of_another = softrxe_proto::wire::cm::Rep {
        remote_id: rep.remote_id ^ 1,
        ..rep
    };
    let forged = [
        (right.0 ^ 1, right.1.clone(), right.2),
        (right.0, CmMessage::Rep(of_another), right.2),
        (right.0, right.1.clone(), strangers(right.2)[0]),
    ];
    for forged in &forged {
        give(&mut pair, 0, forged);
        assert_eq!(pair.sides[0].cm_events(), [], "{forged:?}");
    }
    give(&mut pair, 0, &right);
    let up = pair.sides[0].cm_event();
    assert!(matches!(up.kind, CmEventKind::Established(_)), "{up:?}");
}

#[test]
fn an_rtu_comes_from_the_peer_and_names_both_ids() {
    let mut pair = Pair::new("forged_rtu");
    let held = hold(&mut pair, |m| matches!(m, CmMessage::Rtu(_)));
    pair.sides[1].engine.listen(SERVICE).unwrap();
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    pair.call(qpns[0], SERVICE);
    pair.answer(qpns[1]);
    assert!(pair.run_until(Duration::from_secs(1), |_| held.borrow().is_some()));
    let right = held.borrow().clone().unwrap();
    let CmMessage::Rtu(rtu) = &right.1 else {
        unreachable!("as held");
    };
    let (theirs, ours) = (rtu.local_id, rtu.remote_id);
    let mut forged = vec![
        (right.0, stranger::rtu(theirs ^ 1, ours), right.2),
        (right.0, stranger::rtu(0, ours), right.2),
        (right.0, stranger::rtu(theirs, ours ^ 1), right.2),
    ];
    forged.extend(strangers(right.2).map(|source| (right.0, right.1.clone(), source)));
    for forged in &forged {
        give(&mut pair, 1, forged);
        assert_eq!(pair.sides[1].cm_events(), [], "{forged:?}");
    }
    give(&mut pair, 1, &right);
    let up = pair.sides[1].cm_event();
    assert!(matches!(up.kind, CmEventKind::Established(_)), "{up:?}");
}

/// A forger does not have 22 bits of a new connection's id; they are too few alone.
#[test]
fn a_dreq_before_the_rep_needs_the_transaction_of_the_req() {
    let mut pair = Pair::new("forged_dreq");
    pair.sides[1].engine.listen(SERVICE).unwrap();
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    let held = hold(&mut pair, |m| matches!(m, CmMessage::Rep(_)));
    let id = pair.call(qpns[0], SERVICE);
    pair.answer(qpns[1]);
    assert!(pair.run_until(Duration::from_secs(1), |_| held.borrow().is_some()));
    let (transaction, _, source) = held.borrow().clone().unwrap();
    let dreq = stranger::dreq(0x1234, id.number(), qpns[0]);
    give(&mut pair, 0, &(transaction ^ 1, dreq.clone(), source));
    assert_eq!(pair.sides[0].cm_events(), []);
    // The peer's own DREQ: its REP was lost, and it ended the connection.
    give(&mut pair, 0, &(transaction, dreq, source));
    let end = pair.sides[0].cm_event();
    assert!(matches!(end.kind, CmEventKind::Rejected { .. }), "{end:?}");
}

#[test]
fn an_answer_to_a_resolution_brings_its_transaction_back() {
    let mut pair = Pair::new("forged_sidr_rep");
    let service = service_id::udp(13);
    let held = hold(&mut pair, |m| matches!(m, CmMessage::SidrRep(_)));
    pair.sides[1].engine.listen(service).unwrap();
    let mut init = pair.sides[1].init();
    init.kind = QpKind::Ud;
    let qpn = pair.sides[1].engine.create_qp(&init).unwrap();
    let ask = pair.ask(service);
    let now = pair.now;
    pair.sides[0].engine.sidr_request(now, &ask).unwrap();
    assert!(pair.run_until(Duration::from_secs(1), |p| !p.sides[1].events.is_empty()));
    let asked = pair.sides[1].cm_event();
    let answer = SidrReply {
        status: 0,
        qpn,
        qkey: 7,
        private_data: b"",
    };
    let now = pair.now;
    let engine = &mut pair.sides[1].engine;
    engine.sidr_reply(now, asked.id, &answer).unwrap();
    assert!(pair.run_until(MOMENT, |_| held.borrow().is_some()));
    let right = held.borrow().clone().unwrap();
    let CmMessage::SidrRep(rep) = &right.1 else {
        unreachable!("as held");
    };
    let mut evil = *rep;
    evil.qpn = Qpn::new(0x666);
    for forged in [
        (right.0 ^ 1, CmMessage::SidrRep(evil), right.2),
        (right.0, CmMessage::SidrRep(evil), strangers(right.2)[0]),
    ] {
        give(&mut pair, 0, &forged);
        assert_eq!(pair.sides[0].cm_events(), [], "{forged:?}");
    }
    give(&mut pair, 0, &right);
    let CmEventKind::SidrReply { qpn: answered, .. } = pair.sides[0].cm_event().kind else {
        panic!("no answer");
    };
    assert_eq!(answered, qpn);
}
