//! Reads and writes pcap files with Ethernet frames that hold RoCEv2.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// A captured UDP datagram to port 4791.
pub struct Captured {
    /// Number of the frame, from 1.
    pub frame: usize,
    /// IP header without options.
    pub ip: Vec<u8>,
    /// UDP header.
    pub udp: [u8; 8],
    /// UDP payload: BTH to ICRC.
    pub payload: Vec<u8>,
}

impl Captured {
    /// Returns sender and receiver.
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        let ip = |at4: usize, at6: usize| -> IpAddr {
            if self.ip[0] >> 4 == 4 {
                <[u8; 4]>::try_from(&self.ip[at4..at4 + 4]).unwrap().into()
            } else {
                <[u8; 16]>::try_from(&self.ip[at6..at6 + 16])
                    .unwrap()
                    .into()
            }
        };
        let port = |at| u16::from_be_bytes([self.udp[at], self.udp[at + 1]]);
        (
            SocketAddr::new(ip(12, 8), port(0)),
            SocketAddr::new(ip(16, 24), port(2)),
        )
    }

    /// Returns the IPv4 identification, 0 for IPv6.
    pub fn identification(&self) -> u16 {
        if self.ip[0] >> 4 == 4 {
            u16::from_be_bytes([self.ip[4], self.ip[5]])
        } else {
            0
        }
    }
}

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// Returns the folder of the captures.
pub fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors")
}

/// Returns all RoCEv2 datagrams of `name`.pcap in tests/vectors.
pub fn read(name: &str) -> Vec<Captured> {
    read_file(&vectors().join(format!("{name}.pcap")))
}

/// Returns all RoCEv2 datagrams of a capture of Ethernet frames or of bare IP packets.
pub fn read_file(path: &Path) -> Vec<Captured> {
    let data = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let le32 = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap()) as usize;
    assert!(
        [0xa1b2_c3d4, 0xa1b2_3c4d].contains(&le32(0)),
        "little endian"
    );
    let link = match le32(20) {
        1 => ETHERNET,
        101 => 0,
        other => panic!("{}: link type {other}", path.display()),
    };
    let mut out = Vec::new();
    let (mut at, mut frame) = (24, 0);
    while at + 16 <= data.len() {
        let length = le32(at + 8);
        let bytes = &data[at + 16..at + 16 + length];
        at += 16 + length;
        frame += 1;
        out.extend(datagram(frame, link, bytes));
    }
    out
}

fn datagram(frame: usize, link: usize, bytes: &[u8]) -> Option<Captured> {
    let (link, packet) = bytes.split_at(link);
    if link
        .get(12..)
        .is_some_and(|kind| kind != [0x08, 0x00] && kind != [0x86, 0xdd])
    {
        return None;
    }
    let (ip_length, protocol) = match packet[0] >> 4 {
        4 => (usize::from(packet[0] & 15) * 4, packet[9]),
        6 => (40, packet[6]),
        _ => return None,
    };
    if protocol != 17 {
        return None;
    }
    let (ip, rest) = packet.split_at(ip_length);
    let udp: [u8; 8] = rest[..8].try_into().unwrap();
    let length = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
    (udp[2..4] == 4791u16.to_be_bytes()).then(|| Captured {
        frame,
        ip: ip.to_vec(),
        udp,
        payload: rest[8..length].to_vec(),
    })
}

/// Writer of a capture of Ethernet frames with nanosecond times.
pub struct Writer(fs::File);

impl Writer {
    /// Creates `$DAT_TEST_PCAP/<name>.pcap`, if the variable is set.
    pub fn for_test(name: &str) -> Option<Self> {
        let folder = std::env::var_os("DAT_TEST_PCAP")?;
        let mut file = fs::File::create(Path::new(&folder).join(format!("{name}.pcap"))).unwrap();
        let header: [u32; 6] = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 65_535, 1];
        file.write_all(&header.map(u32::to_le_bytes).concat())
            .unwrap();
        Some(Self(file))
    }

    /// Appends a datagram as a frame.
    pub fn write(
        &mut self,
        now: softrxe_proto::Time,
        source: SocketAddr,
        destination: SocketAddr,
        ip_id: u16,
        payload: &[u8],
    ) {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        let udp_length = 8 + payload.len() as u16;
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut ip = vec![0x45, 0];
                ip.extend((20 + udp_length).to_be_bytes());
                ip.extend(ip_id.to_be_bytes());
                ip.extend([0x40, 0, 64, 17, 0, 0]);
                ip.extend(from.octets());
                ip.extend(to.octets());
                let sum: u32 = ip
                    .chunks(2)
                    .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
                    .sum();
                let folded = (sum & 0xffff) + (sum >> 16);
                ip[10..12].copy_from_slice(&(!folded as u16).to_be_bytes());
                frame.extend([0x08, 0x00]);
                frame.extend(ip);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(udp_length.to_be_bytes());
                frame.extend([17, 64]);
                frame.extend(from.octets());
                frame.extend(to.octets());
            }
            _ => panic!("mixed families"),
        }
        for field in [source.port(), destination.port(), udp_length, 0] {
            frame.extend(field.to_be_bytes());
        }
        frame.extend(payload);
        let nanos = now.as_nanos();
        let length = frame.len() as u32;
        let seconds = (nanos / 1_000_000_000) as u32;
        let header = [seconds, (nanos % 1_000_000_000) as u32, length, length];
        self.0
            .write_all(&header.map(u32::to_le_bytes).concat())
            .unwrap();
        self.0.write_all(&frame).unwrap();
    }
}
