//! Packets of requests: opcode, extended headers, length, and the right to go now (IBTA 9.4, 9.7.3).

use dat_handshake::Capabilities;

use super::outgoing::{Outgoing, Payload, Role, psns};
use super::requester::Requester;
use super::wqe::Wqe;
use super::{Path, Qp};
use crate::memory::Memory;
use crate::near::{MAX_LENT, MIN_LENT};
use crate::opcode::Opcode;
use crate::outputs::Context;
use crate::wire::{AtomicEth, Bth, Reth, ieth, immdt};
use crate::work::{Op, Remote};

/// Packets between two acknowledgement requests inside a long message.
const ACK_INTERVAL: u32 = 16;

impl Qp {
    /// Returns the packet of request `seq` with this index, which is to be sent next, if window and depth allow it.
    pub(super) fn request_packet<M: Memory>(
        &self,
        cx: &Context<'_, M>,
        seq: u32,
        index: u32,
        packets: u32,
    ) -> Option<Outgoing> {
        let r = &self.requester;
        let wqe = r.ring.get(seq)?;
        let path = self.path.as_ref()?;
        match wqe.op {
            Op::Read(remote) => {
                let end = self.chunk_end(cx, index, packets);
                r.read_packet(path, wqe, remote, index, end)
            }
            Op::CompareSwap { .. } | Op::FetchAdd { .. } => r.atomic_packet(path, wqe),
            _ => r.payload_packet(path, wqe, (seq, index, packets), || cx.memory.lends()),
        }
    }

    /// Returns the index after the last packet of the READ chunk that contains `index`.
    fn chunk_end<M>(&self, cx: &Context<'_, M>, index: u32, packets: u32) -> u32 {
        let chunk = cx.config.read_chunk.max(1);
        ((index / chunk + 1) * chunk).min(packets)
    }
}

impl Requester {
    /// Returns a packet of request `wqe` with the next PSN, without extended headers.
    #[inline]
    fn packet(
        &self,
        path: &Path,
        wqe: &Wqe,
        opcode: Opcode,
        role: Role,
        ack_request: bool,
    ) -> Outgoing {
        let bth = Bth {
            ack_request,
            solicited: wqe.solicited && opcode.position().ends(),
            ..Bth::new(opcode as u8, path.qpn, self.next)
        };
        Outgoing::new(path.remote, role, &bth)
    }

    /// Returns the READ request for the packets of the answer from `index` to `end`.
    fn read_packet(
        &self,
        path: &Path,
        wqe: &Wqe,
        remote: Remote,
        index: u32,
        end: u32,
    ) -> Option<Outgoing> {
        let (mtu, in_flight, packets) = (self.path.mtu, self.in_flight(), end - index);
        let room = self.window.size().min(self.path.max_reads);
        let fits = in_flight == 0 || in_flight + packets <= room;
        if !fits || self.reads.len() >= self.path.depth {
            return None;
        }
        let offset = index * mtu;
        let reth = Reth {
            va: remote.address.wrapping_add(u64::from(offset)),
            rkey: remote.key,
            length: (wqe.length - offset).min(packets * mtu),
        };
        let role = Role::ResponseWanted(packets);
        let mut packet = self.packet(path, wqe, Opcode::ReadRequest, role, true);
        packet.push(Reth::LEN, |out| reth.emit(out));
        Some(packet)
    }

    fn atomic_packet(&self, path: &Path, wqe: &Wqe) -> Option<Outgoing> {
        if self.in_flight() >= self.window.size() || self.reads.len() >= self.path.depth {
            return None;
        }
        let (eth, opcode) = atomic(wqe.op)?;
        let mut packet = self.packet(path, wqe, opcode, Role::ResponseWanted(1), true);
        packet.push(AtomicEth::LEN, |out| eth.emit(out));
        Some(packet)
    }

    /// Returns the packet of a SEND or WRITE with this index; `lends` says whether the link lends a payload now.
    #[inline]
    fn payload_packet(
        &self,
        path: &Path,
        wqe: &Wqe,
        (seq, index, packets): (u32, u32, u32),
        lends: impl FnOnce() -> bool,
    ) -> Option<Outgoing> {
        let (mtu, size, in_flight) = (self.path.mtu, self.window.size(), self.in_flight());
        if in_flight >= size {
            return None;
        }
        let offset = index * mtu;
        let left = wqe.length - offset;
        // A repetition is copied. Over a channel the peer may not be able to read the memory; over the wire it arrives intact
        // even if the consumer goes on writing.
        let may_lend = self.next == self.high;
        let lent = may_lend && left >= MIN_LENT && wqe.sge_count == 1 && lends();
        let length = left.min(if lent { MAX_LENT } else { mtu });
        let end = index + psns(length, mtu);
        let last = end == packets;
        let interval_ends = index / ACK_INTERVAL != end / ACK_INTERVAL;
        let ack = last || interval_ends || in_flight + (end - index) >= size;
        let (opcode, target) = opcode_and_target(path, wqe, (offset, length), last);
        let mut packet = self.packet(path, wqe, opcode, Role::Request, ack);
        if let Some(reth) = target {
            packet.push(Reth::LEN, |out| reth.emit(out));
        }
        match wqe.op {
            Op::SendImm(data) | Op::WriteImm(_, data) if last => {
                packet.push(immdt::LEN, |out| immdt::emit(data, out));
            }
            Op::SendInvalidate(key) if last => packet.push(ieth::LEN, |out| ieth::emit(key, out)),
            _ => {}
        }
        packet.lent = lent;
        let payload = Payload::Request {
            seq,
            offset,
            may_lend,
        };
        Some(packet.with_payload(payload, length as usize))
    }
}

/// Returns opcode and target of the packet of a SEND or WRITE with this offset and length.
#[inline]
fn opcode_and_target(
    path: &Path,
    wqe: &Wqe,
    (offset, length): (u32, u32),
    last: bool,
) -> (Opcode, Option<Reth>) {
    let (remote, va, length, opcode) = match wqe.op {
        // Each packet is a WRITE of its own, so all have one size, and a run continues from one request to the
        // next. A First is longer and would end the run. The responder's message count is not used here.
        Op::Write(remote) if path.agreement.has(Capabilities::WRITE_ONLY_RUNS) => {
            let va = remote.address.wrapping_add(u64::from(offset));
            (remote, va, length, Opcode::WriteOnly)
        }
        Op::Write(remote) | Op::WriteImm(remote, _) if offset == 0 => {
            let opcode = wqe.opcode(true, last);
            (remote, remote.address, wqe.length, opcode)
        }
        _ => return (wqe.opcode(offset == 0, last), None),
    };
    let rkey = remote.key;
    (opcode, Some(Reth { va, rkey, length }))
}

fn atomic(op: Op) -> Option<(AtomicEth, Opcode)> {
    match op {
        Op::CompareSwap {
            remote,
            compare,
            swap,
        } => Some((
            AtomicEth {
                va: remote.address,
                rkey: remote.key,
                swap_or_add: swap,
                compare,
            },
            Opcode::CompareSwap,
        )),
        Op::FetchAdd { remote, add } => Some((
            AtomicEth {
                va: remote.address,
                rkey: remote.key,
                swap_or_add: add,
                compare: 0,
            },
            Opcode::FetchAdd,
        )),
        _ => None,
    }
}
