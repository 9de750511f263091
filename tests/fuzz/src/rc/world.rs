//! The engine under test, the posted work, and the invariants.

use std::collections::VecDeque;
use std::ops::Range;

use softrxe_proto::opcode::Opcode;
use softrxe_proto::wire::{Nak, Syndrome};
use softrxe_proto::{
    Agreement, CompletedOp, Completion, Config, CqId, Engine, Link, Path, Psn, QpInit, QpKind,
    QpState, Qpn, Rights, SecretKey, Sge, Status, Time,
};

use crate::input::Input;
use crate::memory::{Grants, PD};
use crate::packets::{HERE, PEER, THERE, drain};
use crate::records;

const LOCAL: Rights = Rights::LOCAL_READ.union(Rights::LOCAL_WRITE);
const REMOTE: Rights = Rights::REMOTE_READ
    .union(Rights::REMOTE_WRITE)
    .union(Rights::REMOTE_ATOMIC);

/// Keys, and the ranges of their memory. The memory between and after them is not granted.
pub(super) const SECRET: (u32, Range<usize>) = (0x1_00, 0..1024);
pub(super) const OPEN: (u32, Range<usize>) = (0x2_00, 1024..3072);
pub(super) const READABLE: (u32, Range<usize>) = (0x3_00, 4096..6144);
pub(super) const INBOX: (u32, Range<usize>) = (0x4_00, 6144..8192);
pub(super) const OUTBOX: (u32, Range<usize>) = (0x5_00, 8192..10240);
pub(super) const BELOW: (u32, Range<usize>) = (0x6_00, 10240..12288);
/// Windows of type 1 and 2; their key byte changes.
pub(super) const WINDOWS: [u32; 2] = [0x7_00, 0x8_00];
/// A region that is long enough to be lent.
pub(super) const LONG: (u32, Range<usize>) = (0x9_00, 16_384..16_384 + 24_576);
const BYTES: usize = 49_152;

pub(super) struct World {
    pub(super) engine: Engine<Grants>,
    pub(super) memory: Grants,
    pub(super) qpn: Qpn,
    /// A queue pair of datagrams without receives: nothing that arrives there may change anything.
    pub(super) datagrams: Qpn,
    pub(super) now: Time,
    pub(super) mtu: u16,
    pub(super) link: Link,
    /// Room for records.
    pub(super) room: usize,
    /// The PSN that the engine expects next, as far as its answers show.
    pub(super) expected: Psn,
    /// The PSN after the newest that it has sent.
    pub(super) high: Psn,
    pub(super) keys: [u32; 2],
    cq: CqId,
    buffer: Vec<u8>,
    receives: VecDeque<(u64, Vec<Range<usize>>)>,
    sends: VecDeque<(u64, Vec<Range<usize>>, bool)>,
    next: u64,
    shadow: Vec<u8>,
    opened: [Vec<Range<usize>>; 2],
    posted: [Vec<Range<usize>>; 2],
}

impl World {
    /// Creates an engine with a queue pair that is connected over `link`.
    pub(super) fn over(input: &mut Input<'_>, link: Link) -> Self {
        let memory = Grants::new(BYTES, 0xaa);
        for (key, range, rights) in [
            (SECRET.0, SECRET.1, LOCAL),
            (OPEN.0, OPEN.1, LOCAL | REMOTE),
            (
                READABLE.0,
                READABLE.1,
                Rights::LOCAL_READ | Rights::REMOTE_READ,
            ),
            (INBOX.0, INBOX.1, LOCAL),
            (OUTBOX.0, OUTBOX.1, LOCAL),
            (BELOW.0, BELOW.1, LOCAL | Rights::WINDOW_BIND),
            (LONG.0, LONG.1, LOCAL | REMOTE),
        ] {
            memory.grant(key, range, rights);
        }
        for key in WINDOWS {
            memory.window(key);
        }
        let seed = input.u8();
        let mut config = Config::new(HERE.ip(), SecretKey::new([seed; 32]), seed.into());
        config.qp_bits = 3;
        config.mtu = input.pick(&[256, 1024, 4096]);
        let mtu = config.mtu;
        let mut engine = Engine::new(config, memory.clone());
        let cq = engine.create_cq().unwrap();
        for (guid, id) in [(1, records::OTHER), (2, records::ID)] {
            let up = engine.near_up(id, THERE, guid, mtu);
            up.expect("it is not in use");
        }
        let access = match input.below(8) {
            0 => Rights::REMOTE_READ,
            1 => Rights::REMOTE_WRITE,
            2 => Rights::empty(),
            _ => REMOTE,
        };
        let init = QpInit {
            kind: QpKind::Rc,
            pd: PD,
            token: 9,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            send_depth: 16,
            recv_depth: 16,
            max_sge: 2,
            access,
            qkey: 0,
        };
        let qpn = engine.create_qp(&init).expect("the first");
        let datagrams = QpInit {
            kind: QpKind::Ud,
            ..init
        };
        let datagrams = engine.create_qp(&datagrams).expect("the second");
        let mut world = Self {
            engine,
            qpn,
            datagrams,
            now: Time::from_nanos(1000),
            mtu,
            link,
            room: records::ROOM,
            expected: Psn::default(),
            high: Psn::default(),
            keys: WINDOWS,
            cq,
            buffer: vec![0; 65_000],
            receives: VecDeque::new(),
            sends: VecDeque::new(),
            next: 0,
            shadow: vec![0xaa; BYTES],
            opened: Default::default(),
            posted: Default::default(),
            memory,
        };
        world.connect(input);
        world.record_open_memory();
        world
    }

    fn connect(&mut self, input: &mut Input<'_>) {
        self.expected = Psn::new(input.pick(&[100, 0xff_fff8, 0, 0x7f_fffe]));
        self.high = Psn::new(input.pick(&[5000, 0xff_fffe]));
        let path = Path {
            remote: THERE,
            qpn: PEER,
            mtu: self.mtu,
            send_psn: self.high,
            receive_psn: self.expected,
            initiator_depth: input.pick(&[4, 1, 0]),
            responder_resources: input.pick(&[4, 1, 0]),
            retry_count: 3,
            rnr_retry: input.pick(&[7, 1]),
            agreement: input.pick(&[Agreement::FOREIGN, Agreement::CURRENT]),
            link: self.link,
        };
        self.engine
            .connect_qp(self.qpn, &path)
            .expect("it is new or reset");
    }

    /// Returns the number of a new work request.
    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn receive(&mut self, sges: &[Sge], places: Vec<Range<usize>>) {
        let id = self.id();
        if self.engine.post_recv(self.qpn, id, sges).is_ok() {
            self.posted[1].extend(places.iter().cloned());
            self.receives.push_back((id, places));
        }
    }

    /// Posts a request; `sink` is the memory for its result.
    pub(super) fn send(
        &mut self,
        op: softrxe_proto::Op,
        sge: &[Sge],
        place: Range<usize>,
        fence: bool,
    ) {
        let id = self.id();
        let mut request = softrxe_proto::SendRequest::new(id, op, sge);
        request.fence = fence;
        let sink = matches!(
            op,
            softrxe_proto::Op::Read(_)
                | softrxe_proto::Op::CompareSwap { .. }
                | softrxe_proto::Op::FetchAdd { .. }
        );
        if self.engine.post_send(self.now, self.qpn, &request).is_ok() {
            self.posted[usize::from(sink)].push(place.clone());
            self.sends.push_back((id, vec![place], sink));
        }
    }

    /// Resets and connects the queue pair; the posted work is removed.
    pub(super) fn reset(&mut self, input: &mut Input<'_>) {
        self.complete();
        self.room = records::ROOM;
        self.engine.reset_qp(self.now, self.qpn);
        assert!(
            !self.memory.is_lent_by(self.qpn),
            "the memory of requests that are gone is lent"
        );
        self.receives.clear();
        self.sends.clear();
        self.connect(input);
    }

    /// Records what may be read and written in the next step.
    fn record_open_memory(&mut self) {
        self.opened = [
            self.memory.open(Rights::REMOTE_READ),
            self.memory
                .open(Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC),
        ];
        let places = |sink: bool| {
            let sends = self.sends.iter().filter(move |send| send.2 == sink);
            sends.flat_map(|send| send.1.iter().cloned())
        };
        let received = self.receives.iter().flat_map(|receive| receive.1.clone());
        let posted = [
            places(false).collect(),
            places(true).chain(received).collect(),
        ];
        self.posted = posted;
    }

    /// Takes and checks what a step caused.
    pub(super) fn settle(&mut self) {
        let mut sent = drain(&mut self.engine, self.now, &mut self.buffer, HERE);
        if self.link != Link::Wire {
            assert!(
                sent.is_empty(),
                "a packet of a channel was sent as a datagram"
            );
            sent = records::drain(&mut self.engine, self.now, self.room);
        }
        for packet in &sent {
            let packet = packet.packet();
            assert_eq!(packet.bth.destination, PEER);
            self.learn(&packet);
        }
        self.complete();
        while self.engine.poll_event().is_some() {}
        self.check_accesses();
        if self.engine.qp_state(self.qpn) == Some(QpState::Error) {
            assert!(
                self.receives.is_empty() && self.sends.is_empty(),
                "a broken queue pair completes everything"
            );
            assert!(
                !self.memory.is_lent_by(self.qpn),
                "the memory of flushed requests is lent"
            );
        }
        self.record_open_memory();
    }

    /// Updates the PSNs from a packet of the engine.
    fn learn(&mut self, packet: &softrxe_proto::wire::Packet<'_>) {
        let psn = packet.bth.psn;
        match (packet.opcode, packet.headers.aeth) {
            (Opcode::Acknowledge, Some(aeth)) => match Syndrome::from_wire(aeth.syndrome) {
                Some(Syndrome::Ack(_)) => self.expected = psn.plus(1),
                Some(Syndrome::Rnr(_) | Syndrome::Nak(Nak::SequenceError)) => self.expected = psn,
                Some(Syndrome::Nak(_)) => {}
                None => panic!("reserved syndrome {:#x}", aeth.syndrome),
            },
            (opcode, _) if opcode.request().is_some() => {
                let count = match packet.headers.reth {
                    Some(reth) if opcode == Opcode::ReadRequest => {
                        reth.length.div_ceil(self.mtu.into()).max(1)
                    }
                    // A lent payload is longer than the MTU.
                    _ => (packet.payload.len() as u32)
                        .div_ceil(self.mtu.into())
                        .max(1),
                };
                let end = psn.plus(count);
                if self.high.is_before(end) {
                    self.high = end;
                }
            }
            _ => {}
        }
    }

    /// Checks that completions come once, in the order of posting, and for posted work only.
    fn complete(&mut self) {
        let mut done = [Completion::default(); 16];
        loop {
            let count = self.engine.poll_cq(self.cq, &mut done);
            for completion in &done[..count] {
                assert_eq!((completion.qpn, completion.token), (self.qpn, 9));
                let (id, room) = match completion.op {
                    CompletedOp::Receive | CompletedOp::ReceiveWriteImm => {
                        let (id, places) = self.receives.pop_front().expect("was posted");
                        (id, places.iter().map(Range::len).sum())
                    }
                    _ => {
                        let (id, ..) = self.sends.pop_front().expect("was posted");
                        (id, usize::MAX)
                    }
                };
                assert_eq!(completion.wr_id, id, "{completion:?}");
                if completion.status == Status::Success && completion.op == CompletedOp::Receive {
                    assert!(completion.length as usize <= room);
                }
            }
            if count == 0 {
                return;
            }
        }
    }

    /// Checks that only memory was accessed that was granted or posted before the step or by it.
    fn check_accesses(&mut self) {
        let (reads, writes) = self.memory.touched();
        let opened = [
            self.memory.open(Rights::REMOTE_READ),
            self.memory
                .open(Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC),
        ];
        for (which, touched) in [reads, writes].iter().enumerate() {
            for range in touched {
                let all = self.opened[which].iter().chain(&opened[which]);
                let allowed = all
                    .chain(&self.posted[which])
                    .any(|open| open.start <= range.start && range.end <= open.end);
                assert!(
                    allowed || range.is_empty(),
                    "{} {range:?}, which was not granted",
                    ["read", "wrote"][which]
                );
            }
            if which == 1 {
                // Memory that the log does not name has not changed.
                for range in touched {
                    let now = self.memory.bytes(range.clone());
                    self.shadow[range.clone()].copy_from_slice(&now);
                }
            }
        }
        assert!(self.memory.bytes(0..BYTES) == self.shadow);
    }

    /// Fails the queue pair: all posted work completes, and no timer is left.
    pub(super) fn end(&mut self) {
        self.engine.fail_qp(self.now, self.qpn);
        self.settle();
        assert!(self.receives.is_empty() && self.sends.is_empty());
        while let Some(at) = self.engine.poll_timeout() {
            self.now = self.now.max(at);
            self.engine.handle_timeout(self.now);
            self.settle();
        }
        self.engine.destroy_qp(self.now, self.qpn);
        assert_eq!(self.engine.connections(), 0);
    }
}
