//! Measures the engine alone: two engines pass packets to each other in one thread, without sockets.
//!
//! `cargo run --release -p softrxe-proto --example throughput`

use std::io::Write;
use std::sync::Mutex;
use std::time::Instant;

use softrxe_proto::{
    Access, AccessError, Agreement, AtomicOp, Completion, Config, CqId, Engine, Link, Memory, Meta,
    MwBind, Op, Path, Pd, Psn, QpInit, QpKind, Qpn, Remote, Rights, SecretKey, SendRequest, Sge,
    Time,
};

/// One region at address 0 behind a lock, as a driver's table would be.
struct Flat(Mutex<Vec<u8>>);

impl Flat {
    fn range(va: u64, length: usize, size: usize) -> Result<std::ops::Range<usize>, AccessError> {
        let at = va as usize;
        if at <= size && length <= size - at {
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
        let size = self.0.lock().map_or(0, |bytes| bytes.len());
        Self::range(va, length as usize, size).map(|_| ())
    }

    fn read(&self, access: &Access, va: u64, into: &mut [u8]) -> Result<(), AccessError> {
        let bytes = self.0.lock().map_err(|_| AccessError::Key(access.key))?;
        into.copy_from_slice(&bytes[Self::range(va, into.len(), bytes.len())?]);
        Ok(())
    }

    fn write(&self, access: &Access, va: u64, from: &[u8]) -> Result<(), AccessError> {
        let mut bytes = self.0.lock().map_err(|_| AccessError::Key(access.key))?;
        let range = Self::range(va, from.len(), bytes.len())?;
        bytes[range].copy_from_slice(from);
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

const SIZE: usize = 4 << 20;
const OUTSTANDING: usize = 64;

fn engine(address: &str) -> (Engine<Flat>, CqId, Qpn) {
    let address = address.parse().expect("an address");
    let mut engine = Engine::new(
        Config::new(address, SecretKey::new([7; 32]), 7),
        Flat(Mutex::new(vec![0; SIZE])),
    );
    let cq = engine.create_cq().unwrap();
    let init = QpInit {
        kind: QpKind::Rc,
        pd: Pd(0),
        token: 0,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        send_depth: OUTSTANDING,
        recv_depth: 0,
        max_sge: 1,
        access: Rights::all(),
        qkey: 0,
    };
    let qpn = engine.create_qp(&init).expect("a queue pair");
    (engine, cq, qpn)
}

fn path(remote: &str, qpn: Qpn) -> Path {
    Path {
        remote: remote.parse().expect("an address"),
        qpn,
        mtu: 4096,
        send_psn: Psn::new(0),
        receive_psn: Psn::new(0),
        initiator_depth: 16,
        responder_resources: 16,
        retry_count: 7,
        rnr_retry: 7,
        agreement: Agreement::CURRENT,
        link: Link::Wire,
    }
}

/// Passes all packets of `from` to `to`.
fn carry(
    now: Time,
    from: &mut Engine<Flat>,
    to: &mut Engine<Flat>,
    buffer: &mut [u8],
    source: &str,
) {
    let source = source.parse().expect("an address");
    while let Some(run) = from.poll_transmit(now, buffer) {
        for (index, packet) in buffer[..run.length].chunks(run.segment).enumerate() {
            let ip_id = index as u16;
            to.handle_datagram(now, &Meta { source, ip_id }, packet);
        }
    }
}

/// Returns the seconds for `count` requests of `length` bytes.
fn measure(op: fn(Remote) -> Op, length: usize, count: usize) -> f64 {
    let (mut a, cq, qa) = engine("127.0.0.1");
    let (mut b, _, qb) = engine("127.0.0.2");
    a.connect_qp(qa, &path("127.0.0.2:4791", qb))
        .expect("connected");
    b.connect_qp(qb, &path("127.0.0.1:4791", qa))
        .expect("connected");
    let sge = Sge {
        address: 0,
        length: length as u32,
        key: 1,
    };
    let remote = Remote { address: 0, key: 1 };
    let mut buffer = vec![0; 65_000];
    let mut done = [Completion::default(); OUTSTANDING];
    let (mut posted, mut completed) = (0, 0);
    let begin = Instant::now();
    while completed < count {
        let now = Time::from_nanos(begin.elapsed().as_nanos() as u64);
        while posted < count && posted - completed < OUTSTANDING {
            a.post_send(now, qa, &SendRequest::new(0, op(remote), &[sge]))
                .expect("posted");
            posted += 1;
        }
        carry(now, &mut a, &mut b, &mut buffer, "127.0.0.1:4791");
        carry(now, &mut b, &mut a, &mut buffer, "127.0.0.2:4791");
        completed += a.poll_cq(cq, &mut done);
    }
    begin.elapsed().as_secs_f64()
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for length in [8, 64, 4096, 65_536, 1 << 20] {
        let count = ((2usize << 30) / length.max(1024)).clamp(2_000, 2_000_000);
        for (name, op) in [
            ("WRITE", Op::Write as fn(Remote) -> Op),
            ("READ", Op::Read as fn(Remote) -> Op),
        ] {
            let seconds = measure(op, length, count);
            let rate = count as f64 / seconds;
            writeln!(
                out,
                "{name:5} {length:8} B: {:8.3} M/s {:7.3} GB/s {:8.0} ns each, both ends",
                rate / 1e6,
                rate * length as f64 / 1e9,
                seconds / count as f64 * 1e9
            )?;
        }
    }
    Ok(())
}
