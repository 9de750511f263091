//! Encoding of the messages of DAPL's scm provider: no sockets, no clock.
//!
//! REQ, REP and REJ have a fixed part of 148 bytes followed by at most 68 bytes of private data; RTU and the
//! disconnect message have four bytes. The layout is a C struct's, numbers are big endian. Version 9 is written, 6 and
//! later are read; before version 8 the fixed part had two more bytes at its end.
//!
//! One extension is ours: the field for an alternate address, which DAPL sets to zero and does not read, may hold a
//! second GID. DAPL uses the first GID; peers with this crate may prefer the second.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of the fixed part.
pub(crate) const FIXED: usize = 148;
/// Maximum length of the private data.
pub(crate) const MAX_PRIVATE: usize = 68;
/// The version that is written.
pub(crate) const VERSION: u16 = 9;
/// RTU: version and operation only.
pub(crate) const RTU: [u8; 4] = [0, 9, 0, 5];
/// The disconnect message of either side.
pub(crate) const DISCONNECT: [u8; 4] = [0, 0, 0xde, 0xad];
/// Reliable connections (`ibv_qp_type`).
pub(crate) const RELIABLE: u8 = 2;

/// Additional bytes of the fixed part in versions before [`FIRST_SHORT`].
const OLD_TAIL: usize = 2;
pub(crate) const FIRST_SHORT: u16 = 8;
const OLDEST: u16 = 6;
/// First version with `reads_in`.
const FIRST_READS: u16 = 7;
/// First version with `mtu`, and the `ibv_mtu` code that earlier versions imply.
const FIRST_MTU: u16 = 9;
const MTU_2048: u8 = 4;

const AT_LENGTH: usize = 16;
const AT_READS: usize = 28;
const AT_MTU: usize = 32;
const AT_QP: usize = 36;
const AT_SOCKET: usize = 64;
const AT_SECOND: usize = 92;
const IN_QP_LID: usize = 2;
const IN_QP_NUMBER: usize = 4;
const IN_QP_GID: usize = 8;
const IN_QP_TYPE: usize = 27;

/// Operation of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    /// REQ: connect.
    Request,
    /// REP: accepted.
    Reply,
    /// REJ by the consumer.
    RejectedByConsumer,
    /// REJ by the provider.
    RejectedByProvider,
}

impl Operation {
    const fn code(self) -> u16 {
        match self {
            Self::Request => 1,
            Self::Reply => 2,
            Self::RejectedByConsumer => 3,
            Self::RejectedByProvider => 4,
        }
    }

    const fn of(code: u16) -> Option<Self> {
        Some(match code {
            1 => Self::Request,
            2 => Self::Reply,
            3 => Self::RejectedByConsumer,
            4 => Self::RejectedByProvider,
            _ => return None,
        })
    }
}

/// A queue pair and its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QpAddress {
    pub(crate) lid: u16,
    pub(crate) qpn: u32,
    pub(crate) gid: [u8; 16],
    /// [`RELIABLE`] or another `ibv_qp_type`.
    pub(crate) kind: u8,
}

/// A REQ, REP or REJ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) version: u16,
    pub(crate) operation: Operation,
    /// RDMA Reads that the sender serves at a time; `None` before version 7.
    pub(crate) reads_in: Option<u8>,
    /// `ibv_mtu` code; `None` before version 9, which implies 2048.
    pub(crate) mtu: Option<u8>,
    pub(crate) qp: QpAddress,
    /// The sender's end of the TCP connection.
    pub(crate) socket: Option<SocketAddr>,
    /// A second GID of the queue pair; in a REP the one chosen.
    pub(crate) second_gid: Option<[u8; 16]>,
    pub(crate) private_data: Vec<u8>,
}

/// The reason why bytes are no valid message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("version {0}, not 6 or later: the peer is no DAPL scm provider")]
    Version(u16),
    #[error("operation {0}, not one of 1 to 4: the peer is no DAPL scm provider")]
    Operation(u16),
    #[error("{0} bytes of private data announced, 68 is the most")]
    PrivateData(u16),
    #[error("MTU code {0}, not one of 1 to 5")]
    Mtu(u8),
    #[error(
        "{0} bytes after the message, though the peer must wait for the answer before it sends more"
    )]
    Surplus(usize),
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn gid(bytes: &[u8], at: usize) -> [u8; 16] {
    let mut gid = [0; 16];
    gid.copy_from_slice(&bytes[at..at + 16]);
    gid
}

impl Message {
    /// Encodes as version 9. `old_tail` adds the two bytes after the fixed part that versions before 8 expect. Private
    /// data beyond [`MAX_PRIVATE`] is cut off.
    pub(crate) fn encode(&self, old_tail: bool) -> Vec<u8> {
        let private_data = &self.private_data[..self.private_data.len().min(MAX_PRIVATE)];
        let mut out = vec![0; FIXED];
        out[..2].copy_from_slice(&VERSION.to_be_bytes());
        out[2..4].copy_from_slice(&self.operation.code().to_be_bytes());
        let length = private_data.len() as u16;
        out[AT_LENGTH..AT_LENGTH + 2].copy_from_slice(&length.to_be_bytes());
        out[AT_READS] = self.reads_in.unwrap_or(0);
        out[AT_MTU] = self.mtu.unwrap_or(MTU_2048);
        let qp = &mut out[AT_QP..AT_SOCKET];
        qp[IN_QP_LID..IN_QP_LID + 2].copy_from_slice(&self.qp.lid.to_be_bytes());
        qp[IN_QP_NUMBER..IN_QP_NUMBER + 4].copy_from_slice(&self.qp.qpn.to_be_bytes());
        qp[IN_QP_GID..IN_QP_GID + 16].copy_from_slice(&self.qp.gid);
        qp[IN_QP_TYPE] = self.qp.kind;
        if let Some(address) = self.socket {
            put_socket(&mut out[AT_SOCKET..AT_SECOND], address);
        }
        if let Some(gid) = self.second_gid {
            let at = AT_SECOND + IN_QP_GID;
            out[at..at + 16].copy_from_slice(&gid);
        }
        if old_tail {
            out.extend_from_slice(&[0; OLD_TAIL]);
        }
        out.extend_from_slice(private_data);
        out
    }

    /// Decodes a complete message.
    fn decode(bytes: &[u8], private_data: &[u8]) -> Result<Self, WireError> {
        let version = be16(bytes, 0);
        let operation = be16(bytes, 2);
        let operation = Operation::of(operation).ok_or(WireError::Operation(operation))?;
        let mtu = (version >= FIRST_MTU).then_some(bytes[AT_MTU]);
        let answer = matches!(operation, Operation::Request | Operation::Reply);
        match mtu {
            Some(code) if answer && !(1..=5).contains(&code) => return Err(WireError::Mtu(code)),
            _ => {}
        }
        let second = gid(bytes, AT_SECOND + IN_QP_GID);
        Ok(Self {
            version,
            operation,
            reads_in: (version >= FIRST_READS).then_some(bytes[AT_READS]),
            mtu,
            qp: QpAddress {
                lid: be16(bytes, AT_QP + IN_QP_LID),
                qpn: u32::from_be_bytes([
                    bytes[AT_QP + IN_QP_NUMBER],
                    bytes[AT_QP + IN_QP_NUMBER + 1],
                    bytes[AT_QP + IN_QP_NUMBER + 2],
                    bytes[AT_QP + IN_QP_NUMBER + 3],
                ]),
                gid: gid(bytes, AT_QP + IN_QP_GID),
                kind: bytes[AT_QP + IN_QP_TYPE],
            },
            socket: socket(&bytes[AT_SOCKET..AT_SECOND]),
            second_gid: (second != [0; 16]).then_some(second),
            private_data: private_data.to_vec(),
        })
    }

    /// Builds the refusal of this request: DAPL sends the request back with another operation and other data.
    pub(crate) fn refusal(&self, by_consumer: bool, private_data: &[u8]) -> Self {
        Self {
            operation: if by_consumer {
                Operation::RejectedByConsumer
            } else {
                Operation::RejectedByProvider
            },
            private_data: private_data.to_vec(),
            ..self.clone()
        }
    }

    /// Returns true if the sender expects the two bytes of old versions.
    pub(crate) const fn expects_old_tail(&self) -> bool {
        self.version < FIRST_SHORT
    }

    /// Returns the greatest MTU code that the sender accepts.
    pub(crate) fn mtu_or_default(&self) -> u8 {
        self.mtu.unwrap_or(MTU_2048)
    }
}

/// Writes a `sockaddr_in` or `sockaddr_in6` in its memory layout: the family in host order.
fn put_socket(out: &mut [u8], address: SocketAddr) {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    out[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    out[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => out[4..8].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out[8..24].copy_from_slice(&ip.octets()),
    }
}

/// Reads a `sockaddr_in` or `sockaddr_in6`; `None` for another family. The family is in the peer's byte order, and less than 256.
fn socket(bytes: &[u8]) -> Option<SocketAddr> {
    let ([0, family] | [family, 0]) = [bytes[0], bytes[1]] else {
        return None;
    };
    let ip: IpAddr = match i32::from(family) {
        libc::AF_INET => Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]).into(),
        libc::AF_INET6 => Ipv6Addr::from(gid(bytes, 8)).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, be16(bytes, 2)))
}

/// Assembles a message from pieces of any size.
#[derive(Debug)]
pub(crate) struct Reader {
    bytes: [u8; Self::ROOM],
    length: usize,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            bytes: [0; Self::ROOM],
            length: 0,
        }
    }
}

impl Reader {
    /// One byte more than the longest message, to detect excess data.
    const ROOM: usize = FIXED + OLD_TAIL + MAX_PRIVATE + 1;

    /// Returns the buffer for the next bytes. The peer sends nothing after a message until it is answered, so one read
    /// can fetch all of it.
    pub(crate) fn spare(&mut self) -> &mut [u8] {
        &mut self.bytes[self.length..]
    }

    /// Records that `count` bytes were put into [`Reader::spare`].
    pub(crate) fn filled(&mut self, count: usize) {
        self.length = (self.length + count).min(Self::ROOM);
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Returns the number of missing bytes; 0 when the message is complete. Malformed data is an error as soon as it
    /// is detectable.
    fn missing(&self) -> Result<usize, WireError> {
        let bytes = self.bytes();
        if bytes.len() >= 2 && be16(bytes, 0) < OLDEST {
            return Err(WireError::Version(be16(bytes, 0)));
        }
        if bytes.len() >= 4 && Operation::of(be16(bytes, 2)).is_none() {
            return Err(WireError::Operation(be16(bytes, 2)));
        }
        if bytes.len() < FIXED {
            return Ok(FIXED - bytes.len());
        }
        let length = be16(bytes, AT_LENGTH);
        if usize::from(length) > MAX_PRIVATE {
            return Err(WireError::PrivateData(length));
        }
        let whole = self.fixed() + usize::from(length);
        match bytes.len().checked_sub(whole) {
            None => Ok(whole - bytes.len()),
            Some(0) => Ok(0),
            Some(surplus) => Err(WireError::Surplus(surplus)),
        }
    }

    /// Returns true if no bytes were received.
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the message when it is complete, the error as soon as it is detectable.
    pub(crate) fn message(&self) -> Result<Option<Message>, WireError> {
        if self.missing()? > 0 {
            return Ok(None);
        }
        let (fixed, private_data) = self.bytes().split_at(self.fixed());
        Message::decode(fixed, private_data).map(Some)
    }

    /// Returns the length of the part before the private data.
    fn fixed(&self) -> usize {
        if be16(&self.bytes[..], 0) < FIRST_SHORT {
            FIXED + OLD_TAIL
        } else {
            FIXED
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded between two `dtest` over Debian's libdaploscm.so.2 on rxe: REQ and REP.
    const RECORDED: [&str; 2] = [
        "0009000100000000000000000000000000300000000000000000000004000000030000000000000000000014fe80000000000000\
         906d1efffe6b8002000000020200c1600a0900010000000000000000000000000000000000000000000000000000000000000000\
         00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000102030405060708\
         090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f30",
        "0009000200000000000000000000000000300000000000000000000004000000030000000000000000000012fe80000000000000\
         906d1efffe6b8002000000020200b4a80a0900010000000000000000000000000000000000000000000000000000000000000000\
         00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000203040506070809\
         0a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031",
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    /// Reads `bytes` in pieces of `piece` bytes until there is a message or an error.
    fn read(bytes: &[u8], piece: usize) -> Result<Option<Message>, WireError> {
        let mut reader = Reader::default();
        let mut rest = bytes;
        loop {
            let message = reader.message()?;
            let room = reader.spare();
            let taken = piece.min(room.len()).min(rest.len());
            if taken == 0 || message.is_some() {
                return Ok(message);
            }
            room[..taken].copy_from_slice(&rest[..taken]);
            reader.filled(taken);
            rest = &rest[taken..];
        }
    }

    fn whole(bytes: &[u8]) -> Message {
        read(bytes, 4096).unwrap().unwrap()
    }

    #[test]
    fn what_dapl_sends_is_read_and_written_byte_by_byte() {
        let gid = [
            0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x90, 0x6d, 0x1e, 0xff, 0xfe, 0x6b, 0x80, 0x02,
        ];
        // The peer's host has the family of a socket address in its own byte order, and the recorded ones are of x86-64.
        let own_order = |mut bytes: Vec<u8>| {
            bytes[AT_SOCKET..AT_SOCKET + 2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            bytes
        };
        for (hex, operation, qpn, port, first) in [
            (RECORDED[0], Operation::Request, 0x14, 0xc160, 1),
            (RECORDED[1], Operation::Reply, 0x12, 0xb4a8, 2),
        ] {
            let bytes = bytes(hex);
            let message = whole(&bytes);
            let expected = Message {
                version: 9,
                operation,
                reads_in: Some(4),
                mtu: Some(3),
                qp: QpAddress {
                    lid: 0,
                    qpn,
                    gid,
                    kind: RELIABLE,
                },
                socket: Some(SocketAddr::from(([10, 9, 0, 1], port))),
                second_gid: None,
                private_data: (first..first + 48).collect(),
            };
            assert_eq!(message, expected);
            assert_eq!(message.encode(false), own_order(bytes.clone()));
            let mut other_order = bytes;
            other_order[AT_SOCKET..AT_SOCKET + 2].reverse();
            assert_eq!(whole(&other_order), expected);
        }
    }

    #[test]
    fn pieces_of_any_size_make_the_same_message_and_nothing_may_follow() {
        let mut bytes = bytes(RECORDED[0]);
        let message = whole(&bytes);
        for piece in 1..=bytes.len() {
            assert_eq!(read(&bytes, piece), Ok(Some(message.clone())));
        }
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut], 4096), Ok(None), "{cut} bytes");
        }
        bytes.extend_from_slice(&DISCONNECT);
        assert_eq!(read(&bytes, 4096), Err(WireError::Surplus(4)));
        bytes.resize(1000, 0);
        assert_eq!(read(&bytes, 4096), Err(WireError::Surplus(23)));
    }

    #[test]
    fn before_version_8_two_bytes_more_come_first() {
        let mut pre_v8 = bytes(RECORDED[0]);
        pre_v8.splice(FIXED..FIXED, [0xff, 0xff]);
        for (version, reads_in) in [(6, None), (7, Some(4))] {
            pre_v8[1] = version;
            let message = whole(&pre_v8);
            assert_eq!(message.private_data[..3], [1, 2, 3], "version {version}");
            assert_eq!((message.reads_in, message.mtu), (reads_in, None));
            assert_eq!(message.mtu_or_default(), MTU_2048);
            assert!(message.expects_old_tail());
            let answer = message.refusal(false, &[9]).encode(true);
            assert_eq!((answer.len(), answer[FIXED + OLD_TAIL]), (FIXED + 3, 9));
        }
        let message = whole(&bytes(RECORDED[0]));
        assert!(!message.expects_old_tail());
    }

    #[test]
    fn a_refusal_sends_the_request_back() {
        let request = bytes(RECORDED[0]);
        for (by_consumer, code) in [(true, 3), (false, 4)] {
            let refusal = whole(&request).refusal(by_consumer, b"no").encode(false);
            let mut expected = request[..FIXED].to_vec();
            expected[3] = code;
            expected[AT_LENGTH + 1] = 2;
            expected.extend_from_slice(b"no");
            expected[AT_SOCKET..AT_SOCKET + 2]
                .copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            assert_eq!(refusal, expected);
        }
    }

    #[test]
    fn a_second_gid_and_ipv6_ends_go_there_and_back() {
        let mut message = whole(&bytes(RECORDED[0]));
        message.second_gid = Some(*b"0123456789abcdef");
        message.socket = Some("[fd09::1]:46248".parse().unwrap());
        assert_eq!(whole(&message.encode(false)), message);
        assert_eq!(socket(&[0; 28]), None);
    }

    #[test]
    fn private_data_fits_up_to_its_limit() {
        let mut message = whole(&bytes(RECORDED[0]));
        message.private_data = vec![7; MAX_PRIVATE];
        assert_eq!(whole(&message.encode(false)), message);
        message.private_data.push(8);
        assert_eq!(
            whole(&message.encode(false)).private_data,
            [7; MAX_PRIVATE],
            "cut off"
        );
    }

    #[test]
    fn nonsense_is_found_at_once() {
        let good = bytes(RECORDED[0]);
        let with = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            read(&bytes, 4096)
        };
        assert_eq!(with(1, 5), Err(WireError::Version(5)));
        assert_eq!(with(3, 0), Err(WireError::Operation(0)));
        assert_eq!(with(3, 5), Err(WireError::Operation(5)));
        assert_eq!(with(AT_LENGTH + 1, 69), Err(WireError::PrivateData(69)));
        assert_eq!(with(AT_MTU, 0), Err(WireError::Mtu(0)));
        assert_eq!(with(AT_MTU, 6), Err(WireError::Mtu(6)));
        assert_eq!(
            read(b"GET / HTTP/1.1\r\n", 2).unwrap_err(),
            WireError::Operation(0x5420),
            "a browser"
        );
        assert_eq!(read(&DISCONNECT, 4), Err(WireError::Version(0)));
    }

    #[test]
    fn no_bytes_make_it_panic_or_want_too_much() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let good = bytes(RECORDED[0]);
        let mut seen = [0; 3];
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            bytes.resize(random() as usize % 300, 0xa5);
            for _ in 0..random() % 8 {
                let at = random() as usize % bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random() as u8;
                }
            }
            match read(&bytes, 1 + random() as usize % 64) {
                Ok(Some(message)) => {
                    assert!(message.private_data.len() <= MAX_PRIVATE);
                    seen[0] += 1;
                }
                Ok(None) => seen[1] += 1,
                Err(_) => seen[2] += 1,
            }
        }
        assert!(seen.iter().all(|n| *n > 100), "{seen:?}");
    }
}
