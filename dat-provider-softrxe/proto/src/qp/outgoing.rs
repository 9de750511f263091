//! A packet about to be written.

use std::net::SocketAddr;

use crate::memory::{Access, AccessError, Memory, Rights};
use crate::qp::ring::for_each_part;
use crate::wire::{Bth, Headers, icrc, packet};
use crate::work::Sge;

/// Where a packet's payload lies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload {
    /// There is none.
    Empty,
    /// In the SGEs of send request `seq`, from this offset of the message.
    Request { seq: u32, offset: u32 },
    /// In the memory that a peer reads.
    Remote { access: Access, va: u64 },
}

/// A packet about to be written: everything but its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) destination: SocketAddr,
    pub(crate) bth: Bth,
    pub(crate) headers: Headers,
    pub(crate) payload: Payload,
    pub(crate) length: usize,
}

impl Outgoing {
    /// Bytes on the wire, ICRC included.
    pub(crate) fn size(&self) -> usize {
        Bth::LEN + self.headers.length() + self.length + usize::from(self.bth.pad) + icrc::LEN
    }

    /// Writes all but the ICRC to `out`, which has room for [`size`](Self::size).
    pub(crate) fn write<M: Memory>(
        &self,
        memory: &M,
        local: Access,
        sges: &[Sge],
        out: &mut [u8],
    ) -> Result<(), AccessError> {
        self.bth.emit(out);
        let start = Bth::LEN + self.headers.emit(&mut out[Bth::LEN..]);
        let (body, rest) = out[start..].split_at_mut(self.length);
        rest[..usize::from(self.bth.pad)].fill(0);
        match self.payload {
            Payload::Empty => Ok(()),
            Payload::Remote { access, va } => memory.read(&access, va, body),
            Payload::Request { offset, .. } => {
                let need = Rights::LOCAL_READ;
                for_each_part(sges, offset, self.length, |va, key, range| {
                    memory.read(&Access { key, need, ..local }, va, &mut body[range])
                })
            }
        }
    }

    pub(crate) fn with_payload(mut self, payload: Payload, length: usize) -> Self {
        self.payload = payload;
        self.length = length;
        self.bth.pad = packet::pad(length);
        self
    }
}
