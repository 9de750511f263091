//! Packets in and out, as the bodies make and check them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use softrxe_proto::wire::icrc::{self, Flow, Verdict};
use softrxe_proto::wire::{Headers, Packet, packet};
use softrxe_proto::{Engine, Memory, Meta, Qpn, ROCE_PORT, Time, Transmit, opcode::Opcode};

/// The engine under test, and its peer.
pub(crate) const HERE: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)), ROCE_PORT);
pub(crate) const THERE: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), ROCE_PORT);

/// Packets that one step may draw: more is a storm.
const STORM: usize = 3000;

/// `packet` as bytes with a right ICRC, from the peer.
pub(crate) fn seal(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes =
        vec![0; packet::MAX_HEADERS + packet.headers.length() + packet.payload.len() + 8];
    let end = packet.emit(&mut bytes);
    bytes.truncate(end);
    sign(bytes)
}

/// `bytes` with a right ICRC behind them.
pub(crate) fn sign(mut bytes: Vec<u8>) -> Vec<u8> {
    let flow = Flow {
        source: THERE,
        destination: HERE,
    };
    bytes.extend(icrc::compute(&flow, 0, &bytes).to_le_bytes());
    bytes
}

/// Gives `bytes` to `engine` as the peer's.
pub(crate) fn deliver<M: Memory>(engine: &mut Engine<M>, now: Time, bytes: &[u8]) {
    let meta = Meta {
        source: THERE,
        ip_id: 0,
    };
    engine.handle_datagram(now, &meta, bytes);
}

/// A packet that went out.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) bytes: Vec<u8>,
    /// Its place in the run.
    pub(crate) index: u16,
}

impl Sent {
    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).expect("what goes out is well formed")
    }
}

/// Takes all that `engine` wants sent; each packet is well formed, says the same when it is written again, and is sealed rightly.
pub(crate) fn drain<M: Memory>(
    engine: &mut Engine<M>,
    now: Time,
    buffer: &mut [u8],
    source: SocketAddr,
) -> Vec<Sent> {
    let mut out = Vec::new();
    while let Some(run) = engine.poll_transmit(now, buffer) {
        assert!(run.length <= buffer.len() && run.packets() <= 64);
        for (index, bytes) in (0u16..).zip(buffer[..run.length].chunks(run.segment)) {
            check(&run, index, bytes, source);
            let bytes = bytes.to_vec();
            out.push(Sent { bytes, index });
        }
        assert!(
            out.len() <= STORM,
            "{} packets drawn by one step",
            out.len()
        );
    }
    out
}

fn check(run: &Transmit, index: u16, bytes: &[u8], source: SocketAddr) {
    let sent = Packet::parse(bytes).expect("what goes out is well formed");
    let mut again = vec![0xee; bytes.len() - icrc::LEN];
    assert_eq!(sent.emit(&mut again), again.len());
    assert_eq!(again, bytes[..again.len()]);
    let flow = Flow {
        source,
        destination: run.destination,
    };
    assert_eq!(icrc::verify(&flow, index, bytes), Verdict::Exact);
}

/// Extended headers that `opcode` has, out of `all`.
pub(crate) fn headers_of(opcode: Opcode, all: &Headers) -> Headers {
    Headers {
        deth: all.deth.filter(|_| opcode.has_deth()),
        reth: all.reth.filter(|_| opcode.has_reth()),
        atomic: all.atomic.filter(|_| opcode.has_atomic()),
        aeth: all.aeth.filter(|_| opcode.has_aeth()),
        original: all.original.filter(|_| opcode == Opcode::AtomicAcknowledge),
        immediate: all.immediate.filter(|_| opcode.has_immediate()),
        invalidate: all.invalidate.filter(|_| opcode.has_invalidate()),
    }
}

/// The peer's queue pair.
pub(crate) const PEER: Qpn = Qpn::new(0x77);
