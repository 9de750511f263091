//! Two correct engines and a network that loses, repeats and reorders packets.
//!
//! Whatever the network does, no request is refused, and every message arrives once, in order and complete. When the
//! network is good at the end, everything completes. A packet may arrive at any later time between new ones, as repetitions
//! of go-back-N do.

use std::time::Duration;

use softrxe_proto::{
    Agreement, CompletedOp, Completion, Config, CqId, Engine, Meta, Op, Path, Psn, QpInit, QpKind,
    Qpn, Remote, Rights, SecretKey, SendRequest, Status, Time,
};

use crate::input::Input;
use crate::memory::{BASE, Grants, PD, sge};
use crate::packets::{HERE, Sent, THERE, drain};

/// Limits of the bytes of a message and of the messages of a side.
const ROOM: usize = 2048;
const MESSAGES: usize = 12;
/// Each side's memory: messages to send, receives, target of the peer's WRITEs, source of the peer's READs, sinks of its
/// READs, a counter.
const OUT: usize = 0;
const IN: usize = OUT + ROOM * MESSAGES;
const TARGET: usize = IN + ROOM * MESSAGES;
const SOURCE: usize = TARGET + ROOM * MESSAGES;
const SINK: usize = SOURCE + ROOM;
const COUNTER: usize = SINK + ROOM * MESSAGES;
const SIZE: usize = COUNTER + 8;
const KEY: u32 = 0x500;
const STEPS: usize = 600;

/// Expected effect of a request.
#[derive(Clone, Copy)]
struct Request {
    op: CompletedOp,
    slot: usize,
    length: usize,
    two_sided: bool,
}

struct Side {
    engine: Engine<Grants>,
    memory: Grants,
    qpn: Qpn,
    cq: CqId,
    posted: Vec<Request>,
    completed: usize,
    receives: usize,
    received: usize,
    adds: u64,
    gave_up: bool,
}

struct Pair {
    now: Time,
    sides: [Side; 2],
    /// Packets in flight to side 0 and 1.
    wire: [Vec<Sent>; 2],
    /// Earlier packets, to be repeated.
    past: [Vec<Sent>; 2],
    buffer: Vec<u8>,
}

const fn address(side: usize) -> std::net::SocketAddr {
    if side == 0 { HERE } else { THERE }
}

/// Returns the bytes of message `slot` of `side`.
fn pattern(side: usize, slot: usize) -> Vec<u8> {
    (0..ROOM)
        .map(|at| (at * 7 + slot * 31 + side * 101) as u8 | 1)
        .collect()
}

impl Pair {
    fn new(input: &mut Input<'_>) -> Self {
        let seed = input.u8();
        let mtu = input.pick(&[256, 512, 1024]);
        let agreement = input.pick(&[Agreement::FOREIGN, Agreement::CURRENT]);
        let chunk = input.pick(&[16, 1, 2]);
        let sides = [0, 1].map(|side| {
            let memory = Grants::new(SIZE, 0);
            memory.grant(KEY, 0..SIZE, Rights::all());
            for slot in 0..MESSAGES {
                memory.fill(OUT + slot * ROOM, &pattern(side, slot));
            }
            memory.fill(SOURCE, &pattern(side, 99));
            let seed = seed.wrapping_add(side as u8);
            let mut config =
                Config::new(address(side).ip(), SecretKey::new([seed; 32]), seed.into());
            config.qp_bits = 2;
            config.mtu = mtu;
            config.read_chunk = chunk;
            let mut engine = Engine::new(config, memory.clone());
            let cq = engine.create_cq().unwrap();
            let init = QpInit {
                kind: QpKind::Rc,
                pd: PD,
                token: side as u64,
                send_cq: cq,
                recv_cq: cq,
                srq: None,
                send_depth: 64,
                recv_depth: 64,
                max_sge: 1,
                access: Rights::all(),
                qkey: 0,
            };
            let qpn = engine.create_qp(&init).expect("the first");
            Side {
                engine,
                memory,
                qpn,
                cq,
                posted: Vec::new(),
                completed: 0,
                receives: 0,
                received: 0,
                adds: 0,
                gave_up: false,
            }
        });
        let mut pair = Self {
            now: Time::from_nanos(1000),
            sides,
            wire: Default::default(),
            past: Default::default(),
            buffer: vec![0; 65_000],
        };
        let psns = [0xff_fffa, 77].map(Psn::new);
        let depth = input.pick(&[4, 1, 16]);
        for side in 0..2 {
            let path = Path {
                remote: address(1 - side),
                qpn: pair.sides[1 - side].qpn,
                mtu,
                send_psn: psns[side],
                receive_psn: psns[1 - side],
                initiator_depth: depth,
                responder_resources: depth,
                retry_count: 7,
                rnr_retry: 7,
                agreement,
                link: softrxe_proto::Link::Wire,
            };
            let engine = &mut pair.sides[side].engine;
            engine
                .connect_qp(pair.sides[side].qpn, &path)
                .expect("it is new");
        }
        pair
    }

    fn post(&mut self, side: usize, input: &mut Input<'_>) {
        let slot = self.sides[side].posted.len();
        if slot >= MESSAGES {
            return;
        }
        let length = input.pick(&[8, 0, 255, 256, 257, 700, 1024, 1025, ROOM]);
        let target = |at: usize| Remote {
            address: BASE + at as u64,
            key: KEY,
        };
        let write = target(TARGET + slot * ROOM);
        let (op, done, from, length) = match input.below(6) {
            0 => (Op::Send, CompletedOp::Send, OUT, length),
            1 => (Op::SendImm(*b"seen"), CompletedOp::Send, OUT, length),
            2 => (Op::Write(write), CompletedOp::Write, OUT, length),
            3 => (
                Op::WriteImm(write, *b"done"),
                CompletedOp::Write,
                OUT,
                length,
            ),
            4 => (Op::Read(target(SOURCE)), CompletedOp::Read, SINK, length),
            _ => {
                let remote = target(COUNTER);
                let op = Op::FetchAdd { remote, add: 1 };
                (op, CompletedOp::FetchAdd, SINK, 8)
            }
        };
        let two_sided = matches!(op, Op::Send | Op::SendImm(_) | Op::WriteImm(..));
        let start = from + slot * ROOM;
        let segment = [sge(KEY, start..start + length)];
        let mut request = SendRequest::new(slot as u64, op, &segment);
        request.fence = input.below(4) == 3;
        let this = &mut self.sides[side];
        let posted = this.engine.post_send(self.now, this.qpn, &request);
        if this.gave_up {
            return;
        }
        posted.expect("there is room");
        this.adds += u64::from(done == CompletedOp::FetchAdd);
        this.posted.push(Request {
            op: done,
            slot,
            length,
            two_sided,
        });
    }

    fn receive(&mut self, side: usize) {
        let this = &mut self.sides[side];
        if this.receives < MESSAGES && !this.gave_up {
            let at = IN + this.receives * ROOM;
            let segment = [sge(KEY, at..at + ROOM)];
            let posted = this
                .engine
                .post_recv(this.qpn, this.receives as u64, &segment);
            posted.expect("there is room");
            this.receives += 1;
        }
    }

    fn deliver(&mut self, to: usize, packet: &Sent) {
        let meta = Meta {
            source: address(1 - to),
            ip_id: packet.index,
        };
        self.sides[to]
            .engine
            .handle_datagram(self.now, &meta, &packet.bytes);
    }

    /// Takes the packets of the engines, and checks the completions.
    fn settle(&mut self) {
        for side in 0..2 {
            let engine = &mut self.sides[side].engine;
            let sent = drain(engine, self.now, &mut self.buffer, address(side));
            self.wire[1 - side].extend(sent);
        }
        for side in 0..2 {
            self.complete(side);
            while self.sides[side].engine.poll_event().is_some() {}
            let counters = self.sides[side].engine.counters();
            assert_eq!(counters.refused, 0, "a request of ours was refused");
            assert_eq!((counters.malformed, counters.bad_icrc), (0, 0));
        }
    }

    fn complete(&mut self, side: usize) {
        let mut done = [Completion::default(); 32];
        let (these, those) = self.sides.split_at_mut(1);
        let (this, other) = match side {
            0 => (&mut these[0], &those[0]),
            _ => (&mut those[0], &these[0]),
        };
        let count = this.engine.poll_cq(this.cq, &mut done);
        for completion in &done[..count] {
            match completion.status {
                Status::Success => {}
                // The network lost everything for too long.
                Status::RetryExceeded | Status::Flushed => {
                    this.gave_up = true;
                    continue;
                }
                status => panic!("side {side}: {status:?}"),
            }
            let number = completion.wr_id as usize;
            if matches!(
                completion.op,
                CompletedOp::Receive | CompletedOp::ReceiveWriteImm
            ) {
                assert_eq!(number, this.received, "receives complete in order");
                let mut sends = other.posted.iter().filter(|request| request.two_sided);
                let sent = sends.nth(this.received).expect("a message was sent");
                this.received += 1;
                assert_eq!(completion.length as usize, sent.length);
                let at = match sent.op {
                    CompletedOp::Write => TARGET + sent.slot * ROOM,
                    _ => IN + number * ROOM,
                };
                let got = this.memory.bytes(at..at + sent.length);
                assert!(got == pattern(1 - side, sent.slot)[..sent.length]);
            } else {
                assert_eq!(number, this.completed, "requests complete in order");
                this.completed += 1;
                let posted = this.posted[number];
                assert_eq!(completion.op, posted.op);
                let at = SINK + posted.slot * ROOM;
                match posted.op {
                    CompletedOp::Read => {
                        let got = this.memory.bytes(at..at + posted.length);
                        assert!(got == pattern(1 - side, 99)[..posted.length]);
                    }
                    CompletedOp::Write => {
                        let at = TARGET + posted.slot * ROOM;
                        let there = other.memory.bytes(at..at + posted.length);
                        assert!(there == pattern(side, posted.slot)[..posted.length]);
                    }
                    _ => {}
                }
            }
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let choice = input.u8();
        let to = usize::from(choice & 1);
        match (choice >> 1) % 16 {
            0..=2 => self.post(to, input),
            3 | 4 => self.receive(to),
            5..=8 if !self.wire[to].is_empty() => {
                let at = match (choice >> 1) % 16 {
                    5 | 6 => 0,
                    _ => input.below(self.wire[to].len()),
                };
                let packet = self.wire[to].remove(at);
                self.deliver(to, &packet);
                self.past[to].push(packet);
            }
            9 if !self.wire[to].is_empty() => {
                let at = input.below(self.wire[to].len());
                let lost = self.wire[to].remove(at);
                self.past[to].push(lost);
            }
            10 | 11 if !self.past[to].is_empty() => {
                let recent = self.past[to].len().min(24);
                let at = self.past[to].len() - 1 - input.below(recent);
                let packet = self.past[to][at].clone();
                self.deliver(to, &packet);
            }
            12 => {
                for packet in std::mem::take(&mut self.wire[to]) {
                    self.deliver(to, &packet);
                    self.past[to].push(packet);
                }
            }
            13 => self.pass_time(),
            _ => self.now += Duration::from_micros(200),
        }
        self.settle();
    }

    fn pass_time(&mut self) {
        let due = self.sides.iter().filter_map(|s| s.engine.poll_timeout());
        if let Some(at) = due.min() {
            self.now = self.now.max(at);
            for side in &mut self.sides {
                side.engine.handle_timeout(self.now);
            }
        }
    }

    /// Makes the network good and posts the receives: everything must complete.
    fn end(&mut self) {
        for side in 0..2 {
            for _ in 0..MESSAGES {
                self.receive(side);
            }
        }
        for _ in 0..2000 {
            for to in 0..2 {
                for packet in std::mem::take(&mut self.wire[to]) {
                    self.deliver(to, &packet);
                }
            }
            self.settle();
            if self.wire.iter().all(Vec::is_empty) {
                self.pass_time();
                self.settle();
                let waits = self.sides.iter().any(|s| s.engine.poll_timeout().is_some());
                if !waits && self.wire.iter().all(Vec::is_empty) {
                    break;
                }
            }
        }
        if self.sides.iter().any(|side| side.gave_up) {
            return;
        }
        for side in 0..2 {
            let (this, other) = (&self.sides[side], &self.sides[1 - side]);
            assert_eq!(this.completed, this.posted.len(), "side {side} is stuck");
            let counter = other.memory.bytes(COUNTER..COUNTER + 8);
            let counter = u64::from_ne_bytes(counter.try_into().expect("eight bytes"));
            assert_eq!(counter, this.adds, "each atomic was executed once");
        }
    }
}

/// Interprets `data` as requests of both consumers and actions of the network.
///
/// # Panics
/// If an invariant is violated.
pub fn pair(data: &[u8]) {
    let mut input = Input::new(data);
    let mut pair = Pair::new(&mut input);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        pair.step(&mut input);
    }
    pair.end();
}
