//! The connection manager: messages of a peer and calls of a consumer in any order.

use std::collections::BTreeMap;
use std::time::Duration;

use dat_handshake::{Offer, final_psn};
use softrxe_proto::opcode::Opcode;
use softrxe_proto::wire::cm::{
    Answered, CmMessage, CmPath, Drep, Dreq, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq,
    private_data as private_data_field,
};
use softrxe_proto::wire::{Bth, CmaHeader, Deth, Headers, MadHeader, Packet};
use softrxe_proto::{
    Accept, CmEventKind, CmId, Config, Connect, Engine, Event, Psn, QpInit, QpKind, Qpn,
    RejectReason, Rights, SecretKey, SidrReply, SidrRequest, Time, service_id,
};

use crate::input::Input;
use crate::memory::{Grants, PD};
use crate::packets::{HERE, THERE, deliver, drain, with_icrc};

const STEPS: usize = 200;
/// Queue pairs, as a power of two.
const QP_BITS: u8 = 3;
const PORT: u16 = 7000;
const GSI_QKEY: u32 = 0x8001_0000;

/// State of an id, from its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IdState {
    /// A peer or the consumer has requested it.
    Open,
    Established,
    /// It has ended; no further event may name it.
    Ended,
}

struct World {
    engine: Engine<Grants>,
    now: Time,
    buffer: Vec<u8>,
    qps: Vec<Qpn>,
    ids: BTreeMap<CmId, IdState>,
    /// Unanswered requests of the peer, for a connection and for datagrams.
    asked: Vec<CmId>,
    resolving: Vec<CmId>,
    /// Another engine of the address, which answers requests that were passed on, and its id of each.
    second: Engine<Grants>,
    passed: BTreeMap<CmId, CmId>,
    /// Ids and transactions in the engine's messages.
    seen: Vec<(u32, u64)>,
    init: QpInit,
}

impl World {
    fn new(input: &mut Input<'_>) -> Self {
        let seed = input.u8();
        let mut config = Config::new(HERE.ip(), SecretKey::new([seed; 32]), seed.into());
        config.qp_bits = QP_BITS;
        config.mtu = 1024;
        config.refused_repeats = input.pick(&[0, 3]);
        let mut engine = Engine::new(config.clone(), Grants::new(16, 0));
        let cq = engine.create_cq().unwrap();
        config.qpn_prefix_bits = 1;
        config.qpn_prefix = 1;
        let mut second = Engine::new(config, Grants::new(16, 0));
        // Of the same number, so that both engines' queue pairs are made alike.
        assert_eq!(second.create_cq().unwrap(), cq);
        for id in [service_id::tcp(PORT), service_id::udp(PORT)] {
            engine.listen(id).expect("free");
        }
        Self {
            engine,
            now: Time::from_nanos(1000),
            buffer: vec![0; 65_000],
            qps: Vec::new(),
            ids: BTreeMap::new(),
            asked: Vec::new(),
            resolving: Vec::new(),
            second,
            passed: BTreeMap::new(),
            seen: Vec::new(),
            init: QpInit {
                kind: QpKind::Rc,
                pd: PD,
                token: 1,
                send_cq: cq,
                recv_cq: cq,
                srq: None,
                send_depth: 2,
                recv_depth: 2,
                max_sge: 1,
                access: Rights::empty(),
                qkey: 0,
            },
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(20) {
            0..=8 => {
                let message = self.message(input);
                let transaction = self.transaction(input);
                self.send(transaction, message.attribute_id(), &message.emit());
            }
            9 | 10 => self.raw(input),
            11 => self.connect(input),
            12 | 13 => self.accept(input),
            14 => {
                if input.flag() {
                    self.pass_on(input);
                } else if let Some(id) = take(&mut self.asked, input) {
                    let reason = RejectReason(input.u8().into());
                    let _ = self.engine.reject(self.now, id, reason, b"no");
                    self.ids.insert(id, IdState::Ended);
                }
            }
            15 => {
                let ids: Vec<CmId> = self.ids.keys().copied().collect();
                if !ids.is_empty() {
                    let id = ids[input.below(ids.len())];
                    let before = self.ids[&id];
                    let asked = self.asked.contains(&id);
                    let ended = self.engine.disconnect(self.now, id);
                    assert!(ended.is_err() || before != IdState::Ended);
                    if ended.is_ok() && asked {
                        // A request that was not answered raises no further event.
                        self.asked.retain(|other| *other != id);
                        self.ids.insert(id, IdState::Ended);
                    }
                }
            }
            16 => {
                if !self.qps.is_empty() {
                    let qpn = self.qps.swap_remove(input.below(self.qps.len()));
                    self.engine.destroy_qp(self.now, qpn);
                }
            }
            17 => self.pass_time(input),
            18 => {
                let request = SidrRequest {
                    remote: THERE,
                    service_id: service_id::udp(PORT),
                    source_port: 9,
                    private_data: b"who",
                    timeout: None,
                };
                if self.engine.connections() < 40 {
                    let id = self.engine.sidr_request(self.now, &request);
                    self.ids.insert(id.expect("same family"), IdState::Open);
                }
            }
            _ => {
                if let Some(id) = take(&mut self.resolving, input) {
                    let reply = SidrReply {
                        status: input.below(3) as u8,
                        qpn: Qpn::new(5),
                        qkey: 6,
                        private_data: b"me",
                    };
                    let _ = self.engine.sidr_reply(self.now, id, &reply);
                    self.ids.insert(id, IdState::Ended);
                }
            }
        }
    }

    fn qp(&mut self) -> Option<Qpn> {
        let qpn = self.engine.create_qp(&self.init).ok()?;
        self.qps.push(qpn);
        Some(qpn)
    }

    fn connect(&mut self, input: &mut Input<'_>) {
        let Some(qpn) = self.qp() else { return };
        let asked = Connect::new(THERE, service_id::tcp(input.u8().into()), b"hello");
        let id = self.engine.connect(self.now, qpn, &asked);
        self.ids
            .insert(id.expect("a new queue pair"), IdState::Open);
    }

    fn accept(&mut self, input: &mut Input<'_>) {
        let Some(qpn) = self.qp() else { return };
        let Some(id) = take(&mut self.asked, input) else {
            return;
        };
        // The peer may have given up in the meantime.
        let _ = self.engine.accept(self.now, id, qpn, &Accept::new(b"yes"));
    }

    /// Passes a request to the second engine, which accepts it, refuses it, or waits for its consumer.
    fn pass_on(&mut self, input: &mut Input<'_>) {
        let Some(id) = take(&mut self.asked, input) else {
            return;
        };
        self.ids.insert(id, IdState::Ended);
        // The peer may have given up in the meantime.
        let Ok(passed) = self.engine.pass_on(self.now, id) else {
            return;
        };
        let Ok(there) = self.second.add_passed(self.now, passed) else {
            return;
        };
        self.passed.insert(id, there);
        let answer = Accept::new(b"yes");
        match input.below(3) {
            0 => {
                let consumer = RejectReason::CONSUMER;
                let _ = self.second.reject(self.now, there, consumer, b"");
            }
            1 => {
                if let Ok(qpn) = self.second.create_qp(&self.init) {
                    let _ = self.second.accept(self.now, there, qpn, &answer);
                }
            }
            _ => {}
        }
    }

    fn pass_time(&mut self, input: &mut Input<'_>) {
        self.now = match (input.flag(), self.engine.poll_timeout()) {
            (true, Some(at)) => self.now.max(at),
            _ => self.now + Duration::from_millis(input.u8().into()),
        };
        self.engine.handle_timeout(self.now);
        self.second.handle_timeout(self.now);
    }

    fn id(&self, input: &mut Input<'_>) -> u32 {
        match input.below(8) {
            0 => 0,
            1 => input.u8().into(),
            _ if self.seen.is_empty() => 1,
            _ => self.seen[input.below(self.seen.len())].0,
        }
    }

    fn transaction(&self, input: &mut Input<'_>) -> u64 {
        match self.seen.len() {
            0 => input.u8().into(),
            count => self.seen[input.below(count)].1,
        }
    }

    fn message(&self, input: &mut Input<'_>) -> CmMessage {
        let local_id = input.below(6) as u32;
        let remote_id = self.id(input);
        let guid = input.pick(&[0x0200_00ff_fe00_0001, 0x5d52_0000_0000_0001, 0]);
        let qpn = Qpn::new(input.below(6) as u32);
        match input.below(10) {
            0 | 1 => CmMessage::Req(req(input, local_id, guid, qpn)),
            2 => CmMessage::Rep(Rep {
                local_id,
                remote_id,
                qkey: word(input),
                qpn,
                vendor_high: 0,
                ee_context: 0,
                starting_psn: Psn::new(5),
                responder_resources: input.u8(),
                initiator_depth: input.u8(),
                target_ack_delay: 0,
                failover: 0,
                flow_control: false,
                rnr_retry: 7,
                srq: false,
                ca_guid: guid,
                private_data: [1; Rep::PRIVATE_DATA],
            }),
            3 => CmMessage::Rtu(Rtu {
                local_id,
                remote_id,
                private_data: [2; Rtu::PRIVATE_DATA],
            }),
            4 => CmMessage::Mra(Mra {
                local_id,
                remote_id,
                message: Answered::Req,
                service_timeout: input.u8() & 31,
                private_data: [3; Mra::PRIVATE_DATA],
            }),
            5 => CmMessage::Rej(Rej {
                local_id,
                remote_id,
                message: Answered::Other,
                info_length: 0,
                reason: RejectReason(input.pick(&[8, 28, 10, 4])),
                info: [0; 72],
                private_data: [4; Rej::PRIVATE_DATA],
            }),
            6 => CmMessage::Dreq(Dreq {
                local_id,
                remote_id,
                remote_qpn: match self.qps.len() {
                    0 => qpn,
                    count => self.qps[input.below(count)],
                },
                private_data: dreq_data(input),
            }),
            7 => CmMessage::Drep(Drep {
                local_id,
                remote_id,
                private_data: [6; Drep::PRIVATE_DATA],
            }),
            8 => CmMessage::SidrReq(SidrReq {
                request_id: local_id,
                pkey: 0xffff,
                service_id: service_id::udp(input.pick(&[PORT, 1])),
                private_data: private_data(),
            }),
            _ => CmMessage::SidrRep(SidrRep {
                request_id: remote_id,
                status: input.below(3) as u8,
                info_length: 0,
                vendor_high: 0,
                qpn,
                vendor_low: 0,
                service_id: service_id::udp(PORT),
                qkey: 1,
                info: [0; 72],
                private_data: [7; SidrRep::PRIVATE_DATA],
            }),
        }
    }

    /// Sends bytes as a message; the first byte selects what is corrected.
    fn raw(&mut self, input: &mut Input<'_>) {
        let fix = input.u8();
        let remote_id = self.id(input);
        let transaction = self.transaction(input);
        let mut mad = [0; MadHeader::MAD_LEN];
        let given = input.bytes(mad.len());
        mad[..given.len()].copy_from_slice(given);
        let Some(header) = MadHeader::parse(&mad) else {
            return;
        };
        let body = &mut mad[MadHeader::LEN..];
        if fix & 1 != 0 {
            if header.attribute_id == 0x10 {
                body[8..16].copy_from_slice(&service_id::tcp(PORT).to_be_bytes());
                let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 2];
                body[72..88].copy_from_slice(&gid);
            } else {
                body[4..8].copy_from_slice(&remote_id.to_be_bytes());
            }
        }
        let transaction = match fix & 2 {
            0 => header.transaction_id,
            _ => transaction,
        };
        let body = body.to_vec();
        self.send(transaction, header.attribute_id, &body);
    }

    fn send(&mut self, transaction: u64, attribute: u16, body: &[u8]) {
        let mut mad = vec![0; MadHeader::LEN];
        MadHeader::cm(transaction, attribute).emit(&mut mad);
        mad.extend(body);
        let bytes = with_icrc(&Packet {
            bth: Bth::new(Opcode::UdSendOnly as u8, Qpn::GSI, Psn::new(1)),
            opcode: Opcode::UdSendOnly,
            headers: Headers {
                deth: Some(Deth {
                    qkey: GSI_QKEY,
                    source: Qpn::GSI,
                }),
                ..Headers::default()
            },
            payload: &mad,
        });
        deliver(&mut self.engine, self.now, &bytes);
    }

    /// Takes and checks the packets and events that the step caused.
    fn settle(&mut self) {
        for sent in drain(&mut self.engine, self.now, &mut self.buffer, HERE) {
            let packet = sent.packet();
            if packet.bth.destination != Qpn::GSI {
                continue;
            }
            let header = MadHeader::parse(packet.payload).expect("a whole header");
            let body = packet.payload[MadHeader::LEN..].try_into();
            let body = body.expect("a whole message");
            let message = CmMessage::parse(header.attribute_id, &body).expect("a known message");
            assert_eq!(message.emit(), body);
            let id = u32::from_be_bytes([body[0], body[1], body[2], body[3]]);
            self.seen.push((id, header.transaction_id));
            if self.seen.len() > 40 {
                self.seen.remove(0);
            }
        }
        while let Some(event) = self.engine.poll_event() {
            if let Event::Cm(event) = event {
                self.record_event(event.id, &event.kind);
            }
        }
        drain(&mut self.second, self.now, &mut self.buffer, HERE);
        while let Some(event) = self.second.poll_event() {
            if let Event::Cm(event) = event {
                assert!(self.passed.values().any(|there| *there == event.id));
            }
        }
        // Connections that the network can cause, and those of the consumer.
        assert!(self.engine.connections() <= (2 << QP_BITS) + 64);
    }

    fn record_event(&mut self, id: CmId, kind: &CmEventKind) {
        let before = self.ids.get(&id).copied();
        let after = match kind {
            CmEventKind::Forwarded(what) => {
                assert_eq!(before, Some(IdState::Ended), "{id:?} was not passed on");
                if let Some(there) = self.passed.get(&id) {
                    self.second.forwarded(self.now, *there, *what);
                }
                IdState::Ended
            }
            CmEventKind::Request(_) => {
                assert_eq!(before, None, "{id:?} asks twice");
                self.asked.push(id);
                IdState::Open
            }
            CmEventKind::SidrRequest(_) => {
                assert_eq!(before, None, "{id:?} asks twice");
                self.resolving.push(id);
                IdState::Open
            }
            CmEventKind::Established(_) => {
                assert_eq!(before, Some(IdState::Open), "{id:?} is established");
                IdState::Established
            }
            CmEventKind::Rejected { .. }
            | CmEventKind::TimedOut
            | CmEventKind::Disconnected
            | CmEventKind::SidrReply { .. } => {
                assert!(
                    matches!(before, Some(IdState::Open | IdState::Established)),
                    "{id:?}: {kind:?} after {before:?}"
                );
                IdState::Ended
            }
        };
        if after == IdState::Ended {
            self.asked.retain(|other| *other != id);
        }
        self.ids.insert(id, after);
    }

    /// Ends everything from the consumer's side; nothing may be left.
    fn end(&mut self) {
        for id in std::mem::take(&mut self.asked) {
            let _ = self
                .engine
                .reject(self.now, id, RejectReason::CONSUMER, b"");
        }
        for id in std::mem::take(&mut self.resolving) {
            let reply = SidrReply {
                status: 1,
                qpn: Qpn::default(),
                qkey: 0,
                private_data: b"",
            };
            let _ = self.engine.sidr_reply(self.now, id, &reply);
        }
        for qpn in std::mem::take(&mut self.qps) {
            self.engine.destroy_qp(self.now, qpn);
        }
        self.settle();
        let mut fired = 0;
        while let Some(at) = self.engine.poll_timeout() {
            self.now = self.now.max(at);
            self.engine.handle_timeout(self.now);
            self.settle();
            fired += 1;
            assert!(fired < 10_000, "timers fire without end");
        }
        assert_eq!(
            self.engine.connections(),
            0,
            "ended connections are removed"
        );
    }
}

fn take(from: &mut Vec<CmId>, input: &mut Input<'_>) -> Option<CmId> {
    if from.is_empty() {
        return None;
    }
    Some(from.swap_remove(input.below(from.len())))
}

/// Returns private data of a DREQ: meaningless, or a final PSN and a refusal.
fn dreq_data(input: &mut Input<'_>) -> [u8; Dreq::PRIVATE_DATA] {
    match input.u8() {
        0 => [5; Dreq::PRIVATE_DATA],
        psn => {
            let refusal = final_psn::Refusal {
                syndrome: input.u8(),
                psn: input.u8().into(),
            };
            private_data_field(&final_psn::emit(psn.into(), Some(refusal)))
        }
    }
}

/// Returns private data with a CMA header.
fn private_data<const N: usize>() -> [u8; N] {
    let mut data = [9; N];
    let header = CmaHeader {
        source: THERE,
        destination: HERE.ip(),
    };
    header.emit(&mut data);
    data
}

/// Returns an offer: none, this version's, a later one's, or one with any bits.
fn word(input: &mut Input<'_>) -> u32 {
    match input.below(4) {
        0 => 0,
        1 => Offer::CURRENT.word(),
        2 => u32::MAX,
        _ => u32::from(input.u8()) << 24 | u32::from(input.u16()),
    }
}

fn req(input: &mut Input<'_>, local_id: u32, ca_guid: u64, qpn: Qpn) -> Req {
    let mut primary = CmPath::default();
    primary.remote_gid[10..].copy_from_slice(&[0xff, 0xff, 10, 9, 0, input.pick(&[2, 2, 2, 3])]);
    Req {
        local_id,
        vendor: 0,
        service_id: input.pick(&[service_id::tcp(PORT), service_id::tcp(PORT), 1]),
        ca_guid,
        qkey: word(input),
        qpn,
        responder_resources: input.u8(),
        local_ee_context: 0,
        initiator_depth: input.u8(),
        remote_ee_context: 0,
        remote_response_timeout: 20,
        transport: input.pick(&[0, 0, 0, 1]),
        flow_control: false,
        starting_psn: Psn::new(9),
        local_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        mtu: input.pick(&[3, 1, 5, 0]),
        rdc_exists: false,
        rnr_retry: 7,
        max_cm_retries: 15,
        srq: false,
        extended_transport: 0,
        primary,
        alternate: CmPath::default(),
        private_data: private_data(),
    }
}

/// Interprets `data` as messages of a peer and calls of a consumer.
///
/// # Panics
/// If an invariant is violated.
pub fn cm(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new(&mut input);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
        world.settle();
    }
    world.end();
}
