//! What engines of different versions, and foreign peers, agree on when they connect.

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use common::memory::{ALL, at};
use common::pair::Pair;
use common::stranger::{self, FOREIGN};
use softrxe_proto::opcode::Opcode;
use softrxe_proto::wire::cm::CmMessage;
use softrxe_proto::{
    Accept, Agreement, Capabilities, CmId, Offer, Op, Qpn, SendRequest, Status, service_id,
};

const SERVICE: u64 = service_id::tcp(7);
const LONG: Duration = Duration::from_secs(100);
/// CA GUID of an engine of this project.
const OWN: u64 = 0x5d52_0000_0000_0009;
/// Bytes of BTH, DETH and MAD header.
const BODY: usize = 44;
const REQ: [u8; 2] = [0, 0x10];
const REP: [u8; 2] = [0, 0x13];

/// Returns an offer of a later version, with a capability that has no name yet.
fn later() -> Offer {
    Offer::new(9, Capabilities::from_bits_retain(1 << 23))
}

/// Connects an engine with the first offer to one with the second, and writes a message of many packets. Returns both
/// agreements, and the words of REQ and REP.
fn connected(offers: [Offer; 2]) -> ([Agreement; 2], [u32; 2]) {
    let mut pair = Pair::with("handshake", 1, |config| {
        let first = config.local == std::net::Ipv4Addr::new(10, 9, 0, 1);
        config.offer = offers[usize::from(!first)];
    });
    let words = Rc::new(RefCell::new([0; 2]));
    let seen = Rc::clone(&words);
    pair.filter = Box::new(move |packet| {
        let word = |at: usize| {
            let bytes = packet.bytes[BODY + at..].first_chunk().expect("a message");
            u32::from_be_bytes(*bytes)
        };
        match packet.bytes.get(36..38) {
            Some(kind) if kind == REQ => seen.borrow_mut()[0] = word(28),
            Some(kind) if kind == REP => seen.borrow_mut()[1] = word(8),
            _ => {}
        }
        true
    });
    let (qpns, ids) = pair.connect_by_cm(SERVICE);
    let words = *words.borrow();
    let agreements = [0, 1].map(|side| agreement(&pair, side, ids[side]));
    let from = pair.sides[0].memory.register(vec![7; 20_000], ALL);
    let to = pair.sides[1].memory.register(vec![0; 20_000], ALL);
    pair.post(0, qpns[0], &SendRequest::new(1, Op::Write(at(to)), &[from]));
    pair.run_until(LONG, |p| !p.sides[0].completions.is_empty());
    assert_eq!(pair.sides[0].completions[0].status, Status::Success);
    assert_eq!(pair.sides[1].memory.bytes(&to), vec![7; 20_000]);
    (agreements, words)
}

fn agreement(pair: &Pair, side: usize, id: CmId) -> Agreement {
    pair.sides[side].engine.agreement(id).expect("connected")
}

#[test]
fn old_new_and_later_engines_agree_on_the_smaller_version_in_either_role() {
    for (a, b, version) in [
        (Offer::LEGACY, Offer::LEGACY, 0),
        (Offer::LEGACY, Offer::CURRENT, 0),
        (Offer::LEGACY, later(), 0),
        (Offer::CURRENT, Offer::CURRENT, 1),
        (Offer::CURRENT, later(), 1),
        (later(), later(), 9),
    ] {
        for offers in [[a, b], [b, a]] {
            let ([client, server], words) = connected(offers);
            assert_eq!(client, server, "{offers:?}");
            assert_eq!(client.version(), version, "{offers:?}");
            assert!(client.is_own() && client.has(Capabilities::LEGACY));
            assert_eq!(words, offers.map(Offer::word));
        }
    }
}

/// Sends a REQ with this GUID and word. Returns the agreement, the word of the REP, and the private data of the DREQ.
fn called_by(guid: u64, word: u32) -> (Agreement, u32, Vec<u8>) {
    let mut pair = Pair::new("handshake_stranger");
    let [peer, here] = [0, 1].map(|side| pair.sides[side].address);
    pair.sides[1].engine.listen(SERVICE).unwrap();
    let names = (guid, 5, Qpn::new(6));
    let mut req = stranger::req(peer.ip(), here.ip(), SERVICE, names);
    req.qkey = word;
    let now = pair.now;
    let qpn = pair.sides[1].qp();
    let engine = &mut pair.sides[1].engine;
    stranger::inject(engine, now, peer, 1, &CmMessage::Req(req));
    let Some(softrxe_proto::Event::Cm(request)) = engine.poll_event() else {
        panic!("the request is not raised");
    };
    let agreed = engine.agreement(request.id).expect("known from the REQ");
    engine
        .accept(now, request.id, qpn, &Accept::new(b""))
        .unwrap();
    let messages = stranger::sent(engine, now);
    let Some(CmMessage::Rep(rep)) = stranger::message(&messages[0].1) else {
        panic!("no REP");
    };
    stranger::inject(engine, now, peer, 1, &stranger::rtu(5, request.id.number()));
    engine.disconnect(now, request.id).unwrap();
    let messages = stranger::sent(engine, now);
    let dreq = messages.iter().find_map(|m| match stranger::message(&m.1) {
        Some(CmMessage::Dreq(dreq)) => Some(dreq),
        _ => None,
    });
    let data = dreq.expect("a DREQ").private_data;
    (agreed, rep.qkey, data.into())
}

#[test]
fn a_foreign_peers_word_means_nothing_and_it_gets_none() {
    for word in [0, Offer::CURRENT.word(), 0x8001_0000, u32::MAX] {
        let (agreed, answer, dreq) = called_by(FOREIGN, word);
        assert_eq!(agreed, Agreement::FOREIGN, "{word:#x}");
        assert_eq!(answer, 0);
        assert!(dreq.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_garbage_word_takes_capabilities_away_and_adds_none() {
    for (word, version, final_psn) in [
        (0x00ff_ffff, 0, true),
        (0x0100_0000, 1, false),
        (0x7f00_000f, 1, false),
        (0xffff_ffff, 1, true),
    ] {
        let (agreed, answer, dreq) = called_by(OWN, word);
        assert!(agreed.is_own());
        assert_eq!(agreed.version(), version, "{word:#x}");
        assert_eq!(agreed.has(Capabilities::FINAL_PSN), final_psn, "{word:#x}");
        assert_eq!(dreq.starts_with(b"DAT\x01"), final_psn, "{word:#x}");
        let offer = Offer::CURRENT.with(Capabilities::REQUEST_ACKNOWLEDGES);
        assert_eq!(answer, offer.word());
    }
}

#[test]
fn the_answer_of_a_foreign_peer_makes_its_connection_plain_roce() {
    let mut pair = Pair::new("handshake_foreign_answer");
    let [here, peer] = [0, 1].map(|side| pair.sides[side].address);
    let (now, qpn) = (pair.now, pair.sides[0].qp());
    let id = pair.call(qpn, SERVICE);
    let memory = [pair.sides[0].memory.register(vec![7; 4096], ALL)];
    let engine = &mut pair.sides[0].engine;
    let requests = stranger::sent(engine, now);
    let transaction = u64::from_be_bytes(*requests[0].1[28..].first_chunk().unwrap());
    assert_eq!(engine.agreement(id), None);
    let CmMessage::Rep(mut rep) = stranger::rep(5, id.number(), Qpn::new(6)) else {
        unreachable!();
    };
    rep.qkey = u32::MAX;
    stranger::inject(engine, now, peer, transaction, &CmMessage::Rep(rep));
    assert_eq!(engine.agreement(id), Some(Agreement::FOREIGN), "{here}");
    // A WRITE of several packets: First, Middle, Last.
    let remote = softrxe_proto::Remote { address: 0, key: 1 };
    let write = SendRequest::new(1, Op::Write(remote), &memory);
    engine.post_send(now, qpn, &write).unwrap();
    let sent = stranger::sent(engine, now);
    let first = sent.iter().find(|m| m.1[0] != Opcode::UdSendOnly as u8);
    assert_eq!(first.unwrap().1[0], Opcode::WriteFirst as u8);
}
