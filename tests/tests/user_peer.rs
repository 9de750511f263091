//! The user engine and a peer that looks as if it were on another host: softrxe-proto on a plain socket of this test, without the
//! names by which engines of one host know each other.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use dat::{ConnectionEvent, Event, Ia, Streams};
use softrxe_proto::{
    Accept, Access, AccessError, AtomicOp, CmEventKind, Config, CqId, Engine, Event as PeerEvent,
    Memory, Meta, MwBind, Pd, QpInit, QpKind, Qpn, ROCE_PORT, Rights, Time, service_id,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Of no other test.
const HERE: &str = "127.90.1.1";
const THERE: &str = "127.90.1.2";

/// No memory at all.
struct Nothing;

impl Memory for Nothing {
    fn check(&self, access: &Access, _: u64, _: u64) -> Result<(), AccessError> {
        Err(AccessError::Key(access.key))
    }
    fn read(&self, access: &Access, _: u64, _: &mut [u8]) -> Result<(), AccessError> {
        Err(AccessError::Key(access.key))
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
}

impl Peer {
    fn new() -> Self {
        let ip: IpAddr = THERE.parse().expect("an address");
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
        let mut engine = Engine::new(Config::new(ip, 1), Nothing);
        let cq = engine.create_cq(8);
        Self {
            socket,
            engine,
            cq,
            begin: Instant::now(),
        }
    }

    /// Sends, receives and waits for a moment; what happened.
    fn drive(&mut self) -> Vec<PeerEvent> {
        let mut bytes = [0; 65_536];
        let now = |begin: Instant| Time::from_nanos(begin.elapsed().as_nanos() as u64);
        if let Ok((length, source)) = self.socket.recv_from(&mut bytes) {
            let meta = Meta { source, ip_id: 0 };
            self.engine
                .handle_datagram(now(self.begin), &meta, &bytes[..length]);
        }
        self.engine.handle_timeout(now(self.begin));
        while let Some(run) = self
            .engine
            .poll_transmit(now(self.begin), &mut bytes[..4300])
        {
            self.socket
                .send_to(&bytes[..run.length], run.destination)
                .expect("sends");
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
            recv_depth: 4,
            max_sge: 1,
            access: Rights::empty(),
            qkey: 0,
        };
        self.engine.create_qp(&init).expect("a queue pair")
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.begin.elapsed().as_nanos() as u64)
    }
}

/// The test again, with a dat.conf whose IA `user` is at [`HERE`].
fn with_engine(name: &str, body: impl FnOnce()) {
    if dat_tests::is_inner() {
        return body();
    }
    let params = format!("{HERE} 0 engine=user keepalive=1 retry=3");
    let conf = dat_tests::line("user", &dat_tests::softrxe(), &params);
    let (mut inner, _conf) = dat_tests::again(name, &conf);
    assert!(inner.status().expect("the test runs").success());
}

#[test]
fn a_silent_peer_elsewhere_is_asked_and_its_end_is_noticed() {
    let name = "a_silent_peer_elsewhere_is_asked_and_its_end_is_noticed";
    with_engine(name, || {
        let mut peer = Peer::new();
        peer.engine.listen(service_id::tcp(7000)).expect("listens");
        let ia = Ia::open("user").expect("opens");
        let pz = ia.create_pz().expect("a PZ");
        let done = ia.create_evd(8, Streams::DTO).expect("an EVD");
        let connections = ia.create_evd(8, Streams::CONNECTION).expect("an EVD");
        let builder = ia.endpoint(&pz).recv_evd(&done).request_evd(&done);
        let ep = builder.connect_evd(&connections).create().expect("an EP");
        let there: IpAddr = THERE.parse().expect("an address");
        ep.connect(there, 7000).start().expect("starts");

        let begin = Instant::now();
        let mut established = false;
        while !established {
            assert!(begin.elapsed() < PATIENCE, "not connected");
            for event in peer.drive() {
                if let PeerEvent::Cm(event) = event
                    && let CmEventKind::Request(_) = event.kind
                {
                    let (now, qpn) = (peer.now(), peer.qp());
                    let accepted = peer.engine.accept(now, event.id, qpn, &Accept::new(b""));
                    accepted.expect("accepts");
                }
            }
            match connections.poll().expect("polls") {
                Some(Event::Established { .. }) => established = true,
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }

        // It answers questions, so all is well.
        let begin = Instant::now();
        while peer.engine.counters().duplicates < 3 {
            assert!(begin.elapsed() < PATIENCE, "nobody asked");
            for event in peer.drive() {
                // The last message of the connection manager may arrive only now.
                let ready = matches!(&event, PeerEvent::Cm(e) if matches!(e.kind, CmEventKind::Established(_)));
                assert!(ready, "{event:?}");
            }
            assert!(connections.poll().expect("polls").is_none());
        }
        // It does not, so it is gone.
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
