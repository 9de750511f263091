//! Measures the engine alone over a channel: two engines pass records to each other in one thread, without a ring.
//!
//! `cargo run --release -p softrxe-proto --example near`; with an argument only that case runs, once and
//! short, for `valgrind --tool=callgrind`.

use std::cell::RefCell;
use std::io::Write;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use softrxe_proto::{
    Access, AccessError, Agreement, AtomicOp, Completion, Config, CqId, Engine, Link, Memory,
    MwBind, NearId, Op, Path, Pd, Psn, QpInit, QpKind, Qpn, RecordPart, Remote, Rights, SecretKey,
    SendRequest, Sge, Time,
};

const ID: NearId = NearId(0);
const MTU: u16 = 32_768;
const SIZE: usize = 4 << 20;
const RECORD: usize = MTU as usize + 128;
const OUTSTANDING: usize = 64;
/// Runs of a case.
const PARTS: usize = 40;

/// One region at address 0, and the record at hand of both engines.
struct Flat {
    bytes: RefCell<Vec<u8>>,
    record: Rc<RefCell<Vec<u8>>>,
}

impl Flat {
    fn range(va: u64, length: usize) -> Result<std::ops::Range<usize>, AccessError> {
        let at = va as usize;
        if at <= SIZE && length <= SIZE - at {
            return Ok(at..at + length);
        }
        Err(AccessError::Bounds {
            key: 1,
            va,
            length: length as u64,
        })
    }
}

impl Memory for Flat {
    fn check(&self, _: &Access, va: u64, length: u64) -> Result<(), AccessError> {
        Self::range(va, length as usize).map(drop)
    }

    fn read(&self, _: &Access, va: u64, into: &mut [u8]) -> Result<(), AccessError> {
        into.copy_from_slice(&self.bytes.borrow()[Self::range(va, into.len())?]);
        Ok(())
    }

    fn write(&self, _: &Access, va: u64, from: &[u8]) -> Result<(), AccessError> {
        self.bytes.borrow_mut()[Self::range(va, from.len())?].copy_from_slice(from);
        Ok(())
    }

    fn fill(&self, _: &Access, va: u64, length: usize, at: usize) -> Result<(), AccessError> {
        let range = Self::range(va, length)?;
        self.record.borrow_mut()[at..at + length].copy_from_slice(&self.bytes.borrow()[range]);
        Ok(())
    }

    fn place(&self, _: &Access, va: u64, at: usize, length: usize) -> Result<(), AccessError> {
        let range = Self::range(va, length)?;
        self.bytes.borrow_mut()[range].copy_from_slice(&self.record.borrow()[at..at + length]);
        Ok(())
    }

    fn atomic(&self, access: &Access, _: u64, _: AtomicOp) -> Result<u64, AccessError> {
        Err(AccessError::Key(access.key))
    }

    fn invalidate(&self, key: u32, _: Pd, _: Qpn, _: bool) -> Result<(), AccessError> {
        Err(AccessError::Key(key))
    }

    fn bind(&self, bind: &MwBind, _: Pd, _: Qpn) -> Result<(), AccessError> {
        Err(AccessError::Window(bind.new_key))
    }
}

struct Side {
    engine: Engine<Flat>,
    cq: CqId,
    qpn: Qpn,
}

impl Side {
    fn new(number: u8, record: &Rc<RefCell<Vec<u8>>>) -> Self {
        let address = [127, 0, 0, number].into();
        let memory = Flat {
            bytes: RefCell::new(vec![0; SIZE]),
            record: Rc::clone(record),
        };
        let secret = SecretKey::new([number; 32]);
        let mut engine = Engine::new(Config::new(address, secret, number.into()), memory);
        let cq = engine.create_cq().expect("memory");
        let init = QpInit {
            kind: QpKind::Rc,
            pd: Pd(0),
            token: 0,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            send_depth: OUTSTANDING,
            recv_depth: OUTSTANDING,
            max_sge: 1,
            access: Rights::all(),
            qkey: 0,
        };
        let qpn = engine.create_qp(&init).expect("a queue pair");
        Self { engine, cq, qpn }
    }

    fn connect(&mut self, guid: u64, qpn: Qpn) {
        let remote: SocketAddr = ([127, 0, 0, 9], 4791).into();
        let up = self.engine.near_up(ID, remote, guid, MTU);
        up.expect("a channel");
        let path = Path {
            remote,
            qpn,
            mtu: MTU,
            send_psn: Psn::new(0),
            receive_psn: Psn::new(0),
            initiator_depth: 16,
            responder_resources: 16,
            retry_count: 7,
            rnr_retry: 7,
            agreement: Agreement::CURRENT,
            link: Link::Near(ID),
        };
        self.engine.connect_qp(self.qpn, &path).expect("connected");
    }

    fn post(&mut self, now: Time, op: Op, length: usize) {
        let sge = Sge {
            address: 0,
            length: length as u32,
            key: 1,
        };
        let sges = [sge];
        let request = SendRequest::new(0, op, &sges);
        self.engine
            .post_send(now, self.qpn, &request)
            .expect("posted");
    }

    fn receive(&mut self) {
        let sge = Sge {
            address: 0,
            length: 4096,
            key: 1,
        };
        self.engine.post_recv(self.qpn, 0, &[sge]).expect("posted");
    }
}

/// Passes all records of `from` to `to`, one by one.
fn carry(now: Time, from: &mut Side, to: &mut Side, hold: bool) {
    while let Some(out) = from.engine.poll_near(now, ID, RECORD, hold) {
        let payload = RecordPart {
            at: out.payload_at,
            length: out.payload_length,
            lent: false,
        };
        to.engine.handle_near(now, ID, out.header(), payload);
    }
}

fn pair() -> [Side; 2] {
    let record = Rc::new(RefCell::new(vec![0; RECORD]));
    let [mut a, mut b] = [Side::new(1, &record), Side::new(2, &record)];
    let guids = [a.engine.guid(), b.engine.guid()];
    a.connect(guids[1], b.qpn);
    b.connect(guids[0], a.qpn);
    [a, b]
}

/// Returns the seconds for `count` requests of `length` bytes.
fn stream(op: fn(Remote) -> Op, length: usize, count: usize) -> f64 {
    let [mut a, mut b] = pair();
    let remote = Remote { address: 0, key: 1 };
    let mut done = [Completion::default(); OUTSTANDING];
    let (mut posted, mut completed) = (0, 0);
    let begin = Instant::now();
    while completed < count {
        let now = Time::from_nanos(begin.elapsed().as_nanos() as u64);
        while posted < count && posted - completed < OUTSTANDING {
            a.post(now, op(remote), length);
            posted += 1;
        }
        carry(now, &mut a, &mut b, false);
        carry(now, &mut b, &mut a, false);
        completed += a.engine.poll_cq(a.cq, &mut done);
    }
    begin.elapsed().as_secs_f64()
}

/// Returns the seconds for `count` SENDs of `length` bytes, each after the other side's.
fn ping_pong(length: usize, count: usize) -> f64 {
    let mut sides = pair();
    let mut done = [Completion::default(); OUTSTANDING];
    let now = Time::from_nanos(1);
    let begin = Instant::now();
    for turn in 0..count {
        let [a, b] = &mut sides;
        let (from, to) = if turn % 2 == 0 { (a, b) } else { (b, a) };
        to.receive();
        from.post(now, Op::Send, length);
        // The acknowledgement of the last message goes along.
        carry(now, from, to, false);
        to.engine.poll_cq(to.cq, &mut done);
    }
    begin.elapsed().as_secs_f64()
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let only = std::env::args().nth(1);
    let mut show = |name: &str, length: usize, count: usize, run: &dyn Fn(usize) -> f64| {
        if only.as_ref().is_some_and(|only| only != name) {
            return Ok(());
        }
        // The best of several short runs: other programs of a busy machine disturb fewer of them.
        let part = (count / PARTS).max(1);
        let parts = if only.is_some() { 1 } else { PARTS };
        let best = (0..parts).map(|_| run(part)).fold(f64::MAX, f64::min);
        let nanos = best / part as f64 * 1e9;
        let rate = length as f64 / nanos;
        writeln!(
            out,
            "{name:12} {length:8} B: {nanos:8.1} ns each, both ends; {rate:6.2} GB/s"
        )
    };
    let most = 4_000_000;
    show("ping-pong", 64, most, &|count| ping_pong(64, count))?;
    show("write-64", 64, most, &|count| stream(Op::Write, 64, count))?;
    for (name, length) in [
        ("write-4k", 4096),
        ("write-64k", 65_536),
        ("write-1m", 1 << 20),
    ] {
        show(name, length, (4 << 30) / length / 4, &|count| {
            stream(Op::Write, length, count)
        })?;
    }
    show("read-64k", 65_536, 16_384, &|count| {
        stream(Op::Read, 65_536, count)
    })
}
