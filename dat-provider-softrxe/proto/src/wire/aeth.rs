//! Acknowledge extended transport header (IBTA 9.7.5.2).

use super::{be24, put24};

/// Code of a negative acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Nak {
    /// 0x60: a PSN is missing; the BTH has it.
    SequenceError,
    /// 0x61: the request is not valid.
    InvalidRequest,
    /// 0x62: key, bounds or right are wrong.
    RemoteAccess,
    /// 0x63: the responder failed.
    RemoteOperation,
}

/// Meaning of the syndrome byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// Positive, with a credit code (31: no credits).
    Ack(u8),
    /// No receive posted; wait for the time of the code.
    Rnr(u8),
    /// Negative.
    Nak(Nak),
}

impl Syndrome {
    /// A positive acknowledgement without end-to-end credits.
    pub const ACK: Self = Self::Ack(31);

    /// Reads the wire byte; `None` for reserved values.
    #[must_use]
    pub const fn from_wire(value: u8) -> Option<Self> {
        Some(match value {
            0x00..=0x1f => Self::Ack(value),
            0x20..=0x3f => Self::Rnr(value & 0x1f),
            0x60 => Self::Nak(Nak::SequenceError),
            0x61 => Self::Nak(Nak::InvalidRequest),
            0x62 => Self::Nak(Nak::RemoteAccess),
            0x63 => Self::Nak(Nak::RemoteOperation),
            _ => return None,
        })
    }

    /// Returns the byte on the wire.
    #[must_use]
    pub const fn to_wire(self) -> u8 {
        match self {
            Self::Ack(credit) => credit & 0x1f,
            Self::Rnr(code) => 0x20 | code & 0x1f,
            Self::Nak(Nak::SequenceError) => 0x60,
            Self::Nak(Nak::InvalidRequest) => 0x61,
            Self::Nak(Nak::RemoteAccess) => 0x62,
            Self::Nak(Nak::RemoteOperation) => 0x63,
        }
    }
}

/// Acknowledge extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aeth {
    /// Syndrome byte.
    pub syndrome: u8,
    /// Messages completed by the responder, modulo 2^24.
    pub msn: u32,
}

impl Aeth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads a header; `None` if it is cut short.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b = bytes.get(..Self::LEN)?;
        Some(Self {
            syndrome: b[0],
            msn: be24(b, 1),
        })
    }

    /// Writes the header to the front of `out`.
    pub fn emit(&self, out: &mut [u8]) {
        out[0] = self.syndrome;
        put24(out, 1, self.msn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_byte_round_trips_or_is_reserved() {
        for value in 0..=255 {
            match Syndrome::from_wire(value) {
                Some(meaning) => assert_eq!(meaning.to_wire(), value),
                None => assert!(value >= 0x40 && !(0x60..=0x63).contains(&value)),
            }
        }
    }
}
