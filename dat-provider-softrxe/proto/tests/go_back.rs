//! A requester that goes back at any time, as rdma_rxe does after a timeout, a NAK or an RNR NAK, while earlier packets are
//! in flight: repetitions and new packets arrive mixed. The responder refuses nothing, and everything is executed once.

mod common;

use common::Rng;
use common::memory::ALL;
use common::pair::Pair;
use softrxe_proto::opcode::Opcode;
use softrxe_proto::wire::{AtomicEth, Bth, Headers, Nak, Packet, Reth, Syndrome, packet};
use softrxe_proto::{CompletedOp, Psn, QpState, Qpn, Sge, Status};

const MTU: usize = 1024;
const FIRST: u32 = 0xff_fff0;
const PEER: Qpn = Qpn::new(77);

/// A packet of the peer, and the number of its PSNs.
struct Made {
    bytes: Vec<u8>,
    psn: Psn,
    count: u32,
}

/// The messages of one run.
#[derive(Default)]
struct Script {
    packets: Vec<Made>,
    /// Length of each message that consumes a receive, and its place if it was written.
    received: Vec<(CompletedOp, usize, u8, u64)>,
    adds: u64,
}

/// Builds the peer's packets.
struct Writer<'a> {
    to: Qpn,
    next: Psn,
    target: Sge,
    counter: Sge,
    rng: &'a mut Rng,
}

impl Writer<'_> {
    fn push(&mut self, script: &mut Script, opcode: Opcode, headers: Headers, payload: &[u8]) {
        let count = match headers.reth {
            Some(reth) if opcode == Opcode::ReadRequest => reth.length.div_ceil(MTU as u32).max(1),
            _ => 1,
        };
        let mut bth = Bth::new(opcode as u8, self.to, self.next);
        bth.pad = packet::pad(payload.len());
        bth.ack_request = opcode.position().ends() || self.rng.chance(200);
        let mut bytes = vec![0; 64 + payload.len()];
        let end = Packet {
            bth,
            opcode,
            headers,
            payload,
        }
        .emit(&mut bytes);
        bytes.truncate(end);
        script.packets.push(Made {
            bytes,
            psn: self.next,
            count,
        });
        self.next = self.next.plus(count);
    }

    /// Adds a message of `length` bytes `mark` in packets of the path MTU.
    fn message(&mut self, script: &mut Script, kind: u64, length: usize, mark: u8, offset: u64) {
        use Opcode as O;
        let write = kind > 1;
        let immediate = kind == 1 || kind == 3;
        let [first, middle, last, last_imm, only, only_imm] = if write {
            [
                O::WriteFirst,
                O::WriteMiddle,
                O::WriteLast,
                O::WriteLastImm,
                O::WriteOnly,
                O::WriteOnlyImm,
            ]
        } else {
            [
                O::SendFirst,
                O::SendMiddle,
                O::SendLast,
                O::SendLastImm,
                O::SendOnly,
                O::SendOnlyImm,
            ]
        };
        let count = length.div_ceil(MTU).max(1);
        for index in 0..count {
            let (begins, ends) = (index == 0, index + 1 == count);
            let opcode = match (begins, ends) {
                (true, true) if immediate => only_imm,
                (true, true) => only,
                (true, false) => first,
                (false, false) => middle,
                (false, true) if immediate => last_imm,
                (false, true) => last,
            };
            let reth = Reth {
                va: self.target.address + offset,
                rkey: self.target.key,
                length: length as u32,
            };
            let headers = Headers {
                reth: opcode.has_reth().then_some(reth),
                immediate: opcode.has_immediate().then_some(*b"imm!"),
                ..Headers::default()
            };
            let part = (length - index * MTU).min(MTU);
            self.push(script, opcode, headers, &vec![mark; part]);
        }
        if !write || immediate {
            let op = match write {
                true => CompletedOp::ReceiveWriteImm,
                false => CompletedOp::Receive,
            };
            script.received.push((op, length, mark, offset));
        }
    }

    fn script(&mut self, messages: u64) -> Script {
        let mut script = Script::default();
        for number in 0..messages {
            let length = [0, 8, 1024, 1025, 2048, 3000, 5000][self.rng.below(7) as usize];
            // Each write has its own place.
            let offset = number * 5000;
            match self.rng.below(6) {
                kind @ 0..=3 => self.message(&mut script, kind, length, number as u8 + 1, offset),
                4 => {
                    let reth = Reth {
                        va: self.target.address,
                        rkey: self.target.key,
                        length: length as u32,
                    };
                    let headers = Headers {
                        reth: Some(reth),
                        ..Headers::default()
                    };
                    self.push(&mut script, Opcode::ReadRequest, headers, &[]);
                }
                _ => {
                    let atomic = AtomicEth {
                        va: self.counter.address,
                        rkey: self.counter.key,
                        swap_or_add: 1,
                        compare: 0,
                    };
                    let headers = Headers {
                        atomic: Some(atomic),
                        ..Headers::default()
                    };
                    script.adds += 1;
                    self.push(&mut script, Opcode::FetchAdd, headers, &[]);
                }
            }
        }
        script
    }
}

struct Run {
    pair: Pair,
    qpn: Qpn,
    /// The first PSN that is not acknowledged.
    acknowledged: Psn,
    /// The PSN to go back to.
    told_to: Option<Psn>,
}

impl Run {
    fn give(&mut self, made: &Made) {
        self.pair.inject(made.bytes.clone());
    }

    /// Takes the answers; none may be a refusal.
    fn listen(&mut self) {
        for bytes in self.pair.poll(1) {
            let packet = Packet::parse(&bytes).unwrap();
            let psn = packet.bth.psn;
            let syndrome = packet.headers.aeth.map(|aeth| aeth.syndrome);
            let upto = match syndrome.map(|s| Syndrome::from_wire(s).unwrap()) {
                Some(Syndrome::Nak(Nak::SequenceError) | Syndrome::Rnr(_)) => {
                    self.told_to = Some(psn);
                    psn
                }
                Some(Syndrome::Nak(nak)) => panic!("refused: {nak:?} at {psn:?}"),
                Some(Syndrome::Ack(_)) | None => psn.plus(1),
            };
            if self.acknowledged.is_before(upto) {
                self.acknowledged = upto;
            }
        }
    }
}

fn repetitions_mixed_with_new_packets_are_never_refused() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::with("go_back", seed, |_| {});
        let qpn = pair.sides[1].qp();
        let mut path = pair.path(0, PEER, [Psn::new(5), Psn::new(FIRST)]);
        path.responder_resources = 16;
        pair.sides[1].engine.connect_qp(qpn, &path).unwrap();
        let target = pair.sides[1].memory.register(vec![0; 200_000], ALL);
        let counter = pair.sides[1].memory.register(vec![0; 8], ALL);
        let mut writer = Writer {
            to: qpn,
            next: Psn::new(FIRST),
            target,
            counter,
            rng: &mut rng,
        };
        let script = writer.script(14);
        let mut run = Run {
            pair,
            qpn,
            acknowledged: Psn::new(FIRST),
            told_to: None,
        };
        let (mut posted, mut inboxes) = (0, Vec::new());
        // The packet sent last; those before it may be in flight in any number of copies.
        let mut at = 0;
        for step in 0.. {
            assert!(step < 20_000, "seed {seed} makes no progress");
            let done = |made: &Made| made.psn.plus(made.count).distance(run.acknowledged) <= 0;
            let first = script.packets.iter().position(|made| !done(made));
            let Some(first) = first else { break };
            // Not all receives are posted at the start.
            if posted < script.received.len() && (rng.chance(150) || step > 2000) {
                let inbox = run.pair.sides[1].memory.register(vec![0; 6000], ALL);
                run.pair.receive(1, run.qpn, posted as u64, &[inbox]);
                inboxes.push(inbox);
                posted += 1;
            }
            at = at.max(first);
            match rng.below(8) {
                // Go back to the first unanswered PSN, or to the one that the responder names.
                0 => at = first,
                1 => {
                    if let Some(psn) = run.told_to.take() {
                        let place = script.packets.iter().position(|made| made.psn == psn);
                        at = place.unwrap_or(at).max(first);
                    }
                }
                // An old copy arrives now; that of a READ or an atomic only while the responder has to keep it.
                2 | 3 => {
                    let old = &script.packets[rng.below(at as u64 + 1) as usize];
                    run.give(old);
                }
                // The packet is lost.
                4 if at + 1 < script.packets.len() => at += 1,
                _ => {
                    run.give(&script.packets[at]);
                    at = (at + 1).min(script.packets.len() - 1);
                }
            }
            if rng.chance(400) {
                run.listen();
            }
        }
        run.listen();
        let side = &mut run.pair.sides[1];
        assert_eq!(side.engine.counters().refused, 0, "seed {seed}");
        assert_eq!(side.engine.qp_state(qpn), Some(QpState::ReadyToSend));
        let mut got = vec![softrxe_proto::Completion::default(); 64];
        let count = side.engine.poll_cq(side.cq, &mut got);
        assert_eq!(count, script.received.len(), "seed {seed}");
        for (number, (got, want)) in got.iter().zip(&script.received).enumerate() {
            let (op, length, mark, offset) = *want;
            assert_eq!(
                (got.wr_id, got.status, got.op, got.length as usize),
                (number as u64, Status::Success, op, length),
                "seed {seed}"
            );
            let (bytes, start) = match op {
                CompletedOp::Receive => (side.memory.bytes(&inboxes[number]), 0),
                _ => (side.memory.bytes(&target), offset as usize),
            };
            assert_eq!(bytes[start..start + length], vec![mark; length]);
        }
        let added = side.memory.bytes(&counter);
        let added = u64::from_ne_bytes(added.try_into().unwrap());
        assert_eq!(added, script.adds, "seed {seed}: each atomic once");
    }
}

/// Old copies of parts of a READ arrive together with the next READ, which is legal by then.
fn parts_of_an_old_read_leave_room_for_a_new_one() {
    let mut pair = Pair::new("old_reads");
    let qpn = pair.sides[1].qp();
    let mut path = pair.path(0, PEER, [Psn::new(5), Psn::new(FIRST)]);
    path.responder_resources = 1;
    pair.sides[1].engine.connect_qp(qpn, &path).unwrap();
    let target = pair.sides[1].memory.register(vec![3; 9000], ALL);
    let mut run = Run {
        pair,
        qpn,
        acknowledged: Psn::new(FIRST),
        told_to: None,
    };
    let read = |index: u32, length: u32| {
        let psn = Psn::new(FIRST).plus(index);
        let mut bytes = vec![0; 64];
        let reth = Reth {
            va: target.address + u64::from(index) * MTU as u64,
            rkey: target.key,
            length,
        };
        let end = Packet {
            bth: Bth::new(Opcode::ReadRequest as u8, qpn, psn),
            opcode: Opcode::ReadRequest,
            headers: Headers {
                reth: Some(reth),
                ..Headers::default()
            },
            payload: &[],
        }
        .emit(&mut bytes);
        bytes.truncate(end);
        let count = length.div_ceil(MTU as u32);
        Made { bytes, psn, count }
    };
    run.give(&read(0, 5 * 1024));
    run.listen();
    assert_eq!(run.acknowledged, Psn::new(FIRST).plus(5));
    for index in 0..5 {
        run.give(&read(index, (5 - index) * 1024));
    }
    run.give(&read(5, 1024));
    run.listen();
    assert_eq!(run.pair.sides[1].engine.counters().refused, 0);
    assert_eq!(run.acknowledged, Psn::new(FIRST).plus(6));
}

over_both_links!(
    repetitions_mixed_with_new_packets_are_never_refused,
    parts_of_an_old_read_leave_room_for_a_new_one,
);
