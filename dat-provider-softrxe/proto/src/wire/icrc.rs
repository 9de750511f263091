//! Invariant CRC (IBTA 7.8.1, RoCEv2 annex A17): the CRC-32 of Ethernet over everything that routers do not change, stored
//! least significant byte first.
//!
//! It covers the IP header, so the pseudo-headers are built here. It also covers the IPv4 identification, which a UDP
//! socket does not report for a received packet. The CRC is linear: two packets that differ only in the identification have
//! CRCs whose difference depends only on that and on the distance to the end. [`explain`] inverts the shift and tests
//! whether any identification explains the difference. Sixteen bits of the check remain.

use std::net::{IpAddr, SocketAddr};

use crc32fast::Hasher;

use super::Bth;

/// Bytes on the wire.
pub const LEN: usize = 4;

/// CRC-32 polynomial, reflected.
const POLY: u32 = 0xedb8_8320;
/// Bytes of UDP header and BTH, which follow the IP header in the masked prefix.
const TAIL: usize = 8 + Bth::LEN;

/// Source and destination of a packet, from its IP and UDP headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Sender.
    pub source: SocketAddr,
    /// Receiver.
    pub destination: SocketAddr,
}

/// Result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The ICRC is as computed.
    Exact,
    /// The ICRC is right if this was the IPv4 identification.
    Identification(u16),
    /// The ICRC is wrong.
    Wrong,
}

/// Returns the ICRC of `transport` (BTH to padding) sent over `flow` with don't-fragment set and this IPv4 identification.
#[must_use]
pub fn compute(flow: &Flow, ip_id: u16, transport: &[u8]) -> u32 {
    let udp_length = (8 + transport.len() + LEN) as u16;
    let mut prefix = [0xff; 8 + 40 + TAIL];
    let ip = &mut prefix[8..];
    let ip_length = match (flow.source.ip(), flow.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&(20 + udp_length).to_be_bytes());
            ip[4..6].copy_from_slice(&ip_id.to_be_bytes());
            ip[6..8].copy_from_slice(&[0x40, 0]);
            ip[9] = 17;
            ip[12..16].copy_from_slice(&source.octets());
            ip[16..20].copy_from_slice(&destination.octets());
            20
        }
        (source, destination) => {
            ip[0] = 0x6f;
            ip[4..6].copy_from_slice(&udp_length.to_be_bytes());
            ip[6] = 17;
            ip[8..24].copy_from_slice(&octets(source));
            ip[24..40].copy_from_slice(&octets(destination));
            40
        }
    };
    let udp = &mut ip[ip_length..];
    udp[0..2].copy_from_slice(&flow.source.port().to_be_bytes());
    udp[2..4].copy_from_slice(&flow.destination.port().to_be_bytes());
    udp[4..6].copy_from_slice(&udp_length.to_be_bytes());
    masked(&mut prefix[..8 + ip_length + TAIL], transport)
}

/// Returns the ICRC of `transport` after these IP (without options) and UDP headers, as a capture has them.
#[must_use]
pub fn compute_raw(ip: &[u8], udp: &[u8; 8], transport: &[u8]) -> u32 {
    let mut prefix = [0xff; 8 + 40 + TAIL];
    let length = ip.len().min(40);
    let header = &mut prefix[8..];
    header[..length].copy_from_slice(&ip[..length]);
    if header[0] >> 4 == 4 {
        header[1] = 0xff;
        header[8] = 0xff;
        header[10..12].fill(0xff);
    } else {
        header[0] |= 0x0f;
        header[1..4].fill(0xff);
        header[7] = 0xff;
    }
    header[length..length + 6].copy_from_slice(&udp[..6]);
    masked(&mut prefix[..8 + length + TAIL], transport)
}

/// Completes `prefix` with the BTH, whose congestion byte is masked, and computes the CRC over all.
fn masked(prefix: &mut [u8], transport: &[u8]) -> u32 {
    let (bth, rest) = transport.split_at(transport.len().min(Bth::LEN));
    let at = prefix.len() - Bth::LEN;
    prefix[at..at + bth.len()].copy_from_slice(bth);
    prefix[at + 4] = 0xff;
    let mut hasher = Hasher::new();
    hasher.update(prefix);
    hasher.update(rest);
    hasher.finalize()
}

/// Writes `crc` after `transport_length` bytes of `packet`.
pub fn store(packet: &mut [u8], transport_length: usize, crc: u32) {
    packet[transport_length..transport_length + LEN].copy_from_slice(&crc.to_le_bytes());
}

/// Checks the last four bytes of `datagram`; `ip_id` is the most likely IPv4 identification.
#[must_use]
pub fn verify(flow: &Flow, ip_id: u16, datagram: &[u8]) -> Verdict {
    let Some((transport, stored)) = datagram.split_last_chunk::<LEN>() else {
        return Verdict::Wrong;
    };
    let difference = u32::from_le_bytes(*stored) ^ compute(flow, ip_id, transport);
    if difference == 0 {
        Verdict::Exact
    } else if flow.source.is_ipv4() {
        explain(difference, transport.len())
            .map_or(Verdict::Wrong, |mask| Verdict::Identification(ip_id ^ mask))
    } else {
        Verdict::Wrong
    }
}

/// Returns the exclusive-or of two IPv4 identifications that causes this difference of the ICRCs of a packet with
/// `transport_length` bytes from BTH to padding, if there is one.
#[must_use]
pub fn explain(difference: u32, transport_length: usize) -> Option<u16> {
    // From the end of the identification to the end of the packet: 14 bytes of IPv4, UDP, transport. Undoing two more bytes
    // leaves the identification itself in the low half, first byte lowest.
    let distance = 2 + 14 + 8 + transport_length;
    let undone = multiply(difference, inverse_power(distance));
    u16::try_from(undone).ok().map(u16::swap_bytes)
}

/// Returns x^(-8 * bytes) modulo the polynomial, reflected.
fn inverse_power(bytes: usize) -> u32 {
    let mut result = 1 << 31;
    for (bit, power) in INVERSE_POWERS.iter().enumerate() {
        if bytes >> bit & 1 != 0 {
            result = multiply(result, *power);
        }
    }
    result
}

/// x^(-8 * 2^n) for n in 0..16.
static INVERSE_POWERS: [u32; 16] = {
    let mut powers = [0; 16];
    // One step back of the reflected register, eight times from x^0.
    let mut power: u32 = 1 << 31;
    let mut step = 0;
    while step < 8 {
        power = if power >> 31 != 0 {
            ((power ^ POLY) << 1) | 1
        } else {
            power << 1
        };
        step += 1;
    }
    let mut n = 0;
    while n < 16 {
        powers[n] = power;
        power = multiply(power, power);
        n += 1;
    }
    powers
};

/// Returns the product modulo the polynomial; bit 31 is x^0.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 1 << 31;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = b >> 1 ^ (if b & 1 != 0 { POLY } else { 0 });
        bit >>= 1;
    }
    product
}

/// Returns the octets of an address; IPv4 is mapped, so that mixed families, which no socket makes, have a defined result.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow4() -> Flow {
        Flow {
            source: "10.9.0.1:58034".parse().unwrap(),
            destination: "10.9.0.2:4791".parse().unwrap(),
        }
    }

    #[test]
    fn acknowledge_over_ipv4_as_captured() {
        // rc_ops.pcap frame 5.
        let transport = [
            0x11, 0, 0xff, 0xff, 0, 0, 0, 0x1e, 0, 0x2d, 0xb6, 0xca, 0x1f, 0, 0, 1,
        ];
        assert_eq!(compute(&flow4(), 0xde67, &transport), 0xd603_9147);
    }

    #[test]
    fn any_identification_is_found_again_and_other_damage_is_not_explained() {
        let longest = if cfg!(miri) { 280 } else { 4112 };
        let lengths = [16, 20, 280, 1036, 4112].into_iter();
        for length in lengths.filter(|length| *length <= longest) {
            let transport: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
            let base = compute(&flow4(), 0, &transport);
            for id in [1, 2, 0x100, 0x8000, 0xde67, 0xffff] {
                let difference = compute(&flow4(), id, &transport) ^ base;
                assert_eq!(explain(difference, transport.len()), Some(id));
            }
            for bit in 0..32 {
                assert_eq!(explain(1 << bit, transport.len()), None, "{length} {bit}");
            }
        }
    }

    #[test]
    fn ipv6_has_no_identification_to_blame() {
        let flow = Flow {
            source: "[fd09::2]:56570".parse().unwrap(),
            destination: "[fd09::1]:4791".parse().unwrap(),
        };
        let mut datagram = [0x11u8; 20];
        let crc = compute(&flow, 0, &datagram[..16]);
        store(&mut datagram, 16, crc);
        assert_eq!(verify(&flow, 7, &datagram), Verdict::Exact);
        datagram[15] ^= 1;
        assert_eq!(verify(&flow, 0, &datagram), Verdict::Wrong);
    }
}
