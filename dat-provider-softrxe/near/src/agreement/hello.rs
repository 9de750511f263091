//! The packet that opens a channel. All numbers are in the byte order of the machine: both ends are on it.
//!
//! | offset | content |
//! |---|---|
//! | 0 | magic number |
//! | 8 | `version: u16` |
//! | 10 | kind: 0 call, 1 answer, 2 refusal |
//! | 11 | reason of a refusal, else 0 |
//! | 12 | slot of the sender |
//! | 14 | 0 |
//! | 16 | size of a ring, `u32` |
//! | 20 | MTU, `u32` |
//! | 24 | CA GUID of the sender |
//! | 32 | CA GUID of the addressee |
//! | 40 | address of the sender, IPv4 in IPv6's mapped form |
//! | 56 | event descriptors: in a call 1 if they may come with the answer, in an answer 1 if they do |
//! | 57 | 0 |
//! | 58 | UDP port that the sender's engine sends from |
//! | 60 | 0 |

use std::net::{IpAddr, Ipv6Addr};

use super::{End, Offer};
use crate::channel::mtu;
use crate::layout::CONTROL;

/// Length of the packet.
pub const LENGTH: usize = 64;
const MAGIC: [u8; 8] = *b"dat-near";
/// Version of packet, memory and protocol. Every version has magic number, version, kind and reason where this one has
/// them. The memory has another layout for processors with large pages ([`CONTROL`]), and so another version: an emulator may bring both to
/// one host.
const VERSION: u16 = 7 | ((CONTROL > 4096) as u16) << 14;

/// Why a call is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reason {
    /// The packet is not one of this version.
    #[error("it does not understand this version of the agreement")]
    Version,
    /// The addressee has another GUID.
    #[error("it is not the engine that was called")]
    Addressee,
    /// Both dialled, and the call in the other direction goes on.
    #[error("its own call goes first")]
    Crossed,
    /// The two engines have a channel already.
    #[error("it has a channel to this engine already")]
    Busy,
    /// The process has too many channels, or lacks memory or descriptors.
    #[error("it has no room for another channel")]
    Full,
    /// A reason of another version.
    #[error("it gives the unknown reason {0}")]
    Unknown(u8),
}

impl Reason {
    const fn code(self) -> u8 {
        match self {
            Self::Version => 1,
            Self::Addressee => 2,
            Self::Crossed => 3,
            Self::Busy => 4,
            Self::Full => 5,
            Self::Unknown(code) => code,
        }
    }

    const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Version,
            2 => Self::Addressee,
            3 => Self::Crossed,
            4 => Self::Busy,
            5 => Self::Full,
            code => Self::Unknown(code),
        }
    }
}

/// Content of a call or an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The sender.
    pub from: End,
    /// CA GUID of the addressee.
    pub to: u64,
    /// Size of the rings: in a call the largest one, in an answer the one of the memory.
    pub ring: u32,
    /// Maximum length of a payload.
    pub mtu: u32,
    /// In a call: event descriptors may come with the answer. In an answer: they do.
    pub events: bool,
    /// UDP port that the sender's engine sends from.
    pub port: u16,
}

impl Hello {
    /// Returns the HELLO of `from` with an offer.
    #[must_use]
    pub const fn new(from: End, to: u64, offer: Offer) -> Self {
        Self {
            from,
            to,
            ring: offer.ring as u32,
            mtu: mtu(offer.ring) as u32,
            events: offer.events,
            port: offer.port,
        }
    }
}

/// A packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet {
    /// The dialler's.
    Call(Hello),
    /// The answer, with which the memory comes.
    Answer(Hello),
    /// The call is refused.
    Refusal(Reason),
}

/// Why bytes are no packet of an agreement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HelloError {
    /// Another program, or a fault.
    #[error("a packet of {0} bytes is no HELLO: another program has the name")]
    Foreign(usize),
    /// Another version of the library.
    #[error(
        "a HELLO of version {0}, where this library has version {VERSION}: use one version of the library on a host"
    )]
    Version(u16),
    /// This version in the other byte order: one of the processes is run by an emulator of another processor.
    #[error("a HELLO in the other byte order: the process is of another processor")]
    ByteOrder,
    /// A value that no process of this version sends.
    #[error("a HELLO with the wrong {name} {value}")]
    Value {
        /// What is wrong.
        name: &'static str,
        /// Its value.
        value: u64,
    },
}

/// Returns the `N` bytes at `at`.
fn part<const N: usize>(bytes: &[u8; LENGTH], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}

impl Packet {
    /// Returns the packet's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &MAGIC);
        put(8, &VERSION.to_ne_bytes());
        let (kind, hello) = match self {
            Self::Call(hello) => (0, hello),
            Self::Answer(hello) => (1, hello),
            Self::Refusal(reason) => {
                put(10, &[2, reason.code()]);
                return bytes;
            }
        };
        put(10, &[kind]);
        put(12, &hello.from.slot.to_ne_bytes());
        put(16, &hello.ring.to_ne_bytes());
        put(20, &hello.mtu.to_ne_bytes());
        put(24, &hello.from.guid.to_ne_bytes());
        put(32, &hello.to.to_ne_bytes());
        let ip = match hello.from.ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        put(40, &ip.octets());
        put(56, &[hello.events.into()]);
        put(58, &hello.port.to_ne_bytes());
        bytes
    }

    /// Parses a packet.
    ///
    /// # Errors
    /// [`HelloError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, HelloError> {
        let foreign = HelloError::Foreign(bytes.len());
        let bytes: &[u8; LENGTH] = bytes.try_into().map_err(|_| foreign)?;
        if bytes[..MAGIC.len()] != MAGIC {
            return Err(foreign);
        }
        let kind = bytes[10];
        if kind == 2 {
            return Ok(Self::Refusal(Reason::from_code(bytes[11])));
        }
        let version = u16::from_ne_bytes(part(bytes, 8));
        if version == VERSION.swap_bytes() {
            return Err(HelloError::ByteOrder);
        }
        if version != VERSION {
            return Err(HelloError::Version(version));
        }
        let hello = Hello {
            from: End {
                ip: Ipv6Addr::from(part::<16>(bytes, 40)).to_canonical(),
                slot: u16::from_ne_bytes(part(bytes, 12)),
                guid: u64::from_ne_bytes(part(bytes, 24)),
            },
            to: u64::from_ne_bytes(part(bytes, 32)),
            ring: u32::from_ne_bytes(part(bytes, 16)),
            mtu: u32::from_ne_bytes(part(bytes, 20)),
            events: bytes[56] != 0,
            port: u16::from_ne_bytes(part(bytes, 58)),
        };
        let wrong = |name, value| Err(HelloError::Value { name, value });
        if hello.mtu as usize != mtu(hello.ring as usize) {
            return wrong("MTU", hello.mtu.into());
        }
        if bytes[56] > 1 {
            return wrong("offer of event descriptors", bytes[56].into());
        }
        match kind {
            0 => Ok(Self::Call(hello)),
            1 => Ok(Self::Answer(hello)),
            kind => wrong("kind", kind.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(ip: &str) -> Hello {
        let ip = ip.parse().unwrap();
        let (slot, guid) = (0x0102, 0x1112_1314_1516_1718);
        let offer = Offer::new(65_536, 0x3132);
        Hello::new(End { ip, slot, guid }, 0x2122_2324_2526_2728, offer)
    }

    #[test]
    fn a_packet_is_decoded_as_it_was_encoded() {
        for ip in ["127.0.0.1", "::1", "2001:db8::7"] {
            for packet in [Packet::Call(hello(ip)), Packet::Answer(hello(ip))] {
                assert_eq!(Packet::decode(&packet.encode()), Ok(packet));
            }
        }
        for code in 0..=u8::MAX {
            let packet = Packet::Refusal(Reason::from_code(code));
            assert_eq!(Packet::decode(&packet.encode()), Ok(packet));
            assert_eq!(packet.encode()[11], code);
        }
    }

    #[test]
    fn the_parts_that_all_versions_share_stay_where_they_are() {
        let call = Packet::Call(hello("127.0.0.1")).encode();
        assert_eq!(call[..8], *b"dat-near");
        assert_eq!(
            call[8..12],
            [VERSION.to_ne_bytes()[0], VERSION.to_ne_bytes()[1], 0, 0]
        );
        let mut refusal = Packet::Refusal(Reason::Version).encode();
        assert_eq!(refusal[10..12], [2, 1]);
        refusal[8..10].copy_from_slice(&99_u16.to_ne_bytes());
        assert_eq!(
            Packet::decode(&refusal),
            Ok(Packet::Refusal(Reason::Version))
        );
    }

    #[test]
    fn other_bytes_are_refused_with_their_values() {
        let good = Packet::Call(hello("127.0.0.1")).encode();
        let with = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            Packet::decode(&bytes).unwrap_err()
        };
        assert_eq!(Packet::decode(&good[1..]), Err(HelloError::Foreign(63)));
        assert_eq!(Packet::decode(&[0; 65]), Err(HelloError::Foreign(65)));
        assert_eq!(with(0, 0), HelloError::Foreign(64));
        let [first, _] = VERSION.to_ne_bytes();
        let version = u16::from_ne_bytes([first, 1]);
        assert_eq!(with(9, 1), HelloError::Version(version));
        let mut swapped = good;
        swapped[8..10].reverse();
        assert_eq!(Packet::decode(&swapped), Err(HelloError::ByteOrder));
        assert!(matches!(
            with(10, 3),
            HelloError::Value {
                name: "kind",
                value: 3
            }
        ));
        let mut odd = good;
        odd[20..24].copy_from_slice(&8193_u32.to_ne_bytes());
        assert!(matches!(
            Packet::decode(&odd),
            Err(HelloError::Value {
                name: "MTU",
                value: 8193
            })
        ));
        assert!(matches!(
            with(56, 2),
            HelloError::Value {
                name: "offer of event descriptors",
                value: 2
            }
        ));
    }
}
