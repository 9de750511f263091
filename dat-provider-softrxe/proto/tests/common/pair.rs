//! Two engines, a network with faults between them, and virtual time.
//!
//! With `DAT_TEST_PCAP=DIR` in the environment, each pair writes its packets to `DIR/<name>.pcap`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dat_handshake::{Offer, guid};
use softrxe_proto::wire::icrc;
use softrxe_proto::{
    Agreement, Capabilities, CmEvent, CmEventKind, CmId, Completion, Config, CqId, Engine, Event,
    Link, Meta, Path, Psn, QpInit, QpKind, Qpn, ROCE_PORT, Rights, SecretKey, SendRequest, Sge,
    SidrRequest, Time,
};

use super::Rng;
use super::channel::{self, Channels};
use super::memory::{PD, TestMemory};
use super::pcap;

/// What both engines offer.
const OFFER: Offer = Offer::CURRENT.with(Capabilities::REQUEST_ACKNOWLEDGES);

/// Faults of the network, in thousandths of the packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u64,
    pub duplicate: u64,
    pub reorder: u64,
    pub corrupt: u64,
}

/// A packet in flight.
#[derive(Clone)]
pub struct Packet {
    pub to: usize,
    pub ip_id: u16,
    pub source: SocketAddr,
    pub bytes: Vec<u8>,
}

impl Packet {
    /// Returns the PSN of its BTH.
    pub fn psn(&self) -> u32 {
        u32::from_be_bytes([0, self.bytes[9], self.bytes[10], self.bytes[11]])
    }
}

/// One engine with its memory, completions and events.
pub struct Side {
    pub engine: Engine<TestMemory>,
    pub memory: TestMemory,
    pub address: SocketAddr,
    pub cq: CqId,
    pub completions: Vec<Completion>,
    pub events: Vec<Event>,
}

impl Side {
    pub fn qp(&mut self) -> Qpn {
        let init = self.init();
        self.engine.create_qp(&init).unwrap()
    }

    pub fn init(&self) -> QpInit {
        QpInit {
            kind: QpKind::Rc,
            pd: PD,
            token: 99,
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: None,
            send_depth: 64,
            recv_depth: 64,
            max_sge: 4,
            access: Rights::REMOTE_READ | Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC,
            qkey: 0,
        }
    }

    /// Takes the connection events.
    pub fn cm_events(&mut self) -> Vec<CmEvent> {
        let events = std::mem::take(&mut self.events);
        let cm = events.into_iter().filter_map(|event| match event {
            Event::Cm(event) => Some(event),
            _ => None,
        });
        cm.collect()
    }

    /// Takes the only connection event.
    #[track_caller]
    pub fn cm_event(&mut self) -> CmEvent {
        let mut events = self.cm_events();
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }
}

pub struct Pair {
    pub now: Time,
    pub sides: [Side; 2],
    pub faults: Faults,
    /// Time that a packet takes.
    pub latency: Duration,
    pub rng: Rng,
    /// Each side takes the other for an engine of this crate.
    pub own: bool,
    /// Packets sent, before faults.
    pub sent: u64,
    /// Returns false for packets to drop; sees all that are sent.
    pub filter: Box<dyn FnMut(&Packet) -> bool>,
    wire: BTreeMap<(Time, u64), Packet>,
    count: u64,
    capture: Option<pcap::Writer>,
    /// The channels that the connections use, if the test runs over them.
    pub channels: Option<Channels>,
    pub channel_mtu: u16,
}

pub const LATENCY: Duration = Duration::from_micros(10);

impl Pair {
    pub fn new(name: &str) -> Self {
        Self::with(name, 1, |_| {})
    }

    /// Creates two engines, with settings changed by `adjust`.
    pub fn with(name: &str, seed: u64, adjust: impl Fn(&mut Config)) -> Self {
        Self::between(
            name,
            seed,
            ["10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap()],
            adjust,
        )
    }

    pub fn between(
        name: &str,
        seed: u64,
        addresses: [IpAddr; 2],
        adjust: impl Fn(&mut Config),
    ) -> Self {
        let mut rng = Rng::new(seed);
        let sides = addresses.map(|address| {
            let memory = TestMemory::default();
            let secret = rng.bytes(32).try_into().expect("32 bytes");
            let mut config = Config::new(address, SecretKey::new(secret), rng.next());
            config.mtu = 1024;
            config.offer = OFFER;
            if channel::in_use() {
                config.offer = config.offer.with(Capabilities::NEAR);
            }
            adjust(&mut config);
            let mut engine = Engine::new(config, memory.clone());
            let cq = engine.create_cq().unwrap();
            Side {
                engine,
                memory,
                address: SocketAddr::new(address, ROCE_PORT),
                cq,
                completions: Vec::new(),
                events: Vec::new(),
            }
        });
        let mut pair = Self {
            now: Time::from_nanos(1_000_000),
            sides,
            faults: Faults::default(),
            latency: LATENCY,
            rng,
            own: true,
            sent: 0,
            filter: Box::new(|_| true),
            wire: BTreeMap::new(),
            count: 0,
            capture: pcap::Writer::for_test(name),
            channels: None,
            channel_mtu: 0,
        };
        if channel::in_use() {
            let mtu = pair.sides[0].engine.config().mtu;
            pair.open_channels(mtu);
        }
        pair
    }

    /// Connects two new queue pairs without the connection manager.
    pub fn connected(&mut self) -> [Qpn; 2] {
        self.connected_at([Psn::new(100), Psn::new(5000)])
    }

    /// Connects two new queue pairs with these first PSNs.
    pub fn connected_at(&mut self, psns: [Psn; 2]) -> [Qpn; 2] {
        let qpns = [self.sides[0].qp(), self.sides[1].qp()];
        self.join(qpns, psns);
        qpns
    }

    pub fn join(&mut self, qpns: [Qpn; 2], psns: [Psn; 2]) {
        for i in 0..2 {
            let path = self.path(1 - i, qpns[1 - i], [psns[i], psns[1 - i]]);
            self.sides[i].engine.connect_qp(qpns[i], &path).unwrap();
        }
    }

    /// Returns the path to `side`'s queue pair; `psns` are the first sent and the first expected.
    pub fn path(&self, side: usize, qpn: Qpn, psns: [Psn; 2]) -> Path {
        Path {
            remote: self.sides[side].address,
            qpn,
            mtu: match self.channels {
                Some(_) => self.channel_mtu,
                None => self.sides[side].engine.config().mtu,
            },
            send_psn: psns[0],
            receive_psn: psns[1],
            initiator_depth: 4,
            responder_resources: 4,
            retry_count: 7,
            rnr_retry: 7,
            agreement: if self.own {
                OFFER.agree(guid::own(1), OFFER.word())
            } else {
                Agreement::FOREIGN
            },
            link: match self.channels {
                Some(_) => Link::Near(channel::ID),
                None => Link::Wire,
            },
        }
    }

    #[track_caller]
    pub fn post(&mut self, side: usize, qpn: Qpn, request: &SendRequest<'_>) {
        self.post_at_once(side, qpn, request);
    }

    #[track_caller]
    pub fn receive(&mut self, side: usize, qpn: Qpn, wr_id: u64, sges: &[Sge]) {
        self.sides[side].engine.post_recv(qpn, wr_id, sges).unwrap();
    }

    /// Passes the next run of side `from`, or the records that fit, to the other side, which does not answer yet. Returns the
    /// lengths of the packets.
    #[track_caller]
    pub fn hand_over(&mut self, from: usize) -> Vec<usize> {
        if self.channels.is_some() {
            return self.hand_over_records(from);
        }
        let mut buffer = vec![0; 65_000];
        let sender = &mut self.sides[from];
        let run = sender.engine.poll_transmit(self.now, &mut buffer).unwrap();
        let source = sender.address;
        let packets = buffer[..run.length].chunks(run.segment).enumerate();
        packets
            .map(|(index, packet)| {
                let ip_id = index as u16;
                let meta = softrxe_proto::Meta { source, ip_id };
                let to = &mut self.sides[1 - from].engine;
                to.handle_datagram(self.now, &meta, packet);
                packet.len()
            })
            .collect()
    }

    /// Delivers a packet to side 1 as if side 0 had sent it; `bytes` are BTH to padding.
    pub fn inject(&mut self, mut bytes: Vec<u8>) {
        let to_manager = bytes.get(5..8) == Some(&[0, 0, 1]);
        if self.channels.is_some() && !to_manager {
            return self.inject_record(bytes);
        }
        let source = self.sides[0].address;
        let flow = icrc::Flow {
            source,
            destination: self.sides[1].address,
        };
        let crc = icrc::compute(&flow, 0, &bytes);
        bytes.extend(crc.to_le_bytes());
        let meta = Meta { source, ip_id: 0 };
        let engine = &mut self.sides[1].engine;
        engine.handle_datagram(self.now, &meta, &bytes);
    }

    /// Takes the packets that a side has to send now, and loses them. Those of a channel look like datagrams.
    pub fn poll(&mut self, side: usize) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        while let Some((_, packet, _)) = self.take_record(side, channel::ID, channel::ROOM) {
            sent.push(packet.bytes);
        }
        let mut buffer = vec![0; 65_000];
        let engine = &mut self.sides[side].engine;
        while let Some(run) = engine.poll_transmit(self.now, &mut buffer) {
            let packets = buffer[..run.length].chunks(run.segment);
            sent.extend(packets.map(<[u8]>::to_vec));
        }
        sent
    }

    /// Takes the packets that the engines send.
    pub fn transmit(&mut self) {
        self.send_records();
        for from in 0..2 {
            let mut buffer = vec![0; 65_000];
            while let Some(run) = self.sides[from].engine.poll_transmit(self.now, &mut buffer) {
                assert!(run.packets() <= 64);
                self.sides[from].memory.gather(&mut buffer[..run.length]);
                for (index, bytes) in buffer[..run.length].chunks(run.segment).enumerate() {
                    let to = usize::from(self.sides[1].address.ip() == run.destination.ip());
                    let packet = Packet {
                        to,
                        ip_id: index as u16,
                        source: self.sides[from].address,
                        bytes: bytes.to_vec(),
                    };
                    if let Some(capture) = &mut self.capture {
                        let to = run.destination;
                        capture.write(self.now, packet.source, to, packet.ip_id, bytes);
                    }
                    self.put(packet);
                }
            }
        }
    }

    fn put(&mut self, mut packet: Packet) {
        self.sent += 1;
        let faults = self.faults;
        if !(self.filter)(&packet) || self.rng.chance(faults.loss) {
            return;
        }
        if self.rng.chance(faults.corrupt) {
            // One bit: the most likely error, and the hardest to detect.
            let bit = self.rng.below(packet.bytes.len() as u64 * 8) as usize;
            packet.bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let copies = if self.rng.chance(faults.duplicate) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let mut at = self.now + self.latency;
            if self.rng.chance(faults.reorder) {
                at += Duration::from_nanos(self.rng.below(300_000));
            }
            self.count += 1;
            self.wire.insert((at, self.count), packet.clone());
        }
    }

    /// Delivers a packet to its side.
    pub fn deliver(&mut self, packet: &Packet) {
        let meta = Meta {
            source: packet.source,
            ip_id: packet.ip_id,
        };
        let engine = &mut self.sides[packet.to].engine;
        engine.handle_datagram(self.now, &meta, &packet.bytes);
    }

    fn collect(&mut self) {
        for side in &mut self.sides {
            let mut some = [Completion::default(); 16];
            loop {
                let count = side.engine.poll_cq(side.cq, &mut some);
                side.completions.extend_from_slice(&some[..count]);
                if count < some.len() {
                    break;
                }
            }
            while let Some(event) = side.engine.poll_event() {
                side.events.push(event);
            }
        }
    }

    /// Advances to the next deadline or packet. Returns false if nothing is left.
    pub fn step(&mut self) -> bool {
        self.step_before(None)
    }

    /// Like [`step`](Self::step), but also returns false if nothing happens until `end`.
    fn step_before(&mut self, end: Option<Time>) -> bool {
        self.transmit();
        let packet = self.wire.first_key_value().map(|((at, _), _)| *at);
        let record = self.channels.as_ref().and_then(Channels::next);
        let timers = self.sides.iter().filter_map(|s| s.engine.poll_timeout());
        let next = packet.into_iter().chain(record).chain(timers).min();
        let Some(at) = next.filter(|at| end.is_none_or(|end| *at <= end)) else {
            self.collect();
            return false;
        };
        self.now = self.now.max(at);
        self.deliver_records();
        while let Some(entry) = self.wire.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let packet = entry.remove();
            self.deliver(&packet);
        }
        for side in &mut self.sides {
            side.engine.handle_timeout(self.now);
        }
        self.transmit();
        self.collect();
        true
    }

    /// Runs until nothing is left to happen.
    #[track_caller]
    pub fn run(&mut self) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < 2_000_000, "does not come to rest");
        }
    }

    /// Runs until `done` returns true; returns false if nothing is left or `limit` is over first.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            if done(self) {
                return true;
            }
            if !self.step_before(Some(end)) {
                return done(self);
            }
        }
    }

    /// Sends a connection request from side 0 to side 1.
    #[track_caller]
    pub fn call(&mut self, qpn: Qpn, service: u64) -> CmId {
        let connect = softrxe_proto::Connect::new(self.sides[1].address, service, &[]);
        let engine = &mut self.sides[0].engine;
        engine.connect(self.now, qpn, &connect).unwrap()
    }

    /// Returns the request of a datagram service of side 1, without private data and time limit.
    pub fn ask(&self, service: u64) -> SidrRequest<'static> {
        SidrRequest {
            remote: self.sides[1].address,
            service_id: service,
            source_port: 99,
            private_data: b"",
            timeout: None,
        }
    }

    /// Accepts the request at side 1 when it arrives.
    #[track_caller]
    pub fn answer(&mut self, qpn: Qpn) -> CmId {
        let limit = Duration::from_secs(100);
        assert!(self.run_until(limit, |p| !p.sides[1].events.is_empty()));
        let id = self.sides[1].cm_event().id;
        let accept = softrxe_proto::Accept::new(&[]);
        let engine = &mut self.sides[1].engine;
        engine.accept(self.now, id, qpn, &accept).unwrap();
        id
    }

    /// Connects through the connection manager. Returns queue pairs and ids.
    #[track_caller]
    pub fn connect_by_cm(&mut self, service: u64) -> ([Qpn; 2], [CmId; 2]) {
        let qpns = [self.sides[0].qp(), self.sides[1].qp()];
        let now = self.now;
        let _ = self.sides[1].engine.listen(service);
        let remote = self.sides[1].address;
        let connect = softrxe_proto::Connect::new(remote, service, b"from the client");
        let client = self.sides[0]
            .engine
            .connect(now, qpns[0], &connect)
            .unwrap();
        let limit = Duration::from_secs(100);
        assert!(self.run_until(limit, |p| !p.sides[1].events.is_empty()));
        let request = self.sides[1].cm_event();
        assert!(matches!(request.kind, CmEventKind::Request(_)));
        let accept = softrxe_proto::Accept::new(b"from the server");
        let now = self.now;
        self.sides[1]
            .engine
            .accept(now, request.id, qpns[1], &accept)
            .unwrap();
        let up = |side: &Side| {
            side.events.iter().any(|event| {
                matches!(event, Event::Cm(e) if matches!(e.kind, CmEventKind::Established(_)))
            })
        };
        assert!(self.run_until(limit, |p| p.sides.iter().all(up)));
        (qpns, [client, request.id])
    }
}
