//! ICRCs in one pass over the packet.
//!
//! CRC is linear: the pseudo-headers in front and the masked byte of the BTH change the result by a number that does not depend
//! on the packet's bytes, only on the flow, the length and the IPv4 identification. So the first packet of a kind is computed
//! in full, and what it differs from the plain CRC of its bytes is remembered for all that follow.

use std::net::SocketAddr;

use crc32fast::Hasher;

use super::icrc::{self, Flow};

/// Remembered differences, direct-mapped: a run of 64 segments in each of a few lengths, both ways.
const ENTRIES: usize = 1024;
const SHIFT: u32 = u64::BITS - ENTRIES.ilog2();
/// Peers told apart at a time; more only cost time.
const PEERS: usize = 16;
/// The BTH's byte of congestion marks and reserved bits, masked in the ICRC; zero in all but marked packets.
const MASKED: usize = 4;

/// Which way a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Out,
    In,
}

/// A kind of packet, packed: peer's tag and way 33 bits, length 15 bits, identification 16 bits.
type Kind = u64;

/// Computes ICRCs of packets between one local address and its peers.
#[derive(Debug)]
pub(crate) struct Sealer {
    local: SocketAddr,
    peers: [Option<(SocketAddr, u32)>; PEERS],
    /// Tag that the next peer gets; never one that is still in `table`.
    next: u32,
    table: Box<[(Kind, u32)]>,
    /// Where the peer of the last packet stands in `peers`.
    last: usize,
    /// Copied for each packet: a new one asks what the processor can do.
    hasher: Hasher,
}

impl Sealer {
    pub(crate) fn new(local: SocketAddr) -> Self {
        Self {
            local,
            peers: [None; PEERS],
            next: 1,
            table: vec![(0, 0); ENTRIES].into(),
            last: 0,
            hasher: Hasher::new(),
        }
    }

    fn plain(&self, bytes: &[u8]) -> u32 {
        let mut hasher = self.hasher.clone();
        hasher.update(bytes);
        hasher.finalize()
    }

    /// As [`icrc::compute`] for a packet to or from `peer`.
    pub(crate) fn compute(
        &mut self,
        way: Way,
        peer: SocketAddr,
        ip_id: u16,
        transport: &[u8],
    ) -> u32 {
        let plain = self.plain(transport);
        let usual = transport.get(MASKED) == Some(&0) && transport.len() < 1 << 15;
        if !usual {
            return icrc::compute(&self.flow(way, peer), ip_id, transport);
        }
        self.complete(way, peer, ip_id, transport, plain)
    }

    /// The same where the CRC-32 of the packet is known, `plain`. Of `transport`, shorter than 32 KiB, only the unmarked BTH and the
    /// length count then: the payload may lie elsewhere.
    pub(crate) fn complete(
        &mut self,
        way: Way,
        peer: SocketAddr,
        ip_id: u16,
        transport: &[u8],
        plain: u32,
    ) -> u32 {
        let length = transport.len() as u64;
        let kind = (u64::from(self.tag(peer)) << 1 | u64::from(way == Way::Out)) << 31
            | length << 16
            | u64::from(ip_id);
        // By the golden ratio: a run's identifications lie apart, and so do what is sent and what comes back.
        let slot = (kind.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> SHIFT) as usize;
        if self.table[slot].0 != kind {
            let whole = icrc::compute(&self.flow(way, peer), ip_id, transport);
            self.table[slot] = (kind, whole ^ self.plain(transport));
        }
        plain ^ self.table[slot].1
    }

    const fn flow(&self, way: Way, peer: SocketAddr) -> Flow {
        match way {
            Way::Out => Flow {
                source: self.local,
                destination: peer,
            },
            Way::In => Flow {
                source: peer,
                destination: self.local,
            },
        }
    }

    fn tag(&mut self, peer: SocketAddr) -> u32 {
        let known = |entry: &Option<(SocketAddr, u32)>| match entry {
            Some((known, tag)) if *known == peer => Some(*tag),
            _ => None,
        };
        if let Some(tag) = known(&self.peers[self.last]) {
            return tag;
        }
        if let Some((at, tag)) = (0..PEERS).find_map(|at| Some((at, known(&self.peers[at])?))) {
            self.last = at;
            return tag;
        }
        let tag = self.next;
        self.next = self.next.checked_add(1).unwrap_or_else(|| {
            // After so many peers the oldest tags come again.
            self.table.fill((0, 0));
            self.peers = [None; PEERS];
            1
        });
        self.peers[tag as usize % PEERS] = Some((peer, tag));
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::super::Bth;
    use super::*;

    #[test]
    fn every_checksum_is_the_one_that_is_computed_in_full() {
        let all = [(16, 0), (92, 0), (92, 1), (92, 63), (4108, 14), (16, 0)];
        // Miri is slow; its second round meets peers that were forgotten, too.
        let (last, kinds) = if cfg!(miri) {
            (2, &all[..2])
        } else {
            (3, &all[..])
        };
        for local in ["127.0.0.1:4791", "[fd09::1]:4791"] {
            let local: SocketAddr = local.parse().unwrap();
            let mut sealer = Sealer::new(local);
            let mut rounds = 0u32;
            for round in 0..last {
                // More peers than are told apart at a time.
                for peer in 0..PEERS as u16 + 4 {
                    let peer = SocketAddr::new(local.ip(), 5000 + peer);
                    for &(length, id) in kinds {
                        for mark in [0, 0x80] {
                            let mut packet: Vec<u8> = (0..length)
                                .map(|i| (i as u8).wrapping_mul(round + 3))
                                .collect();
                            packet[MASKED] = mark;
                            for way in [Way::Out, Way::In] {
                                let flow = sealer.flow(way, peer);
                                let whole = icrc::compute(&flow, id, &packet);
                                assert_eq!(sealer.compute(way, peer, id, &packet), whole);
                                if mark == 0 {
                                    let plain = crc32fast::hash(&packet);
                                    let mut hollow = packet.clone();
                                    hollow[Bth::LEN..].fill(round);
                                    let sealed = sealer.complete(way, peer, id, &hollow, plain);
                                    assert_eq!(sealed, whole);
                                }
                                rounds += 1;
                            }
                        }
                    }
                }
            }
            assert_eq!(
                rounds as usize,
                usize::from(last) * (PEERS + 4) * kinds.len() * 4
            );
        }
    }
}
