//! The user engine and a peer that looks like one on another host: softrxe-proto on a plain socket of this test,
//! without the names by which engines of one host recognise each other.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use dat::{Access as Granted, Close, ConnectionEvent, Ep, Evd, Event, Ia, Pz, Streams};
use softrxe_proto::wire::icrc;
use softrxe_proto::{
    Accept, Access, AccessError, AtomicOp, CmEventKind, CmId, Completion, Config, Connect, CqId,
    Engine, Event as PeerEvent, Memory, Meta, MwBind, Op, Pd, QpInit, QpKind, Qpn, ROCE_PORT,
    Rights, SecretKey, SendRequest, Status, Time, service_id,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Address that no other test uses.
const HERE: &str = "127.90.1.1";
const THERE: &str = "127.90.1.2";

/// A memory provider without memory: reads return a pattern, writes are refused.
struct Nothing;

impl Memory for Nothing {
    fn check(&self, access: &Access, _: u64, _: u64) -> Result<(), AccessError> {
        Err(AccessError::Key(access.key))
    }
    fn read(&self, _: &Access, va: u64, into: &mut [u8]) -> Result<(), AccessError> {
        into.fill(va as u8);
        Ok(())
    }
    fn write(&self, access: &Access, _: u64, _: &[u8]) -> Result<(), AccessError> {
        Err(AccessError::Key(access.key))
    }
    fn atomic(&self, access: &Access, _: u64, _: AtomicOp) -> Result<u64, AccessError> {
        Err(AccessError::Key(access.key))
    }
    fn invalidate(&self, key: u32, _: Pd, _: Qpn, _: bool) -> Result<(), AccessError> {
        Err(AccessError::Key(key))
    }
    fn bind(&self, bind: &MwBind, _: Pd, _: Qpn) -> Result<(), AccessError> {
        Err(AccessError::Key(bind.lkey))
    }
}

struct Peer {
    socket: UdpSocket,
    engine: Engine<Nothing>,
    cq: CqId,
    begin: Instant,
    address: IpAddr,
    /// True if the peer looks like rdma_rxe or an adapter: another GUID, and all packets go to port 4791.
    foreign: bool,
    /// Number of DREQs to lose.
    lost: u32,
    /// Queue pair of the last accepted connection.
    accepted: Qpn,
}

/// Offset of the CA GUID in a REQ and a REP: after BTH, DETH and MAD header.
const MESSAGE: usize = 12 + 8 + 24;
const GUIDS: [(u8, usize); 2] = [(0x10, MESSAGE + 16), (0x13, MESSAGE + 28)];

/// Changes a packet of our engine to one of a foreign engine, from `source` to `to`.
fn disguise(packet: &mut [u8], source: SocketAddr, to: SocketAddr) {
    let attribute = packet.get(20 + 17).copied();
    if packet[5..8] == [0, 0, 1]
        && let Some((_, at)) = GUIDS.iter().find(|(kind, _)| Some(*kind) == attribute)
    {
        packet[*at..at + 2].copy_from_slice(&[0x02, 0x00]);
    }
    let end = packet.len() - icrc::LEN;
    let flow = icrc::Flow {
        source,
        destination: to,
    };
    let crc = icrc::compute(&flow, 0, &packet[..end]);
    icrc::store(packet, end, crc);
}

impl Peer {
    fn new(address: &str) -> Self {
        let ip: IpAddr = address.parse().expect("an address");
        let socket = UdpSocket::bind(SocketAddr::new(ip, ROCE_PORT)).expect("the port is free");
        let always = libc::IP_PMTUDISC_DO;
        // SAFETY: an option of the size of an int; with it the IPv4 identification, which the ICRC covers, is 0.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_IP,
                libc::IP_MTU_DISCOVER,
                (&raw const always).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        assert_eq!(set, 0);
        let wait = Some(Duration::from_millis(5));
        socket.set_read_timeout(wait).expect("a timeout");
        let mut engine = Engine::new(Config::new(ip, SecretKey::new([1; 32]), 1), Nothing);
        let cq = engine.create_cq().unwrap();
        Self {
            socket,
            engine,
            cq,
            begin: Instant::now(),
            address: ip,
            foreign: false,
            lost: 0,
            accepted: Qpn::default(),
        }
    }

    /// Sends, receives and waits for a moment; returns the events.
    fn drive(&mut self) -> Vec<PeerEvent> {
        let mut bytes = [0; 65_536];
        let now = |begin: Instant| Time::from_nanos(begin.elapsed().as_nanos() as u64);
        if let Ok((length, source)) = self.socket.recv_from(&mut bytes) {
            let meta = Meta { source, ip_id: 0 };
            let is_dreq = bytes[5..8] == [0, 0, 1] && bytes[20 + 17] == 0x15;
            if is_dreq && self.lost > 0 {
                self.lost -= 1;
            } else {
                self.engine
                    .handle_datagram(now(self.begin), &meta, &bytes[..length]);
            }
        }
        self.engine.handle_timeout(now(self.begin));
        while let Some(run) = self
            .engine
            .poll_transmit(now(self.begin), &mut bytes[..300])
        {
            assert_eq!(
                run.packets(),
                1,
                "messages are empty: nothing to put in a run"
            );
            let (packet, mut to) = (&mut bytes[..run.length], run.destination);
            if self.foreign {
                to.set_port(ROCE_PORT);
                disguise(packet, SocketAddr::new(self.address, ROCE_PORT), to);
            }
            self.socket.send_to(packet, to).expect("sends");
        }
        std::iter::from_fn(|| self.engine.poll_event()).collect()
    }

    fn qp(&mut self) -> Qpn {
        let init = QpInit {
            kind: QpKind::Rc,
            pd: Pd(1),
            token: 0,
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: None,
            send_depth: 4,
            recv_depth: 8,
            max_sge: 1,
            access: Rights::empty(),
            qkey: 0,
        };
        self.engine.create_qp(&init).expect("a queue pair")
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.begin.elapsed().as_nanos() as u64)
    }

    /// Accepts a connection from an endpoint of the IA `user`; returns that endpoint, its connection EVD and the
    /// objects they need, in drop order.
    fn called(&mut self) -> (Ep, Evd, Evd, Pz, Ia) {
        self.engine.listen(service_id::tcp(7000)).expect("listens");
        let ia = Ia::open("user").expect("opens");
        let pz = ia.create_pz().expect("a PZ");
        let done = ia.create_evd(8, Streams::DTO).expect("an EVD");
        let connections = ia.create_evd(8, Streams::CONNECTION).expect("an EVD");
        let builder = ia.endpoint(&pz).recv_evd(&done).request_evd(&done);
        let ep = builder.connect_evd(&connections).create().expect("an EP");
        ep.connect(self.address, 7000).start().expect("starts");
        self.accept(&connections);
        (ep, connections, done, pz, ia)
    }

    /// Accepts a request; returns when `connections` reports the connection.
    fn accept(&mut self, connections: &Evd) {
        let begin = Instant::now();
        loop {
            assert!(begin.elapsed() < PATIENCE, "not connected");
            for event in self.drive() {
                if let PeerEvent::Cm(event) = event
                    && let CmEventKind::Request(_) = event.kind
                {
                    let (now, qpn) = (self.now(), self.qp());
                    let accepted = self.engine.accept(now, event.id, qpn, &Accept::new(b""));
                    accepted.expect("accepts");
                    self.accepted = qpn;
                }
            }
            match connections.poll().expect("polls") {
                Some(Event::Established { .. }) => return,
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
    }
}

/// Runs the test in a process with a dat.conf whose IA `user` is at `address`.
fn with_engine(name: &str, address: &str, body: impl FnOnce()) {
    let params = format!("{address} 0 engine=user keepalive=1 retry=3");
    let line = || dat_tests::line("user", &dat_tests::softrxe(), &params);
    dat_tests::inside(name, line, body);
}

#[test]
fn a_silent_peer_elsewhere_is_asked_and_its_end_is_noticed() {
    let name = "a_silent_peer_elsewhere_is_asked_and_its_end_is_noticed";
    with_engine(name, HERE, || {
        let mut peer = Peer::new(THERE);
        let user = peer.called();
        let connections = &user.1;

        // The peer answers probes, so the connection stays.
        let begin = Instant::now();
        while peer.engine.counters().duplicates < 3 {
            assert!(begin.elapsed() < PATIENCE, "the engine sent no probe");
            for event in peer.drive() {
                // The last message of the connection manager may arrive only now.
                let ready = matches!(&event, PeerEvent::Cm(e) if matches!(e.kind, CmEventKind::Established(_)));
                assert!(ready, "{event:?}");
            }
            assert!(connections.poll().expect("polls").is_none());
        }
        // The peer does not answer, so the connection breaks.
        let event = connections.wait(PATIENCE);
        assert!(
            matches!(
                event,
                Ok(Event::Ended {
                    how: ConnectionEvent::Broken,
                    ..
                })
            ),
            "{event:?}"
        );
    });
}

#[test]
fn a_peer_hears_of_the_end_though_the_message_is_lost_and_the_adapter_closed() {
    let name = "a_peer_hears_of_the_end_though_the_message_is_lost_and_the_adapter_closed";
    with_engine(name, "127.90.3.1", || {
        let mut peer = Peer::new("127.90.3.2");
        peer.lost = 2;
        let user = peer.called();

        // Closing waits for the peer, so another thread does it.
        let closing = std::thread::spawn(move || {
            user.0.disconnect(Close::Abrupt).expect("disconnects");
            drop(user);
        });
        let over = |event: &PeerEvent| matches!(event, PeerEvent::Cm(e) if e.kind == CmEventKind::Disconnected);
        let begin = Instant::now();
        while !peer.drive().iter().any(over) {
            assert!(begin.elapsed() < PATIENCE, "the DREQ was not repeated");
        }
        closing.join().expect("closes");
    });
}

#[test]
fn a_peer_that_guesses_a_key_loses_its_connection() {
    let name = "a_peer_that_guesses_a_key_loses_its_connection";
    with_engine(name, "127.90.4.1", || {
        let mut peer = Peer::new("127.90.4.2");
        let user = peer.called();
        let region = user.3.allocate(64, Granted::ALL).expect("memory");
        let granted = region.remote(0..64);
        let guess = granted.key ^ 1 << 31;
        for (byte, key, status) in [
            (1, granted.key, Status::Success),
            (2, guess, Status::RemoteAccess),
            (3, granted.key, Status::Flushed),
        ] {
            let target = softrxe_proto::Remote {
                address: granted.address,
                key,
            };
            let local = [softrxe_proto::Sge {
                address: byte,
                length: 8,
                key: 1,
            }];
            let request = SendRequest::new(1, Op::Write(target), &local);
            let (now, qpn) = (peer.now(), peer.accepted);
            let posted = peer.engine.post_send(now, qpn, &request);
            posted.expect("posts");
            let mut done = [Completion::default(); 1];
            let begin = Instant::now();
            while peer.engine.poll_cq(peer.cq, &mut done) == 0 {
                assert!(begin.elapsed() < PATIENCE, "no answer");
                peer.drive();
            }
            assert_eq!(done[0].status, status);
        }
        let event = user.1.wait(PATIENCE);
        assert!(
            matches!(
                event,
                Ok(Event::Ended {
                    how: ConnectionEvent::Broken,
                    ..
                })
            ),
            "{event:?}"
        );
        assert_eq!(region.to_vec(0..8), [1; 8]);
    });
}

const ROLE: &str = "DAT_TEST_ROLE";
/// Address of the test with two processes.
const HOME: &str = "127.90.2.1";
const ABROAD: &str = "127.90.2.2";

/// A process of this test, killed when dropped.
struct Member(Child);

impl Member {
    fn start(test: &str, role: &str) -> Self {
        let child = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, role)
            .spawn();
        Self(child.expect("starts"))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connects to port 7000 + `number` and accepts at 6000 + `number`; sends `number` empty messages over both
/// connections, then one for each that arrives.
fn member(number: u64) {
    let ia = Ia::open("user").expect("opens");
    let pz = ia.create_pz().expect("a PZ");
    let done = ia.create_evd(64, Streams::DTO).expect("an EVD");
    let connections = ia.create_evd(8, Streams::CR | Streams::CONNECTION);
    let connections = connections.expect("an EVD");
    let region = pz.allocate(64, Granted::ALL).expect("memory");
    let make = || -> Ep {
        let builder = ia.endpoint(&pz).recv_evd(&done).request_evd(&done);
        let ep = builder.connect_evd(&connections).create().expect("an EP");
        for _ in 0..4 {
            ep.post_recv(&[region.slice(0..64)], 1).expect("posts");
        }
        ep
    };
    let listener = ia.listen(Some(6000 + number), &connections);
    let _listener = listener.expect("listens");
    let (out, into) = (make(), make());
    let name = [number as u8];
    let abroad: IpAddr = ABROAD.parse().expect("an address");
    let connect = out.connect(abroad, 7000 + number);
    connect.private_data(&name).start().expect("starts");
    let mut established = 0;
    while established < 2 {
        match connections.wait(PATIENCE).expect("an event") {
            Event::Request(request) => request.accept(&into, &name).expect("accepts"),
            Event::Established { .. } => established += 1,
            other => panic!("{other:?}"),
        }
    }
    for ep in [&out, &into] {
        for _ in 0..number {
            ep.post_send(&[], 2).expect("posts");
        }
    }
    while let Ok(completion) = done.wait_completion(10 * PATIENCE) {
        if completion.cookie == 1 {
            let of_out = completion.ep == out.id();
            let ep = if of_out { &out } else { &into };
            ep.post_recv(&[region.slice(0..64)], 1).expect("posts");
            ep.post_send(&[], 2).expect("posts");
        }
    }
}

impl Peer {
    /// Drives the engine until `done` returns a value for an event.
    fn until<R>(&mut self, mut done: impl FnMut(&mut Self, &PeerEvent) -> Option<R>) -> R {
        let begin = Instant::now();
        loop {
            assert!(
                begin.elapsed() < PATIENCE,
                "the awaited event does not arrive"
            );
            for event in self.drive() {
                if let Some(found) = done(self, &event) {
                    return found;
                }
            }
        }
    }

    fn ready_qp(&mut self) -> Qpn {
        let qpn = self.qp();
        for id in 0..6 {
            self.engine.post_recv(qpn, id, &[]).expect("posts");
        }
        qpn
    }

    /// Returns both connections of the member `number`: its queue pairs here, and the slots of its queue pairs there.
    fn meet(&mut self, number: u8) -> ([Qpn; 2], [u32; 2]) {
        let into = self.ready_qp();
        let asked = self.until(|peer, event| match event {
            PeerEvent::Cm(event) => match &event.kind {
                CmEventKind::Request(request) => {
                    assert_eq!(request.private_data[0], number);
                    let now = peer.now();
                    let accepted = peer.engine.accept(now, event.id, into, &Accept::new(b""));
                    accepted.expect("accepts");
                    None
                }
                CmEventKind::Established(_) => Some(event.id),
                other => panic!("{other:?}"),
            },
            _ => None,
        });
        let out = self.ready_qp();
        let home: IpAddr = HOME.parse().expect("an address");
        let service = service_id::tcp(6000 + u16::from(number));
        let connect = Connect::new(SocketAddr::new(home, ROCE_PORT), service, b"");
        let now = self.now();
        let id = self.engine.connect(now, out, &connect).expect("starts");
        let answered = self.until(|_, event| match event {
            PeerEvent::Cm(event) => match &event.kind {
                CmEventKind::Established(data) => Some((event.id, data[0])),
                other => panic!("{other:?}"),
            },
            _ => None,
        });
        assert_eq!(answered, (id, number), "another process answered");
        let slot = |id: CmId| self.engine.peer(id).expect("it is known").1.value() >> 14;
        ([into, out], [slot(asked), slot(id)])
    }

    /// Drives the engine until `count` messages arrived over `qpn`; `got` collects all that arrive.
    fn messages(&mut self, qpn: Qpn, count: usize, got: &mut Vec<Qpn>) {
        let begin = Instant::now();
        let mut done = [Completion::default(); 16];
        loop {
            let fresh = self.engine.poll_cq(self.cq, &mut done);
            for completion in &done[..fresh] {
                assert_eq!(completion.status, Status::Success);
                if completion.wr_id < 100 {
                    got.push(completion.qpn);
                }
            }
            if got.iter().filter(|from| **from == qpn).count() >= count {
                return;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "fewer than {count} messages arrive"
            );
            self.drive();
        }
    }
}

#[test]
fn two_processes_of_an_address_and_a_foreign_peer_never_mistake_each_other() {
    let name = "two_processes_of_an_address_and_a_foreign_peer_never_mistake_each_other";
    if let Ok(role) = std::env::var(ROLE) {
        return member(role.parse().expect("a number"));
    }
    with_engine(name, HOME, || {
        let mut peer = Peer::new(ABROAD);
        peer.foreign = true;
        for port in [7001, 7002] {
            peer.engine.listen(service_id::tcp(port)).expect("listens");
        }
        // The first process has port 4791, to which the peer sends all packets.
        let first = Member::start(name, "1");
        let (ones, slots) = peer.meet(1);
        let _second = Member::start(name, "2");
        let (twos, others) = peer.meet(2);
        assert_eq!((slots[0], others[0]), (slots[1], others[1]));
        assert_ne!(
            slots[0], others[0],
            "the slots differ between the processes"
        );
        let mut got = Vec::new();
        for (qpns, count) in [(ones, 1), (twos, 2)] {
            for qpn in qpns {
                peer.messages(qpn, count, &mut got);
            }
        }
        assert_eq!(got.len(), 6, "each process sends only its own messages");
        // The other process inherits the port; the peer does not notice.
        drop(first);
        for qpn in twos {
            let now = peer.now();
            let request = SendRequest::new(100, Op::Send, &[]);
            peer.engine.post_send(now, qpn, &request).expect("posts");
            peer.messages(qpn, 3, &mut got);
        }
    });
}
