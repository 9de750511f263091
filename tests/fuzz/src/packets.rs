//! Packets that the bodies make and check.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use softrxe_proto::wire::icrc::{self, Flow, Verdict};
use softrxe_proto::wire::{Headers, Packet, packet};
use softrxe_proto::{Engine, Memory, Meta, Qpn, ROCE_PORT, Time, Transmit, opcode::Opcode};

/// Addresses of the engine under test and of its peer.
pub(crate) const HERE: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)), ROCE_PORT);
pub(crate) const THERE: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), ROCE_PORT);

/// Limit of packets that one step may cause.
const STORM: usize = 3000;

/// Returns `packet` as bytes with a right ICRC, from the peer.
pub(crate) fn with_icrc(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes =
        vec![0; packet::MAX_HEADERS + packet.headers.length() + packet.payload.len() + 8];
    let end = packet.emit(&mut bytes);
    bytes.truncate(end);
    append_icrc(bytes)
}

/// Returns `bytes` with a right ICRC after them.
pub(crate) fn append_icrc(mut bytes: Vec<u8>) -> Vec<u8> {
    let flow = Flow {
        source: THERE,
        destination: HERE,
    };
    bytes.extend(icrc::compute(&flow, 0, &bytes).to_le_bytes());
    bytes
}

/// Delivers `bytes` to `engine` as the peer's.
pub(crate) fn deliver<M: Memory>(engine: &mut Engine<M>, now: Time, bytes: &[u8]) {
    let meta = Meta {
        source: THERE,
        ip_id: 0,
    };
    engine.handle_datagram(now, &meta, bytes);
}

/// A packet that the engine sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) bytes: Vec<u8>,
    /// Its index in the run.
    pub(crate) index: u16,
}

impl Sent {
    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).expect("sent packets are well formed")
    }
}

/// Takes all packets that `engine` sends. Each must be well formed, survive encoding, and have a right ICRC.
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
            "{} packets caused by one step",
            out.len()
        );
    }
    out
}

fn check(run: &Transmit, index: u16, bytes: &[u8], source: SocketAddr) {
    let sent = Packet::parse(bytes).expect("sent packets are well formed");
    let mut again = vec![0xee; bytes.len() - icrc::LEN];
    assert_eq!(sent.emit(&mut again), again.len());
    assert_eq!(again, bytes[..again.len()]);
    let flow = Flow {
        source,
        destination: run.destination,
    };
    assert_eq!(icrc::verify(&flow, index, bytes), Verdict::Exact);
}

/// Returns the extended headers of `opcode`, out of `all`.
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

/// Queue pair number of the peer.
pub(crate) const PEER: Qpn = Qpn::new(0x77);
