//! Measures the engine alone: two engines pass packets to each other in one thread, without sockets.
//!
//! `cargo run --release -p softrxe-proto --example throughput`

mod common;

use std::io::Write;
use std::sync::Mutex;

use common::{SIZE, Side, range, stream};
use softrxe_proto::{
    Access, AccessError, AtomicOp, Link, Memory, Meta, MwBind, Op, Pd, Qpn, Remote,
};

/// One region at address 0 behind a lock, as a driver's table would be.
struct Flat(Mutex<Vec<u8>>);

impl Memory for Flat {
    fn check(&self, access: &Access, va: u64, length: u64) -> Result<(), AccessError> {
        let _table = self.0.lock().map_err(|_| AccessError::Key(access.key))?;
        range(va, length as usize).map(drop)
    }

    fn read(&self, access: &Access, va: u64, into: &mut [u8]) -> Result<(), AccessError> {
        let bytes = self.0.lock().map_err(|_| AccessError::Key(access.key))?;
        into.copy_from_slice(&bytes[range(va, into.len())?]);
        Ok(())
    }

    fn write(&self, access: &Access, va: u64, from: &[u8]) -> Result<(), AccessError> {
        let mut bytes = self.0.lock().map_err(|_| AccessError::Key(access.key))?;
        bytes[range(va, from.len())?].copy_from_slice(from);
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

/// Returns the seconds for `count` requests of `length` bytes.
fn measure(op: fn(Remote) -> Op, length: usize, count: usize) -> f64 {
    let side = |number| Side::new(number, Flat(Mutex::new(vec![0; SIZE])));
    let [mut a, mut b] = [side(1), side(2)];
    a.connect(b.address, b.qpn, 4096, Link::Wire);
    b.connect(a.address, a.qpn, 4096, Link::Wire);
    let mut buffer = vec![0; 65_000];
    stream([a, b], op, length, count, |now, from, to| {
        while let Some(run) = from.engine.poll_transmit(now, &mut buffer) {
            for (index, packet) in buffer[..run.length].chunks(run.segment).enumerate() {
                let meta = Meta {
                    source: from.address,
                    ip_id: index as u16,
                };
                to.engine.handle_datagram(now, &meta, packet);
            }
        }
    })
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
