//! Computes ICRCs in one pass over the packet.
//!
//! CRC is linear: the pseudo-headers and the masked byte of the BTH change the result by a number that does not depend on
//! the packet's bytes, but only on the flow, the length and the IPv4 identification. So the first packet of a kind is
//! computed in full. Its difference to the plain CRC of its bytes is cached and applied to all packets of that kind.

use std::net::SocketAddr;

use crc32fast::Hasher;

use super::icrc::{self, Flow};

/// Cached differences, direct-mapped: a run of 64 segments in each of a few lengths, in both directions.
const ENTRIES: usize = 1024;
const SHIFT: u32 = u64::BITS - ENTRIES.ilog2();
/// Peers that have a tag at a time; more only cost time.
const PEERS: usize = 16;
/// Offset of the BTH's byte of congestion marks and reserved bits. It is masked in the ICRC, and zero in all but marked
/// packets.
const MASKED: usize = 4;

/// Direction of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Out,
    In,
}

/// A kind of packet, in one word: the peer's tag and the direction 33 bits, the length 15 bits, the identification 16 bits.
type Kind = u64;

/// Computes ICRCs of packets between one local address and its peers.
#[derive(Debug)]
pub(crate) struct IcrcCache {
    local: SocketAddr,
    peers: [Option<(SocketAddr, u32)>; PEERS],
    /// Tag of the next peer; never one that is still in `table`.
    next: u32,
    table: Box<[(Kind, u32)]>,
    /// Index in `peers` of the last packet's peer.
    last: usize,
    /// Copied for each packet, as a new one queries the processor's features.
    hasher: Hasher,
}

impl IcrcCache {
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

    /// Returns [`icrc::compute`] for a packet to or from `peer`.
    pub(crate) fn compute(
        &mut self,
        direction: Direction,
        peer: SocketAddr,
        ip_id: u16,
        transport: &[u8],
    ) -> u32 {
        let plain = self.plain(transport);
        let cacheable = transport.get(MASKED) == Some(&0) && transport.len() < 1 << 15;
        if !cacheable {
            return icrc::compute(&self.flow(direction, peer), ip_id, transport);
        }
        self.complete(direction, peer, ip_id, transport, plain)
    }

    /// Returns the ICRC of a packet whose CRC-32 `plain` is known. Only the unmarked BTH and the length of `transport`,
    /// shorter than 32 KiB, are used then: the payload may be elsewhere.
    pub(crate) fn complete(
        &mut self,
        direction: Direction,
        peer: SocketAddr,
        ip_id: u16,
        transport: &[u8],
        plain: u32,
    ) -> u32 {
        let length = transport.len() as u64;
        let kind = (u64::from(self.tag(peer)) << 1 | u64::from(direction == Direction::Out)) << 31
            | length << 16
            | u64::from(ip_id);
        // Multiplication by the golden ratio separates the identifications of a run, and the two directions.
        let slot = (kind.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> SHIFT) as usize;
        if self.table[slot].0 != kind {
            let whole = icrc::compute(&self.flow(direction, peer), ip_id, transport);
            self.table[slot] = (kind, whole ^ self.plain(transport));
        }
        plain ^ self.table[slot].1
    }

    const fn flow(&self, direction: Direction, peer: SocketAddr) -> Flow {
        match direction {
            Direction::Out => Flow {
                source: self.local,
                destination: peer,
            },
            Direction::In => Flow {
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
            // After 2^32 peers the oldest tags would be used again.
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
        // Miri is slow. Its second round uses peers that were evicted, too.
        let (last, kinds) = if cfg!(miri) {
            (2, &all[..2])
        } else {
            (3, &all[..])
        };
        for local in ["127.0.0.1:4791", "[fd09::1]:4791"] {
            let local: SocketAddr = local.parse().unwrap();
            let mut icrc_cache = IcrcCache::new(local);
            let mut rounds = 0u32;
            for round in 0..last {
                // More peers than have tags at a time.
                for peer in 0..PEERS as u16 + 4 {
                    let peer = SocketAddr::new(local.ip(), 5000 + peer);
                    for &(length, id) in kinds {
                        for mark in [0, 0x80] {
                            let mut packet: Vec<u8> = (0..length)
                                .map(|i| (i as u8).wrapping_mul(round + 3))
                                .collect();
                            packet[MASKED] = mark;
                            for direction in [Direction::Out, Direction::In] {
                                let flow = icrc_cache.flow(direction, peer);
                                let whole = icrc::compute(&flow, id, &packet);
                                assert_eq!(icrc_cache.compute(direction, peer, id, &packet), whole);
                                if mark == 0 {
                                    let plain = crc32fast::hash(&packet);
                                    let mut hollow = packet.clone();
                                    hollow[Bth::LEN..].fill(round);
                                    let sealed =
                                        icrc_cache.complete(direction, peer, id, &hollow, plain);
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
