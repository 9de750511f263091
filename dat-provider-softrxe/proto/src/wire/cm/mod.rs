//! Messages of the connection manager (IBTA 12.6), one file per message.
//!
//! Each message is the 232 bytes after the [`MadHeader`]. Private data has the full length of its field; the used length is
//! not on the wire.

mod drep;
mod dreq;
mod mra;
mod rej;
mod rep;
mod req;
mod rtu;
mod sidr_rep;
mod sidr_req;

pub use drep::Drep;
pub use dreq::Dreq;
pub use mra::Mra;
pub use rej::Rej;
pub use rep::Rep;
pub use req::{CmPath, Req};
pub use rtu::Rtu;
pub use sidr_rep::SidrRep;
pub use sidr_req::SidrReq;

use super::MadHeader;

/// Bytes of a message.
pub const LEN: usize = MadHeader::MAD_LEN - MadHeader::LEN;

/// The bytes of a message.
pub type Body = [u8; LEN];

/// Which message an MRA or REJ answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Answered {
    /// A REQ.
    Req = 0,
    /// A REP.
    Rep = 1,
    /// Another, or none.
    Other = 2,
}

impl Answered {
    const fn from_wire(value: u8) -> Self {
        match value {
            0 => Self::Req,
            1 => Self::Rep,
            _ => Self::Other,
        }
    }
}

/// A message of the connection manager.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "lives on the stack for the length of one call"
)]
pub enum CmMessage {
    /// Request for communication.
    Req(Req),
    /// Message receipt acknowledgement.
    Mra(Mra),
    /// Reject.
    Rej(Rej),
    /// Reply to a request.
    Rep(Rep),
    /// Ready to use.
    Rtu(Rtu),
    /// Disconnection request.
    Dreq(Dreq),
    /// Disconnection reply.
    Drep(Drep),
    /// Service id resolution request.
    SidrReq(SidrReq),
    /// Service id resolution response.
    SidrRep(SidrRep),
}

impl CmMessage {
    /// Reads the message with this attribute id; `None` for an unknown one.
    #[must_use]
    pub fn parse(attribute_id: u16, body: &Body) -> Option<Self> {
        Some(match attribute_id {
            0x10 => Self::Req(Req::parse(body)),
            0x11 => Self::Mra(Mra::parse(body)),
            0x12 => Self::Rej(Rej::parse(body)),
            0x13 => Self::Rep(Rep::parse(body)),
            0x14 => Self::Rtu(Rtu::parse(body)),
            0x15 => Self::Dreq(Dreq::parse(body)),
            0x16 => Self::Drep(Drep::parse(body)),
            0x17 => Self::SidrReq(SidrReq::parse(body)),
            0x18 => Self::SidrRep(SidrRep::parse(body)),
            _ => return None,
        })
    }

    /// Returns the attribute id of the message.
    #[must_use]
    pub const fn attribute_id(&self) -> u16 {
        match self {
            Self::Req(_) => 0x10,
            Self::Mra(_) => 0x11,
            Self::Rej(_) => 0x12,
            Self::Rep(_) => 0x13,
            Self::Rtu(_) => 0x14,
            Self::Dreq(_) => 0x15,
            Self::Drep(_) => 0x16,
            Self::SidrReq(_) => 0x17,
            Self::SidrRep(_) => 0x18,
        }
    }

    /// Returns the message's bytes.
    #[must_use]
    pub fn emit(&self) -> Body {
        let mut body = [0; LEN];
        match self {
            Self::Req(m) => m.emit(&mut body),
            Self::Mra(m) => m.emit(&mut body),
            Self::Rej(m) => m.emit(&mut body),
            Self::Rep(m) => m.emit(&mut body),
            Self::Rtu(m) => m.emit(&mut body),
            Self::Dreq(m) => m.emit(&mut body),
            Self::Drep(m) => m.emit(&mut body),
            Self::SidrReq(m) => m.emit(&mut body),
            Self::SidrRep(m) => m.emit(&mut body),
        }
        body
    }
}

/// Returns `data` in a private data field: filled up with zeros, or truncated.
#[must_use]
pub fn private_data<const N: usize>(data: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    let length = data.len().min(N);
    field[..length].copy_from_slice(&data[..length]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a message says is also what it writes, field by field.
    #[test]
    fn every_field_that_is_read_is_written() {
        for id in 0x10..=0x18 {
            let bodies: [Body; 3] = [
                [0xff; LEN],
                std::array::from_fn(|i| i as u8),
                std::array::from_fn(|i| !(i as u8).reverse_bits()),
            ];
            for body in bodies {
                let message = CmMessage::parse(id, &body).unwrap();
                assert_eq!(message.attribute_id(), id);
                assert_eq!(CmMessage::parse(id, &message.emit()), Some(message));
            }
        }
    }
}
