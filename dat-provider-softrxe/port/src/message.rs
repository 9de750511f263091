//! Encodes and decodes the packets between a holder and its members. Pure.
//!
//! | from | packet | bytes |
//! |---|---|---|
//! | member | is ready for the holder's descriptors; the first packet | 3, nine zeros |
//! | member | claims a slot or service | 1, kind (0 slot, 1 service), number (8, big endian) |
//! | member | releases a slot or service | 2, kind, number |
//! | member | reports its own UDP port for data, after packet 16 | 4, seven zeros, port (2) |
//! | holder | admits a member; with the descriptors of the shared socket if both have one user | 16, its own UDP port for data (2, 0: none) |
//! | holder | answers a claim | 17, kind, number, 1: granted, 0: another process has it |
//! | holder | sends the map of its socket's receive ring, as a descriptor, after packet 16 | 19 |
//! | holder | forwards a datagram | 18, sender's address (16, IPv4 mapped), port (2), ECN, the datagram |
//!
//! Both ends may be of different releases, so neither ends a connection because of a packet that it does not understand:
//! * A packet of an unknown kind is ignored, with its descriptors, and so is a shorter packet than this table has.
//! * Zeros are not checked. Bytes and descriptors beyond this table are ignored, but not in packet 18, which ends with the datagram.
//!
//! Two things do end it: a packet without bytes, and descriptors that a member sends to a holder for all users.
//!
//! A later release may thus add packets, append to one, or use the zeros. A member that sends what the holder does not know gets no answer.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Key by which a holder forwards datagrams to a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Destination {
    /// The engine with this slot.
    Slot(u16),
    /// The listener on this service id.
    Service(u64),
}

const CLAIM: u8 = 1;
const RELEASE: u8 = 2;
const HELLO: u8 = 3;
const DATA_PORT: u8 = 4;
const WELCOME: u8 = 16;
const ANSWER: u8 = 17;
const DATAGRAM: u8 = 18;
const RING: u8 = 19;
/// Length of the header of a forwarded datagram.
const DATAGRAM_HEADER: usize = 20;
/// Length of a member's packet.
const MEMBER_PACKET: usize = 10;

/// A packet from a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FromMember {
    /// Trusts the holder and is ready for its descriptors.
    Hello,
    /// Claims a slot or service.
    Claim(Destination),
    /// Releases a slot or service.
    Release(Destination),
    /// Reports a UDP port at which the member receives data. The holder keeps it bound for a while when the member
    /// dies.
    DataPort(u16),
}

/// A packet from a holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FromHolder<'a> {
    /// Admits the member. Contains the holder's own UDP port for data, 0 if that is the shared port. A holder that
    /// sends no port does not understand [`FromMember::DataPort`].
    Welcome(Option<u16>),
    /// Answers a claim: true if granted, false if another process has it.
    Answer(Destination, bool),
    /// Comes with the map of the receive ring of the shared socket.
    Ring,
    /// Forwards a datagram that arrived at the port.
    Datagram {
        /// Address and port of the sender.
        from: SocketAddr,
        /// ECN bits.
        ecn: u8,
        /// Payload.
        datagram: &'a [u8],
    },
}

fn number(what: Destination) -> (u8, u64) {
    match what {
        Destination::Slot(slot) => (0, slot.into()),
        Destination::Service(id) => (1, id),
    }
}

fn encode_claim(kind: u8, what: Destination) -> [u8; MEMBER_PACKET] {
    let (which, number) = number(what);
    let mut bytes = [0; MEMBER_PACKET];
    bytes[0] = kind;
    bytes[1] = which;
    bytes[2..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn decode_destination(bytes: &[u8]) -> Option<Destination> {
    let number = u64::from_be_bytes(bytes.get(2..MEMBER_PACKET)?.try_into().ok()?);
    match bytes[1] {
        0 => u16::try_from(number).ok().map(Destination::Slot),
        1 => Some(Destination::Service(number)),
        _ => None,
    }
}

impl FromMember {
    /// Returns the bytes of the packet.
    #[must_use]
    pub fn encode(self) -> [u8; MEMBER_PACKET] {
        match self {
            Self::Hello => {
                let mut bytes = [0; MEMBER_PACKET];
                bytes[0] = HELLO;
                bytes
            }
            Self::Claim(what) => encode_claim(CLAIM, what),
            Self::Release(what) => encode_claim(RELEASE, what),
            Self::DataPort(port) => {
                let mut bytes = [0; MEMBER_PACKET];
                bytes[0] = DATA_PORT;
                bytes[MEMBER_PACKET - 2..].copy_from_slice(&port.to_be_bytes());
                bytes
            }
        }
    }

    /// Parses a packet; `None` for one that this release does not know.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MEMBER_PACKET] = bytes.first_chunk()?;
        match bytes[0] {
            HELLO => Some(Self::Hello),
            DATA_PORT => Some(Self::DataPort(u16::from_be_bytes([bytes[8], bytes[9]]))),
            CLAIM => decode_destination(bytes).map(Self::Claim),
            RELEASE => decode_destination(bytes).map(Self::Release),
            _ => None,
        }
    }
}

impl FromHolder<'_> {
    /// Replaces the content of `into` by the bytes of the packet.
    pub fn encode(self, into: &mut Vec<u8>) {
        into.clear();
        match self {
            Self::Welcome(port) => {
                into.push(WELCOME);
                into.extend_from_slice(port.map(u16::to_be_bytes).as_ref().map_or(&[], |b| &b[..]));
            }
            Self::Answer(what, granted) => {
                into.extend_from_slice(&encode_claim(ANSWER, what));
                into.push(granted.into());
            }
            Self::Ring => into.push(RING),
            Self::Datagram {
                from,
                ecn,
                datagram,
            } => {
                let ip = match from.ip() {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => v6,
                };
                into.push(DATAGRAM);
                into.extend_from_slice(&ip.octets());
                into.extend_from_slice(&from.port().to_be_bytes());
                into.push(ecn);
                into.extend_from_slice(datagram);
            }
        }
    }
}

impl<'a> FromHolder<'a> {
    /// Parses a packet; `None` for one that this release does not know.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        match *bytes.first()? {
            WELCOME => Some(Self::Welcome(match *bytes {
                [_, high, low, ..] => Some(u16::from_be_bytes([high, low])),
                _ => None,
            })),
            ANSWER => {
                let granted = *bytes.get(MEMBER_PACKET)?;
                Some(Self::Answer(decode_destination(bytes)?, granted == 1))
            }
            RING => Some(Self::Ring),
            DATAGRAM => {
                let (header, datagram) = bytes.split_at_checked(DATAGRAM_HEADER)?;
                let octets: [u8; 16] = header[1..17].try_into().ok()?;
                let ip = Ipv6Addr::from(octets).to_canonical();
                let port = u16::from_be_bytes([header[17], header[18]]);
                Some(Self::Datagram {
                    from: SocketAddr::new(ip, port),
                    ecn: header[19],
                    datagram,
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_survives_encoding_and_decoding() {
        let things = [
            Destination::Slot(1023),
            Destination::Service(0x0106_1b59),
            Destination::Service(u64::MAX),
        ];
        let mut bytes = Vec::new();
        for what in things {
            for said in [FromMember::Claim(what), FromMember::Release(what)] {
                assert_eq!(FromMember::decode(&said.encode()), Some(said));
            }
            for granted in [true, false] {
                let said = FromHolder::Answer(what, granted);
                said.encode(&mut bytes);
                assert_eq!(FromHolder::decode(&bytes), Some(said));
            }
        }
        let hello = FromMember::Hello;
        assert_eq!(FromMember::decode(&hello.encode()), Some(hello));
        let port = FromMember::DataPort(0x8001);
        assert_eq!(FromMember::decode(&port.encode()), Some(port));
        for port in [None, Some(0), Some(0x8001)] {
            let welcome = FromHolder::Welcome(port);
            welcome.encode(&mut bytes);
            assert_eq!(FromHolder::decode(&bytes), Some(welcome));
        }
        FromHolder::Ring.encode(&mut bytes);
        assert_eq!(FromHolder::decode(&bytes), Some(FromHolder::Ring));
        for from in ["10.1.2.3:4791", "[fd09::1]:7"] {
            let said = FromHolder::Datagram {
                from: from.parse().unwrap(),
                ecn: 3,
                datagram: b"hello",
            };
            said.encode(&mut bytes);
            assert_eq!(FromHolder::decode(&bytes), Some(said));
        }
    }

    #[test]
    fn other_bytes_are_no_packet() {
        let mut rng = fastrand::Rng::with_seed(5);
        for length in 0..64 {
            for first in 0..=u8::MAX {
                let mut bytes: Vec<u8> = (0..length).map(|_| rng.u8(..)).collect();
                if let Some(kind) = bytes.first_mut() {
                    *kind = first;
                }
                if let Some(said) = FromMember::decode(&bytes) {
                    assert!(length >= MEMBER_PACKET);
                    assert_eq!(FromMember::decode(&said.encode()), Some(said));
                }
                let _ = FromHolder::decode(&bytes);
            }
        }
        let slot = FromMember::Claim(Destination::Slot(1)).encode();
        assert_eq!(FromMember::decode(&slot[..9]), None);
        assert_eq!(FromHolder::decode(&[DATAGRAM; 19]), None);
        assert_eq!(FromHolder::decode(&[ANSWER; 10]), None);
    }
    /// A later release appends to packets, and writes where this one has zeros.
    #[test]
    fn longer_packets_are_read_as_far_as_they_are_known() {
        let what = Destination::Slot(5);
        for said in [
            FromMember::Hello,
            FromMember::Claim(what),
            FromMember::Release(what),
            FromMember::DataPort(7),
        ] {
            let longer = [&said.encode()[..], &[9; 200]].concat();
            assert_eq!(FromMember::decode(&longer), Some(said));
        }
        let hello = [HELLO, 0, 0, 0, 1, 0, 0, 0, 0, 7];
        assert_eq!(FromMember::decode(&hello), Some(FromMember::Hello));
        let port = [DATA_PORT, 1, 2, 3, 4, 5, 6, 7, 0, 7];
        assert_eq!(FromMember::decode(&port), Some(FromMember::DataPort(7)));
        let mut bytes = Vec::new();
        for said in [
            FromHolder::Welcome(Some(7)),
            FromHolder::Answer(what, true),
            FromHolder::Ring,
        ] {
            said.encode(&mut bytes);
            bytes.extend_from_slice(&[9; 200]);
            assert_eq!(FromHolder::decode(&bytes), Some(said));
        }
    }
}
