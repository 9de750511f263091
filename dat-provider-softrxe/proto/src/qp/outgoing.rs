//! A packet to be written.

use std::net::SocketAddr;

use crc32fast::Hasher;

use crate::memory::{Access, AccessError, Memory, Rights};
use crate::near::{self, NearOut};
use crate::qp::ring::{for_each_part, in_one_part};
use crate::wire::{Bth, Headers, icrc, packet};
use crate::work::Sge;

/// Shortest payload that the engine asks to be [lent](Memory::lend). The driver may have a higher limit.
const MIN_LENT: usize = 256;

/// Location of a packet's payload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload {
    /// No payload.
    Empty,
    /// SGEs of send request `seq`, from this offset of the message. `may_lend`: first transmission; the consumer may still
    /// change the bytes, then the ICRC is wrong and the packet is repeated.
    Request {
        seq: u32,
        offset: u32,
        may_lend: bool,
    },
    /// Memory that a peer reads.
    Remote { access: Access, va: u64 },
}

/// A packet to be written: everything but its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) destination: SocketAddr,
    pub(crate) bth: Bth,
    pub(crate) headers: Headers,
    pub(crate) payload: Payload,
    pub(crate) length: usize,
}

impl Outgoing {
    /// Returns the bytes on the wire, ICRC included.
    pub(crate) fn size(&self) -> usize {
        Bth::LEN + self.headers.length() + self.length + usize::from(self.bth.pad) + icrc::LEN
    }

    /// Writes the packet without ICRC to `out`, which is at `at` of the driver's buffer and has room for
    /// [`size`](Self::size). If the payload is lent and not written, returns the CRC-32 of the packet with it.
    pub(crate) fn write<M: Memory>(
        &self,
        memory: &M,
        local: Access,
        sges: &[Sge],
        at: usize,
        out: &mut [u8],
    ) -> Result<Option<u32>, AccessError> {
        self.bth.emit(out);
        let start = Bth::LEN + self.headers.emit(&mut out[Bth::LEN..]);
        let (head, tail) = out.split_at_mut(start);
        let (body, rest) = tail.split_at_mut(self.length);
        let pad = &mut rest[..usize::from(self.bth.pad)];
        if !pad.is_empty() {
            pad.fill(0);
        }
        match self.payload {
            Payload::Empty => {}
            Payload::Remote { access, va } => memory.read(&access, va, body)?,
            Payload::Request {
                offset, may_lend, ..
            } => {
                let need = Rights::LOCAL_READ;
                if may_lend
                    && self.length >= MIN_LENT
                    && let Some((va, key)) = in_one_part(sges, offset, self.length)
                {
                    let access = Access { key, need, ..local };
                    let crc = crc32fast::hash(head);
                    if let Some(crc) = memory.lend(&access, va, self.length, at + start, crc)? {
                        let mut crc = Hasher::new_with_initial(crc);
                        crc.update(pad);
                        return Ok(Some(crc.finalize()));
                    }
                }
                for_each_part(sges, offset, self.length, |va, key, range| {
                    memory.read(&Access { key, need, ..local }, va, &mut body[range])
                })?;
            }
        }
        Ok(None)
    }

    /// Returns the length of the packet's record.
    pub(crate) fn record_length(&self) -> usize {
        near::record_length(Bth::LEN + self.headers.length(), self.length)
    }

    /// Writes the packet to the record at hand: the payload there, the headers to the result. There is no padding.
    pub(crate) fn write_near<M: Memory>(
        &self,
        memory: &M,
        local: Access,
        sges: &[Sge],
    ) -> Result<NearOut, AccessError> {
        let mut header = [0; near::MAX_HEADER];
        Bth { pad: 0, ..self.bth }.emit(&mut header);
        let header_length = Bth::LEN + self.headers.emit(&mut header[Bth::LEN..]);
        let at = near::payload_at(header_length, self.length);
        match self.payload {
            Payload::Empty => {}
            Payload::Remote { access, va } => memory.fill(&access, va, self.length, at)?,
            Payload::Request { offset, .. } => {
                let need = Rights::LOCAL_READ;
                for_each_part(sges, offset, self.length, |va, key, range| {
                    let access = Access { key, need, ..local };
                    memory.fill(&access, va, range.len(), at + range.start)
                })?;
            }
        }
        Ok(NearOut {
            header,
            header_length,
            payload_at: at,
            payload_length: self.length,
        })
    }

    pub(crate) fn with_payload(mut self, payload: Payload, length: usize) -> Self {
        self.payload = payload;
        self.length = length;
        self.bth.pad = packet::pad(length);
        self
    }
}
