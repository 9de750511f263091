//! The messages of DAPL's scm provider, which `cm=socket` exchanges over TCP.
//!
//! REQ, REP and REJ have a fixed part of 148 bytes followed by at most 68 bytes of private data; RTU and the
//! disconnect message have four bytes. The layout is a C struct's, numbers are big endian. Version 9 is written, 6 and
//! later are read; before version 8 the fixed part had two more bytes at its end.
//!
//! One extension is ours: the field for an alternate address, which DAPL sets to zero and does not read, may hold a
//! second GID. DAPL uses the first GID; peers with this crate may prefer the second.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of the fixed part.
pub const FIXED: usize = 148;
/// Maximum length of the private data.
pub const MAX_PRIVATE: usize = 68;
/// The version that is written.
pub const VERSION: u16 = 9;
/// RTU: version and operation only.
pub const RTU: [u8; 4] = [0, 9, 0, 5];
/// The disconnect message of either side.
pub const DISCONNECT: [u8; 4] = [0, 0, 0xde, 0xad];
/// Reliable connections (`ibv_qp_type`).
pub const RELIABLE: u8 = 2;

/// Additional bytes of the fixed part in versions before [`FIRST_SHORT`].
const OLD_TAIL: usize = 2;
/// First version without them.
pub const FIRST_SHORT: u16 = 8;
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
pub enum Operation {
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
pub struct QpAddress {
    /// LID of the port; 0 over Ethernet.
    pub lid: u16,
    /// Queue pair number.
    pub qpn: u32,
    /// GID that the queue pair sends from.
    pub gid: [u8; 16],
    /// [`RELIABLE`] or another `ibv_qp_type`.
    pub kind: u8,
}

/// A REQ, REP or REJ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Version of the message.
    pub version: u16,
    /// What it is.
    pub operation: Operation,
    /// RDMA Reads that the sender serves at a time; `None` before version 7.
    pub reads_in: Option<u8>,
    /// `ibv_mtu` code; `None` before version 9, which implies 2048.
    pub mtu: Option<u8>,
    /// The sender's queue pair.
    pub qp: QpAddress,
    /// The sender's end of the TCP connection.
    pub socket: Option<SocketAddr>,
    /// A second GID of the queue pair; in a REP the one chosen.
    pub second_gid: Option<[u8; 16]>,
    /// Private data of the consumer, 68 bytes at most.
    pub private_data: Vec<u8>,
}

/// The reason why bytes are no valid message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// A version that no scm provider in use has.
    #[error("version {0}, not 6 or later: the peer is no DAPL scm provider")]
    Version(u16),
    /// An operation that is none.
    #[error("operation {0}, not one of 1 to 4: the peer is no DAPL scm provider")]
    Operation(u16),
    /// More private data than a message has room for.
    #[error("{0} bytes of private data announced, 68 is the most")]
    PrivateData(u16),
    /// An MTU that is none.
    #[error("MTU code {0}, not one of 1 to 5")]
    Mtu(u8),
    /// Bytes behind the message.
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
    #[must_use]
    pub fn encode(&self, old_tail: bool) -> Vec<u8> {
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
    pub fn refusal(&self, by_consumer: bool, private_data: &[u8]) -> Self {
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
    pub const fn expects_old_tail(&self) -> bool {
        self.version < FIRST_SHORT
    }

    /// Returns the greatest MTU code that the sender accepts.
    pub fn mtu_or_default(&self) -> u8 {
        self.mtu.unwrap_or(MTU_2048)
    }
}

/// Families of addresses, as Linux numbers them.
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Writes a `sockaddr_in` or `sockaddr_in6` in its memory layout: the family in host order.
fn put_socket(out: &mut [u8], address: SocketAddr) {
    let family = if address.is_ipv4() { AF_INET } else { AF_INET6 };
    out[..2].copy_from_slice(&u16::from(family).to_ne_bytes());
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
    let ip: IpAddr = match family {
        AF_INET => Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]).into(),
        AF_INET6 => Ipv6Addr::from(gid(bytes, 8)).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, be16(bytes, 2)))
}

/// Assembles a message from pieces of any size.
#[derive(Debug)]
pub struct Reader {
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
    pub fn spare(&mut self) -> &mut [u8] {
        &mut self.bytes[self.length..]
    }

    /// Records that `count` bytes were put into [`Reader::spare`].
    pub fn filled(&mut self, count: usize) {
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
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the message when it is complete, the error as soon as it is detectable.
    pub fn message(&self) -> Result<Option<Message>, WireError> {
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
mod tests;
