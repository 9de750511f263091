//! A packet to be written.

use std::net::SocketAddr;

use crc32fast::Hasher;

use crate::memory::{Access, AccessError, Memory, Rights};
use crate::near::{self, NearOut};
use crate::opcode::{Opcode, RequestKind};
use crate::psn::Psn;
use crate::qp::ring::{for_each_part, in_one_part};
use crate::wire::packet::{self, MAX_HEADERS};
use crate::wire::{Bth, icrc};
use crate::work::Sge;

/// Shortest payload of a datagram that the engine asks to be [sent from where it is](Memory::lend). The driver may have a higher limit.
const MIN_REFERENCED: usize = 256;

/// Returns the number of PSNs that `length` bytes of payload take. A lent payload may take several in one packet.
pub(crate) fn psns(length: u32, mtu: u32) -> u32 {
    if length <= mtu {
        return 1;
    }
    length.div_ceil(mtu)
}

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

/// What a packet means to the queue pair that has sent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// A positive acknowledgement.
    Ack,
    /// A NAK or RNR NAK.
    Nak,
    /// A READ response or the result of an atomic.
    Response,
    /// A packet of a SEND or WRITE.
    Request,
    /// A READ request or an atomic, for this number of response packets.
    ResponseWanted(u32),
    Probe,
    Datagram,
}

/// A packet to be written: its transport headers, and where its payload is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) destination: SocketAddr,
    pub(crate) psn: Psn,
    pub(crate) role: Role,
    /// The packet ends with an acknowledgement, which only records have.
    pub(crate) acknowledges: bool,
    /// The payload is lent to the peer, over a channel, and may be longer than the MTU.
    pub(crate) lent: bool,
    header_length: u8,
    header: [u8; MAX_HEADERS],
    pub(crate) payload: Payload,
    pub(crate) length: usize,
}

impl Outgoing {
    /// Returns a packet without extended headers and payload.
    pub(crate) fn new(destination: SocketAddr, role: Role, bth: &Bth) -> Self {
        let mut header = [0; MAX_HEADERS];
        bth.emit(&mut header);
        Self {
            destination,
            psn: bth.psn,
            role,
            acknowledges: false,
            lent: false,
            header_length: Bth::LEN as u8,
            header,
            payload: Payload::Empty,
            length: 0,
        }
    }

    /// Appends an extended header of `length` bytes that `emit` writes.
    pub(crate) fn push(&mut self, length: usize, emit: impl FnOnce(&mut [u8])) {
        let at = usize::from(self.header_length);
        emit(&mut self.header[at..at + length]);
        self.header_length += length as u8;
    }

    /// Appends the acknowledgement of everything up to `psn`, if there is room. See [`near`].
    pub(crate) fn acknowledge(&mut self, psn: Psn) {
        if usize::from(self.header_length) + near::ACK_LEN <= MAX_HEADERS {
            self.header[near::ACK_FLAG.0] |= near::ACK_FLAG.1;
            self.push(near::ACK_LEN, |out| {
                out.copy_from_slice(&psn.value().to_be_bytes());
            });
            self.acknowledges = true;
        }
    }

    /// Returns true if a receive of the peer completes with the packet.
    pub(crate) fn completes_a_receive(&self) -> bool {
        Opcode::from_wire(self.header[0]).is_some_and(|opcode| {
            let completes = opcode.request() == Some(RequestKind::Send) || opcode.has_immediate();
            completes && opcode.position().ends()
        })
    }

    fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_length)]
    }

    fn pad(&self) -> u8 {
        packet::pad(self.length)
    }

    /// Returns the bytes on the wire, ICRC included.
    pub(crate) fn size(&self) -> usize {
        self.header().len() + self.length + usize::from(self.pad()) + icrc::LEN
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
        let start = self.header().len();
        let (head, tail) = out.split_at_mut(start);
        head.copy_from_slice(self.header());
        head[1] |= self.pad() << 4;
        let (body, rest) = tail.split_at_mut(self.length);
        let pad = &mut rest[..usize::from(self.pad())];
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
                    && self.length >= MIN_REFERENCED
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
        let length = if self.lent {
            near::LENT_LEN
        } else {
            self.length
        };
        near::record_length(self.header_length.into(), length)
    }

    /// Writes the packet to the record at hand: the payload there, the headers to the result. There is no padding.
    pub(crate) fn write_near<M: Memory>(
        &self,
        memory: &M,
        local: Access,
        sges: &[Sge],
    ) -> Result<NearOut, AccessError> {
        let header_length = usize::from(self.header_length);
        let in_record = if self.lent {
            near::LENT_LEN
        } else {
            self.length
        };
        let at = near::payload_at(header_length, in_record);
        match self.payload {
            Payload::Empty => {}
            Payload::Remote { access, va } if self.lent => {
                memory.lend_record(&access, va, self.length, at)?;
            }
            Payload::Remote { access, va } => memory.fill(&access, va, self.length, at)?,
            Payload::Request { offset, .. } => {
                let need = Rights::LOCAL_READ;
                for_each_part(sges, offset, self.length, |va, key, range| {
                    let access = Access { key, need, ..local };
                    if self.lent {
                        return memory.lend_record(&access, va, range.len(), at);
                    }
                    memory.fill(&access, va, range.len(), at + range.start)
                })?;
            }
        }
        Ok(NearOut {
            header: self.header,
            header_length,
            payload_at: at,
            payload_length: self.length,
            lent: self.lent,
        })
    }

    /// Returns the number of PSNs of a packet of a SEND, a WRITE or a READ response.
    pub(crate) fn psns(&self, mtu: u32) -> u32 {
        psns(self.length as u32, mtu)
    }

    pub(crate) fn with_payload(mut self, payload: Payload, length: usize) -> Self {
        self.payload = payload;
        self.length = length;
        self
    }
}
