//! Replays requests that rdma_rxe received to our responder, which must answer as rxe did.

mod common;

use std::net::IpAddr;

use common::pcap::{self, Captured};
use softrxe_proto::opcode::Opcode;
use softrxe_proto::wire::{Bth, Packet};
use softrxe_proto::{
    Access, AccessError, Agreement, AtomicOp, Config, Engine, Memory, Meta, MwBind, Path, Pd, Psn,
    QpInit, QpKind, Qpn, Rights, SecretKey, Sge, Time,
};

/// Memory that grants everything, or nothing to peers.
#[derive(Debug)]
struct Grant(bool);

impl Grant {
    fn grant(&self, access: &Access) -> Result<(), AccessError> {
        let remote = Rights::REMOTE_READ | Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC;
        if self.0 || !remote.contains(access.need) {
            Ok(())
        } else {
            Err(AccessError::Key(access.key))
        }
    }
}

impl Memory for Grant {
    fn check(&self, access: &Access, _: u64, _: u64) -> Result<(), AccessError> {
        self.grant(access)
    }

    fn read(&self, access: &Access, _: u64, _: &mut [u8]) -> Result<(), AccessError> {
        self.grant(access)
    }

    fn write(&self, access: &Access, _: u64, _: &[u8]) -> Result<(), AccessError> {
        self.grant(access)
    }

    fn atomic(&self, access: &Access, _: u64, _: AtomicOp) -> Result<u64, AccessError> {
        self.grant(access).map(|()| 0)
    }

    fn invalidate(&self, _: u32, _: Pd, _: Qpn, _: bool) -> Result<(), AccessError> {
        Ok(())
    }

    fn bind(&self, _: &MwBind, _: Pd, _: Qpn) -> Result<(), AccessError> {
        Ok(())
    }
}

/// The compared parts of an answer: opcode, PSN, AETH, payload length.
type Answer = (Opcode, Psn, Option<(u8, u32)>, usize);

fn answer(packet: &Packet<'_>) -> Option<Answer> {
    let aeth = packet.headers.aeth.map(|aeth| (aeth.syndrome, aeth.msn));
    let length = packet.payload.len();
    packet
        .opcode
        .is_response()
        .then_some((packet.opcode, packet.bth.psn, aeth, length))
}

/// The requests to one host, and its answers.
struct Conversation<'a> {
    responder: IpAddr,
    requester: IpAddr,
    mtu: u16,
    requests: Vec<&'a Captured>,
    answers: Vec<Answer>,
}

fn rc<'a>(captured: &'a Captured) -> Option<Packet<'a>> {
    let packet = Packet::parse(&captured.payload).ok()?;
    (packet.bth.opcode < 0x20).then_some(packet)
}

fn conversation<'a>(
    capture: &'a [Captured],
    responder: IpAddr,
    requester: IpAddr,
) -> Conversation<'a> {
    let between = |c: &Captured, from, to| {
        let (source, destination) = c.addresses();
        source.ip() == from && destination.ip() == to
    };
    let requests: Vec<_> = capture
        .iter()
        .filter(|c| between(c, requester, responder))
        .filter(|c| rc(c).is_some_and(|p| p.opcode.request().is_some()))
        .collect();
    let answers = capture
        .iter()
        .filter(|c| between(c, responder, requester))
        .filter_map(|c| answer(&rc(c)?))
        .collect();
    let longest = capture
        .iter()
        .filter_map(|c| rc(c).map(|p| p.payload.len() as u16));
    Conversation {
        responder,
        requester,
        mtu: longest.max().unwrap_or(0).next_power_of_two().max(256),
        requests,
        answers,
    }
}

/// Returns the answers of our responder.
fn replay(talk: &Conversation<'_>, grant: bool, inbox: u32) -> Vec<Answer> {
    let mut config = Config::new(talk.responder, SecretKey::new([1; 32]), 1);
    config.verify_icrc = false;
    let mut engine = Engine::new(config, Grant(grant));
    let cq = engine.create_cq().unwrap();
    let qpn = engine
        .create_qp(&QpInit {
            kind: QpKind::Rc,
            pd: Pd(1),
            token: 0,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            send_depth: 1,
            recv_depth: 512,
            max_sge: 1,
            access: Rights::all(),
            qkey: 0,
        })
        .unwrap();
    let first = rc(talk.requests[0]).unwrap().bth;
    let path = Path {
        remote: (talk.requester, 4791).into(),
        qpn: Qpn::new(0x99),
        mtu: talk.mtu,
        send_psn: Psn::new(0),
        receive_psn: first.psn,
        initiator_depth: 16,
        responder_resources: 128,
        retry_count: 7,
        rnr_retry: 7,
        agreement: Agreement::FOREIGN,
        link: softrxe_proto::Link::Wire,
    };
    engine.connect_qp(qpn, &path).unwrap();
    let sge = Sge {
        address: 0x1000,
        length: inbox,
        key: 1,
    };
    for i in 0..512 {
        engine.post_recv(qpn, i, &[sge]).unwrap();
    }
    let mut buffer = vec![0; 65_000];
    let mut answers = Vec::new();
    for captured in &talk.requests {
        let mut bytes = captured.payload.clone();
        let bth = Bth {
            destination: qpn,
            ..Bth::parse(&bytes).unwrap()
        };
        bth.emit(&mut bytes);
        let meta = Meta {
            source: captured.addresses().0,
            ip_id: 0,
        };
        engine.handle_datagram(Time::ZERO, &meta, &bytes);
        while let Some(run) = engine.poll_transmit(Time::ZERO, &mut buffer) {
            for packet in buffer[..run.length].chunks(run.segment) {
                answers.extend(answer(&Packet::parse(packet).unwrap()));
            }
        }
    }
    answers
}

/// Returns both directions of a capture with one connection.
fn conversations(capture: &[Captured]) -> Vec<Conversation<'_>> {
    let (a, b) = capture[0].addresses();
    let both = [(a.ip(), b.ip()), (b.ip(), a.ip())];
    let talks = both.map(|(from, to)| conversation(capture, from, to));
    talks
        .into_iter()
        .filter(|talk| !talk.requests.is_empty())
        .collect()
}

#[test]
fn answers_are_those_of_rxe() {
    let mut compared = 0;
    for name in [
        "atomic_cas",
        "atomic_faa",
        "pingpong4",
        "pingpong6",
        "read_bw",
        "rping4",
        "rping6",
        "rping_4000",
        "send_bw",
        "send_srq",
        "write_bw",
        "write_bw4k",
    ] {
        let capture = pcap::read(name);
        for talk in conversations(&capture) {
            assert_eq!(replay(&talk, true, 1 << 20), talk.answers, "{name}");
            compared += talk.answers.len();
        }
    }
    assert_eq!(compared, 150);
}

#[test]
fn refusals_are_those_of_rxe() {
    for name in ["rc_badkey", "rc_oob", "rc_readoob"] {
        let capture = pcap::read(name);
        let talk = conversations(&capture).remove(0);
        assert_eq!(replay(&talk, false, 1 << 20), talk.answers, "{name}");
        assert_eq!(talk.answers[0].2.unwrap().0, 0x62);
    }
}

/// IBTA requires "invalid request" for a SEND that is longer than the receive; rxe answers "operational error".
#[test]
fn a_send_longer_than_its_receive_is_an_invalid_request() {
    let capture = pcap::read("rc_short");
    let talk = conversations(&capture).remove(0);
    let ours = replay(&talk, true, 1);
    assert_eq!(ours.len(), 1);
    assert_eq!((ours[0].1, ours[0].2.unwrap().0), (talk.answers[0].1, 0x61));
    assert_eq!(talk.answers[0].2.unwrap().0, 0x63);
}
