//! Two protocol engines over a link in memory: what the contract of [`Link`] promises is all that they need.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::Duration;

use dat_os::eventfd::EventFd;
use dat_os::sleep::{Slept, on_readable};
use softrxe_near::{Channel, layout};
use softrxe_proto::{
    Accept, Access, CmEvent, CmEventKind, CmId, Completion, Config, Connect, CqId, Event, Memory,
    Meta, NearId, Op, Pd, QpInit, QpKind, Qpn, ROCE_PORT, Remote, Rights, SecretKey, SendRequest,
    Sge, SidrRequest, Status, service_id,
};

use super::near::NearLink;
use super::*;
use crate::clock;
use crate::memory::guard;
use crate::memory::range::Range;
use crate::transport::open::test_hub;

const PD: Pd = Pd(1);
const LENGTH: usize = 50_000;
/// Room for the headers and the checksum of a packet.
const HEADERS: usize = 64;

/// One direction of a [`MemoryLink`]: packets under way, and what wakes their receiver.
struct Queue {
    packets: RefCell<VecDeque<Vec<u8>>>,
    wake: EventFd,
}

impl Queue {
    fn bytes(&self) -> usize {
        self.packets.borrow().iter().map(Vec::len).sum()
    }
}

/// One end of a link in memory, which holds a bounded number of bytes and loses no packet.
struct MemoryLink {
    properties: Properties,
    remote: SocketAddr,
    /// Bytes that each direction holds.
    capacity: usize,
    outgoing: Rc<Queue>,
    incoming: Rc<Queue>,
}

impl MemoryLink {
    /// Returns both ends of a link between `addresses`.
    fn pair(properties: Properties, addresses: [SocketAddr; 2], capacity: usize) -> [Self; 2] {
        let queues = [(); 2].map(|()| {
            Rc::new(Queue {
                packets: RefCell::default(),
                wake: EventFd::new().unwrap(),
            })
        });
        [0, 1].map(|end| Self {
            properties,
            remote: addresses[1 - end],
            capacity,
            outgoing: Rc::clone(&queues[end]),
            incoming: Rc::clone(&queues[1 - end]),
        })
    }

    /// Returns whether a sleeper on the descriptor would wake at once.
    fn is_readable(&self) -> bool {
        on_readable([self.descriptor()], Some(Duration::ZERO)) == Slept::Woken
    }
}

impl Inbound for MemoryLink {
    fn receive(&mut self, reads: usize, mut deliver: impl FnMut(&Arrival<'_>)) {
        for _ in 0..reads {
            let Some(packet) = self.incoming.packets.borrow_mut().pop_front() else {
                return;
            };
            // The sender may have been without room.
            self.outgoing.wake.signal();
            deliver(&Arrival {
                source: self.remote,
                index: 0,
                packet: &packet,
            });
        }
    }

    fn descriptor(&self) -> RawFd {
        self.incoming.wake.as_raw_fd()
    }

    fn arm(&mut self) -> bool {
        self.incoming.packets.borrow().is_empty()
    }
}

impl Link for MemoryLink {
    fn properties(&self) -> Properties {
        self.properties
    }

    fn room(&self) -> usize {
        let free = self.capacity - self.outgoing.bytes();
        let packet = usize::from(self.properties.mtu) + HEADERS;
        if free < packet { 0 } else { free }
    }

    fn send(&mut self, run: &Transmit, pieces: Pieces<'_>) -> io::Result<()> {
        assert_eq!(run.destination.ip(), self.remote.ip());
        let mut bytes = Vec::new();
        for piece in pieces.as_slice() {
            // SAFETY: the pieces lie in the test's buffers, which live until its end.
            bytes.extend(unsafe {
                std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
            });
        }
        assert_eq!(bytes.len(), run.length);
        let packets = bytes.chunks(run.segment).map(<[u8]>::to_vec);
        self.outgoing.packets.borrow_mut().extend(packets);
        self.outgoing.wake.signal();
        Ok(())
    }
}

/// An engine with a queue pair and registered memory, at one end of a link.
struct Side {
    engine: Engine<Regions>,
    link: MemoryLink,
    cq: CqId,
    qpn: Qpn,
    memory: Vec<u8>,
    sge: Sge,
    events: VecDeque<Event>,
}

impl Side {
    fn new(ip: IpAddr, number: u8, link: MemoryLink) -> Self {
        let key = SecretKey::new([number; 32]);
        let properties = link.properties();
        let mut config = Config::new(ip, key.clone(), number.into());
        config.mtu = properties.mtu;
        config.verify_icrc = properties.checksummed;
        let mut engine = Engine::new(config, Regions::new(&key));
        let cq = engine.create_cq().unwrap();
        let init = QpInit {
            kind: QpKind::Rc,
            pd: PD,
            token: 0,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            send_depth: 4,
            recv_depth: 4,
            max_sge: 1,
            access: Rights::REMOTE_READ | Rights::REMOTE_WRITE,
            qkey: 0,
        };
        let qpn = engine.create_qp(&init).unwrap();
        let mut memory = vec![number; LENGTH];
        let address = memory.as_mut_ptr() as usize;
        let range = Range::probe(address, LENGTH as u64, true).unwrap();
        let rights = init.access | Rights::LOCAL_READ | Rights::LOCAL_WRITE;
        let regions = engine.memory();
        let key = regions.register(range, address as u64, rights, PD).unwrap();
        let sge = Sge {
            address: address as u64,
            length: LENGTH as u32,
            key,
        };
        Self {
            engine,
            link,
            cq,
            qpn,
            memory,
            sge,
            events: VecDeque::new(),
        }
    }

    /// Receives and transmits once.
    fn step(&mut self) {
        let now = clock::now();
        self.engine.memory().prepare(now);
        let Self { engine, link, .. } = self;
        link.receive(4, |arrival| {
            let meta = Meta {
                source: arrival.source,
                ip_id: arrival.index,
            };
            engine.handle_datagram(now, &meta, arrival.packet);
        });
        let mut buffer = [0; 65_000];
        transmit(engine, link, &mut buffer, now, false, |_, _, _| {});
        self.events
            .extend(std::iter::from_fn(|| engine.poll_event()));
    }

    /// Takes the next event of the connection manager.
    fn cm_event(&mut self) -> (CmId, CmEventKind) {
        let cm = |event| match event {
            Event::Cm(CmEvent { id, kind, .. }) => Some((id, kind)),
            _ => None,
        };
        let mut events = std::iter::from_fn(|| self.events.pop_front());
        events.find_map(cm).expect("a connection event")
    }

    fn completed(&mut self, wr_id: u64) {
        let mut done = [Completion::default(); 2];
        assert_eq!(self.engine.poll_cq(self.cq, &mut done), 1);
        assert_eq!((done[0].wr_id, done[0].status), (wr_id, Status::Success));
    }
}

/// Runs both sides, which have just posted, until both sleep on their descriptors.
fn run(sides: &mut [Side; 2]) {
    let mut wakes = [true; 2];
    for _ in 0..10_000 {
        for (wakes, side) in wakes.iter_mut().zip(&mut *sides) {
            if *wakes {
                side.link.incoming.wake.clear();
                side.step();
            }
            *wakes = !side.link.arm();
        }
        for (wakes, side) in wakes.iter_mut().zip(&mut *sides) {
            *wakes |= side.link.is_readable();
        }
        if wakes == [false; 2] {
            return;
        }
    }
    panic!("the sides do not come to rest");
}

fn pair(properties: Properties, capacity: usize) -> [Side; 2] {
    let ips = ["127.77.8.1", "127.77.8.2"].map(|ip| ip.parse().unwrap());
    let addresses = ips.map(|ip| SocketAddr::new(ip, ROCE_PORT));
    let [a, b] = MemoryLink::pair(properties, addresses, capacity);
    [Side::new(ips[0], 1, a), Side::new(ips[1], 2, b)]
}

fn connect(sides: &mut [Side; 2]) {
    let [client, server] = sides;
    let service = service_id::tcp(7);
    server.engine.listen(service).unwrap();
    let request = Connect::new(client.link.remote, service, b"hello");
    let now = clock::now();
    client.engine.connect(now, client.qpn, &request).unwrap();
    run(sides);
    let [_, server] = sides;
    let (id, kind) = server.cm_event();
    assert!(matches!(kind, CmEventKind::Request(_)), "{kind:?}");
    let accept = Accept::new(b"");
    let now = clock::now();
    let qpn = server.qpn;
    server.engine.accept(now, id, qpn, &accept).unwrap();
    run(sides);
    for side in sides {
        let (_, kind) = side.cm_event();
        assert!(matches!(kind, CmEventKind::Established(_)), "{kind:?}");
    }
}

fn post(side: &mut Side, wr_id: u64, op: Op) {
    let sges = [side.sge];
    let request = SendRequest::new(wr_id, op, &sges);
    let now = clock::now();
    side.engine.memory().prepare(now);
    side.engine.post_send(now, side.qpn, &request).unwrap();
}

#[test]
fn messages_writes_and_reads_pass_over_any_link() {
    guard::install();
    for (mtu, checksummed, capacity) in [
        (4096, true, 1 << 20),
        (1024, false, 1 << 20),
        (1024, true, 3000),
    ] {
        let properties = Properties { mtu, checksummed };
        let mut sides = pair(properties, capacity);
        connect(&mut sides);
        let remote = Remote {
            address: sides[1].sge.address,
            key: sides[1].sge.key,
        };

        let sges = [sides[1].sge];
        let qpn = sides[1].qpn;
        sides[1].engine.post_recv(qpn, 10, &sges).unwrap();
        post(&mut sides[0], 11, Op::Send);
        run(&mut sides);
        sides[0].completed(11);
        sides[1].completed(10);
        assert!(sides[1].memory.iter().all(|byte| *byte == 1));

        sides[0].memory.fill(3);
        post(&mut sides[0], 12, Op::Write(remote));
        run(&mut sides);
        sides[0].completed(12);
        assert!(sides[1].memory.iter().all(|byte| *byte == 3));

        sides[1].memory.fill(4);
        post(&mut sides[0], 13, Op::Read(remote));
        run(&mut sides);
        sides[0].completed(13);
        assert!(sides[0].memory.iter().all(|byte| *byte == 4));
    }
}

#[test]
fn a_violation_leaves_no_record_at_hand() {
    const RING: usize = 4096;
    let [mut side, _] = pair(
        Properties {
            mtu: 4096,
            checksummed: true,
        },
        0,
    );
    let (own, memory) = Channel::create(RING).unwrap();
    let mut peer = Channel::adopt(&memory.try_clone().unwrap(), RING).unwrap();
    let mut link = NearLink::new(NearId(0), own, false);
    // Two records. The second one's fixed part says that it has no bytes.
    for _ in 0..2 {
        peer.sender.space().unwrap();
        peer.sender.commit(&[0; 12], 32, 8);
    }
    peer.sender.publish();
    let second = (layout::CONTROL + RING) + layout::CONTROL + layout::record_length(32, 8) + 8;
    File::from(memory)
        .write_all_at(&[0; 8], second as u64)
        .unwrap();
    let received = link.receive(&mut side.engine, clock::now());
    assert!(received.is_err(), "{received:?}");
    // The first record is not there any more for what comes next.
    let access = Access {
        key: side.sge.key,
        pd: PD,
        qpn: side.qpn,
        need: Rights::LOCAL_READ,
    };
    let regions = side.engine.memory();
    regions.fill(&access, side.sge.address, 8, 0).unwrap_err();
}

/// An address of documentation (RFC 5737), which loopback does not reach, and that of a whole network.
#[test]
fn a_lookup_at_an_address_without_a_route_ends_after_a_moment() {
    for remote in ["192.0.2.1:4791", "255.255.255.255:4791"] {
        let hub = test_hub("127.77.5.41");
        let mut state = hub.state.lock();
        let ask = SidrRequest {
            remote: remote.parse().unwrap(),
            service_id: 1,
            source_port: 1,
            private_data: &[],
            timeout: None,
        };
        let mut now = state.now();
        let end = now + Duration::from_secs(1);
        state.engine.sidr_request(now, &ask).unwrap();
        state.transmit(now, false);
        assert_eq!(state.engine.connections(), 1);
        while let Some(at) = state.engine.poll_timeout().filter(|at| *at < end) {
            now = at;
            state.engine.handle_timeout(now);
            state.transmit(now, false);
        }
        assert_eq!(state.engine.connections(), 0, "{remote}");
    }
}
