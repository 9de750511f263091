//! Measures the engine alone over a channel: two engines pass records to each other in one thread, without a ring.
//!
//! `cargo run --release -p softrxe-proto --example near`; with an argument only that case runs, once and
//! short, for `valgrind --tool=callgrind`.

mod common;

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::time::Instant;

use common::{OUTSTANDING, SIZE, Side, range, segment, stream};
use softrxe_proto::{
    Access, AccessError, AtomicOp, Completion, Link, Memory, MwBind, NearId, Op, Pd, Qpn,
    RecordPart, Time,
};

const ID: NearId = NearId(0);
const MTU: u16 = 32_768;
const RECORD: usize = MTU as usize + 128;
/// Runs of a case.
const PARTS: usize = 40;

/// One region at address 0, and the record at hand of both engines.
struct Flat {
    bytes: RefCell<Vec<u8>>,
    record: Rc<RefCell<Vec<u8>>>,
}

impl Memory for Flat {
    fn check(&self, _: &Access, va: u64, length: u64) -> Result<(), AccessError> {
        range(va, length as usize).map(drop)
    }

    fn read(&self, _: &Access, va: u64, into: &mut [u8]) -> Result<(), AccessError> {
        into.copy_from_slice(&self.bytes.borrow()[range(va, into.len())?]);
        Ok(())
    }

    fn write(&self, _: &Access, va: u64, from: &[u8]) -> Result<(), AccessError> {
        self.bytes.borrow_mut()[range(va, from.len())?].copy_from_slice(from);
        Ok(())
    }

    fn fill(&self, _: &Access, va: u64, length: usize, at: usize) -> Result<(), AccessError> {
        let bytes = range(va, length)?;
        self.record.borrow_mut()[at..at + length].copy_from_slice(&self.bytes.borrow()[bytes]);
        Ok(())
    }

    fn place(&self, _: &Access, va: u64, at: usize, length: usize) -> Result<(), AccessError> {
        let bytes = range(va, length)?;
        self.bytes.borrow_mut()[bytes].copy_from_slice(&self.record.borrow()[at..at + length]);
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

/// Passes all records of `from` to `to`, one by one.
fn carry(now: Time, from: &mut Side<Flat>, to: &mut Side<Flat>) {
    while let Some(out) = from.engine.poll_near(now, ID, RECORD, false) {
        let payload = RecordPart {
            at: out.payload_at,
            length: out.payload_length,
            lent: false,
        };
        to.engine.handle_near(now, ID, out.header(), payload);
    }
}

fn pair() -> [Side<Flat>; 2] {
    let record = Rc::new(RefCell::new(vec![0; RECORD]));
    let side = |number| {
        let bytes = RefCell::new(vec![0; SIZE]);
        let record = Rc::clone(&record);
        Side::new(number, Flat { bytes, record })
    };
    let [mut a, mut b] = [side(1), side(2)];
    connect(&mut a, &b);
    connect(&mut b, &a);
    [a, b]
}

fn connect(side: &mut Side<Flat>, peer: &Side<Flat>) {
    let guid = peer.engine.guid();
    let up = side.engine.near_up(ID, peer.address, guid, MTU);
    up.expect("a channel");
    side.connect(peer.address, peer.qpn, MTU, Link::Near(ID));
}

fn receive(side: &mut Side<Flat>) {
    let posted = side.engine.post_recv(side.qpn, 0, &[segment(4096)]);
    posted.expect("posted");
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
        receive(to);
        from.post(now, Op::Send, length);
        // The acknowledgement of the last message goes along.
        carry(now, from, to);
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
    show("write-64", 64, most, &|count| {
        stream(pair(), Op::Write, 64, count, carry)
    })?;
    for (name, length) in [
        ("write-4k", 4096),
        ("write-64k", 65_536),
        ("write-1m", 1 << 20),
    ] {
        show(name, length, (4 << 30) / length / 4, &|count| {
            stream(pair(), Op::Write, length, count, carry)
        })?;
    }
    show("read-64k", 65_536, 16_384, &|count| {
        stream(pair(), Op::Read, 65_536, count, carry)
    })
}
