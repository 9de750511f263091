//! A whole packet: BTH, extended headers, payload, padding. [`icrc`] handles the ICRC.

use super::{Aeth, AtomicEth, Bth, Deth, Reth, atomicack, icrc, ieth, immdt};
use crate::near;
use crate::opcode::Opcode;
use crate::psn::Psn;

/// Extended headers of a packet; the opcode determines which are present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Headers {
    /// Datagram header.
    pub deth: Option<Deth>,
    /// RDMA header.
    pub reth: Option<Reth>,
    /// Atomic header.
    pub atomic: Option<AtomicEth>,
    /// Acknowledge header.
    pub aeth: Option<Aeth>,
    /// Result of an atomic.
    pub original: Option<u64>,
    /// Immediate data.
    pub immediate: Option<[u8; 4]>,
    /// Key to invalidate.
    pub invalidate: Option<u32>,
}

/// Reason to reject bytes as a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// The datagram is too short for the headers of its opcode.
    #[error("datagram of {0} bytes is too short for its headers")]
    Truncated(usize),
    /// The opcode is unknown.
    #[error("opcode {0:#04x} is not known")]
    Opcode(u8),
    /// The transport header version is not 0.
    #[error("transport header version {0} is not 0")]
    Version(u8),
    /// The padding is longer than the payload, or the length is not a multiple of four.
    #[error("padding of {0} bytes does not fit the datagram")]
    Padding(u8),
}

/// A packet, borrowed from a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Base header.
    pub bth: Bth,
    /// The BTH's opcode.
    pub opcode: Opcode,
    /// Extended headers.
    pub headers: Headers,
    /// Payload without padding.
    pub payload: &'a [u8],
}

/// Largest length of BTH and extended headers (CmpSwap).
pub const MAX_HEADERS: usize = Bth::LEN + AtomicEth::LEN;

/// Takes `parse`'s header from the front of `rest`.
fn take<T>(rest: &mut &[u8], length: usize, parse: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    let header = parse(rest)?;
    *rest = &rest[length..];
    Some(header)
}

/// Takes the [acknowledgement](near::ACK_FLAG) that the BTH of `transport` may announce from the front of `rest`, which follows the headers.
/// `None`: it is missing.
pub(crate) fn take_acknowledgement(transport: &[u8], rest: &mut &[u8]) -> Option<Option<Psn>> {
    let (at, mask) = near::ACK_FLAG;
    if transport.get(at)? & mask == 0 {
        return Some(None);
    }
    let parse = |b: &[u8]| Some(Psn::new(u32::from_be_bytes(*b.first_chunk()?)));
    take(rest, near::ACK_LEN, parse).map(Some)
}

impl Headers {
    fn parse(opcode: Opcode, rest: &mut &[u8]) -> Option<Self> {
        let mut headers = Self::default();
        if opcode.has_deth() {
            headers.deth = Some(take(rest, Deth::LEN, Deth::parse)?);
        }
        if opcode.has_reth() {
            headers.reth = Some(take(rest, Reth::LEN, Reth::parse)?);
        }
        if opcode.has_atomic() {
            headers.atomic = Some(take(rest, AtomicEth::LEN, AtomicEth::parse)?);
        }
        if opcode.has_aeth() {
            headers.aeth = Some(take(rest, Aeth::LEN, Aeth::parse)?);
        }
        if opcode == Opcode::AtomicAcknowledge {
            headers.original = Some(take(rest, atomicack::LEN, atomicack::parse)?);
        }
        if opcode.has_immediate() {
            headers.immediate = Some(take(rest, immdt::LEN, immdt::parse)?);
        }
        if opcode.has_invalidate() {
            headers.invalidate = Some(take(rest, ieth::LEN, ieth::parse)?);
        }
        Some(headers)
    }

    /// Returns the length of the headers.
    #[must_use]
    pub fn length(&self) -> usize {
        let part = |there: bool, length: usize| if there { length } else { 0 };
        part(self.deth.is_some(), Deth::LEN)
            + part(self.reth.is_some(), Reth::LEN)
            + part(self.atomic.is_some(), AtomicEth::LEN)
            + part(self.aeth.is_some(), Aeth::LEN)
            + part(self.original.is_some(), atomicack::LEN)
            + part(self.immediate.is_some(), immdt::LEN)
            + part(self.invalidate.is_some(), ieth::LEN)
    }

    /// Writes the headers that are present, in wire order. Returns their length.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut at = 0;
        if let Some(deth) = &self.deth {
            deth.emit(&mut out[at..]);
            at += Deth::LEN;
        }
        if let Some(reth) = &self.reth {
            reth.emit(&mut out[at..]);
            at += Reth::LEN;
        }
        if let Some(atomic) = &self.atomic {
            atomic.emit(&mut out[at..]);
            at += AtomicEth::LEN;
        }
        if let Some(aeth) = &self.aeth {
            aeth.emit(&mut out[at..]);
            at += Aeth::LEN;
        }
        if let Some(original) = self.original {
            atomicack::emit(original, &mut out[at..]);
            at += atomicack::LEN;
        }
        if let Some(immediate) = self.immediate {
            immdt::emit(immediate, &mut out[at..]);
            at += immdt::LEN;
        }
        if let Some(rkey) = self.invalidate {
            ieth::emit(rkey, &mut out[at..]);
            at += ieth::LEN;
        }
        at
    }
}

/// Transport headers of a record.
pub(crate) struct RecordHeaders {
    pub(crate) bth: Bth,
    pub(crate) opcode: Opcode,
    pub(crate) headers: Headers,
    /// The newest PSN that an acknowledgement at the end covers.
    pub(crate) acknowledged: Option<Psn>,
}

impl RecordHeaders {
    /// Reads the headers, which fill `bytes`.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bth = Bth::parse(bytes).filter(|bth| bth.version == 0 && bth.pad == 0)?;
        let opcode = Opcode::from_wire(bth.opcode)?;
        let mut rest = &bytes[Bth::LEN..];
        let headers = Headers::parse(opcode, &mut rest)?;
        let acknowledged = take_acknowledgement(bytes, &mut rest)?;
        rest.is_empty().then_some(Self {
            bth,
            opcode,
            headers,
            acknowledged,
        })
    }
}

impl<'a> Packet<'a> {
    /// Reads the UDP payload `datagram`, BTH to ICRC. The ICRC is not checked.
    ///
    /// # Errors
    /// See [`ParseError`].
    pub fn parse(datagram: &'a [u8]) -> Result<Self, ParseError> {
        let truncated = ParseError::Truncated(datagram.len());
        let end = datagram.len().checked_sub(icrc::LEN).ok_or(truncated)?;
        let bth = Bth::parse(&datagram[..end]).ok_or(truncated)?;
        if bth.version != 0 {
            return Err(ParseError::Version(bth.version));
        }
        let opcode = Opcode::from_wire(bth.opcode).ok_or(ParseError::Opcode(bth.opcode))?;
        let mut rest = &datagram[Bth::LEN..end];
        let headers = Headers::parse(opcode, &mut rest).ok_or(truncated)?;
        let length = rest.len().checked_sub(usize::from(bth.pad));
        let length = length.filter(|_| rest.len().is_multiple_of(4));
        let payload = &rest[..length.ok_or(ParseError::Padding(bth.pad))?];
        Ok(Self {
            bth,
            opcode,
            headers,
            payload,
        })
    }

    /// Writes everything up to the ICRC. Returns its length. `out` has room for [`MAX_HEADERS`], payload and pad.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        self.bth.emit(out);
        let start = Bth::LEN + self.headers.emit(&mut out[Bth::LEN..]);
        let end = start + self.payload.len();
        out[start..end].copy_from_slice(self.payload);
        let padded = end + usize::from(self.bth.pad);
        out[end..padded].fill(0);
        padded
    }
}

/// Returns the bytes of padding after a payload of `length` bytes.
#[must_use]
pub const fn pad(length: usize) -> u8 {
    (length.wrapping_neg() & 3) as u8
}
