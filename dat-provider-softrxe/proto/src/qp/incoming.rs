//! A packet that arrived, over datagrams or a channel.

use crate::memory::{Access, AccessError, Memory};
use crate::near::RecordPart;
use crate::opcode::Opcode;
use crate::psn::Psn;
use crate::wire::packet::take_acknowledgement;
use crate::wire::{Bth, Headers, Packet};

/// Location of the payload of a packet that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrived<'a> {
    Bytes(&'a [u8]),
    Record(RecordPart),
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) bth: &'a Bth,
    pub(crate) opcode: Opcode,
    pub(crate) headers: &'a Headers,
    pub(crate) payload: Arrived<'a>,
    /// The newest PSN that an acknowledgement behind a request's headers covers.
    pub(crate) acknowledged: Option<Psn>,
}

impl Arrived<'_> {
    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Record(part) => part.length,
        }
    }

    /// Returns true if the payload is in memory that the peer lends.
    pub(crate) const fn is_lent(&self) -> bool {
        matches!(self, Self::Record(RecordPart { lent: true, .. }))
    }

    /// Copies a part of the payload to registered memory at `va`.
    pub(crate) fn place<M: Memory>(
        &self,
        memory: &M,
        access: &Access,
        va: u64,
        part: std::ops::Range<usize>,
    ) -> Result<(), AccessError> {
        match self {
            Self::Bytes(bytes) => memory.write(access, va, &bytes[part]),
            Self::Record(record) => memory.place(access, va, record.at + part.start, part.len()),
        }
    }
}

impl<'a> Incoming<'a> {
    /// Returns a packet of a datagram whose BTH may announce an [acknowledgement](crate::near::ACK_FLAG) behind the headers. `None`: it is missing.
    pub(crate) fn acknowledging(packet: &'a Packet<'a>, transport: &[u8]) -> Option<Self> {
        let mut incoming = Self::from(packet);
        if packet.opcode.request().is_some() {
            let mut payload = packet.payload;
            incoming.acknowledged = take_acknowledgement(transport, &mut payload)?;
            incoming.payload = Arrived::Bytes(payload);
        }
        Some(incoming)
    }
}

impl<'a> From<&'a Packet<'a>> for Incoming<'a> {
    fn from(packet: &'a Packet<'a>) -> Self {
        Self {
            bth: &packet.bth,
            opcode: packet.opcode,
            headers: &packet.headers,
            payload: Arrived::Bytes(packet.payload),
            acknowledged: None,
        }
    }
}
