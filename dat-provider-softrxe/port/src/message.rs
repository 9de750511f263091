//! What a holder and its members say to each other, one packet each. Pure.
//!
//! | from | packet | bytes |
//! |---|---|---|
//! | member | is ready for the holder's descriptors; comes first | 3, nine zeros |
//! | member | claims a slot or service | 1, kind (0 slot, 1 service), number (8, big endian) |
//! | member | gives one back | 2, as above |
//! | member | names its own UDP port for data, after 16 | 4, seven zeros, port (2) |
//! | holder | answers that first packet, with the descriptors of the shared socket where both are of one user | 16, its own UDP port for data (2, 0: none) |
//! | holder | answers a claim | 17, kind, number, 1: granted, 0: another one has it |
//! | holder | passes a datagram on | 18, sender's address (16, IPv4 mapped), port (2), ECN, the datagram |

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// What a holder passes datagrams on by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Destination {
    /// The engine of this slot.
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
/// Bytes before a datagram that is passed on.
const ENVELOPE: usize = 20;
/// Bytes of a member's packet.
const CLAIM_BYTES: usize = 10;

/// A packet of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FromMember {
    /// Trusts the holder and is ready for its descriptors.
    Hello,
    /// Claims this.
    Claim(Destination),
    /// Gives this back.
    Release(Destination),
    /// Receives data at this UDP port too. The holder keeps it bound for a while when the member dies.
    DataPort(u16),
}

/// A packet of a holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FromHolder<'a> {
    /// The member is admitted. The holder's own UDP port for data, 0 if that is the shared one. A packet of the first
    /// length, without a port, comes from a holder that does not understand [`FromMember::DataPort`].
    Welcome(Option<u16>),
    /// The claim is granted, or another one has it.
    Answer(Destination, bool),
    /// A datagram that came to the port.
    Datagram {
        /// Its sender.
        from: SocketAddr,
        /// Its ECN bits.
        ecn: u8,
        /// Its bytes.
        datagram: &'a [u8],
    },
}

fn number(what: Destination) -> (u8, u64) {
    match what {
        Destination::Slot(slot) => (0, slot.into()),
        Destination::Service(id) => (1, id),
    }
}

fn put(kind: u8, what: Destination) -> [u8; CLAIM_BYTES] {
    let (which, number) = number(what);
    let mut bytes = [0; CLAIM_BYTES];
    bytes[0] = kind;
    bytes[1] = which;
    bytes[2..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn take(bytes: &[u8]) -> Option<Destination> {
    let number = u64::from_be_bytes(bytes.get(2..CLAIM_BYTES)?.try_into().ok()?);
    match bytes[1] {
        0 => u16::try_from(number).ok().map(Destination::Slot),
        1 => Some(Destination::Service(number)),
        _ => None,
    }
}

impl FromMember {
    /// The bytes.
    #[must_use]
    pub fn encode(self) -> [u8; CLAIM_BYTES] {
        match self {
            Self::Hello => {
                let mut bytes = [0; CLAIM_BYTES];
                bytes[0] = HELLO;
                bytes
            }
            Self::Claim(what) => put(CLAIM, what),
            Self::Release(what) => put(RELEASE, what),
            Self::DataPort(port) => {
                let mut bytes = [0; CLAIM_BYTES];
                bytes[0] = DATA_PORT;
                bytes[CLAIM_BYTES - 2..].copy_from_slice(&port.to_be_bytes());
                bytes
            }
        }
    }

    /// `None`: not one of these.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes == Self::Hello.encode() {
            return Some(Self::Hello);
        }
        if let [DATA_PORT, 0, 0, 0, 0, 0, 0, 0, high, low] = *bytes {
            return Some(Self::DataPort(u16::from_be_bytes([high, low])));
        }
        let what = take(bytes).filter(|_| bytes.len() == CLAIM_BYTES)?;
        match bytes[0] {
            CLAIM => Some(Self::Claim(what)),
            RELEASE => Some(Self::Release(what)),
            _ => None,
        }
    }
}

impl FromHolder<'_> {
    /// Puts the bytes into `into`, whose content is lost.
    pub fn encode(self, into: &mut Vec<u8>) {
        into.clear();
        match self {
            Self::Welcome(port) => {
                into.push(WELCOME);
                into.extend_from_slice(port.map(u16::to_be_bytes).as_ref().map_or(&[], |b| &b[..]));
            }
            Self::Answer(what, granted) => {
                into.extend_from_slice(&put(ANSWER, what));
                into.push(granted.into());
            }
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
    /// `None`: not one of these.
    #[must_use]
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        match *bytes.first()? {
            WELCOME => Some(Self::Welcome(match *bytes {
                [_, high, low] => Some(u16::from_be_bytes([high, low])),
                _ => None,
            })),
            ANSWER => {
                let granted = *bytes.get(CLAIM_BYTES)?;
                Some(Self::Answer(take(bytes)?, granted == 1))
            }
            DATAGRAM => {
                let (envelope, datagram) = bytes.split_at_checked(ENVELOPE)?;
                let octets: [u8; 16] = envelope[1..17].try_into().ok()?;
                let ip = Ipv6Addr::from(octets).to_canonical();
                let port = u16::from_be_bytes([envelope[17], envelope[18]]);
                Some(Self::Datagram {
                    from: SocketAddr::new(ip, port),
                    ecn: envelope[19],
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
    fn every_packet_is_read_as_it_was_written() {
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
    fn other_bytes_are_nothing() {
        let mut rng = fastrand::Rng::with_seed(5);
        for length in 0..64 {
            for first in 0..=u8::MAX {
                let mut bytes: Vec<u8> = (0..length).map(|_| rng.u8(..)).collect();
                if let Some(kind) = bytes.first_mut() {
                    *kind = first;
                }
                if let Some(said) = FromMember::decode(&bytes) {
                    assert_eq!(said.encode(), *bytes);
                }
                let _ = FromHolder::decode(&bytes);
            }
        }
        let slot = FromMember::Claim(Destination::Slot(1)).encode();
        assert_eq!(FromMember::decode(&slot[..9]), None);
        assert_eq!(FromHolder::decode(&[DATAGRAM; 19]), None);
        assert_eq!(FromHolder::decode(&[ANSWER; 10]), None);
    }
}
