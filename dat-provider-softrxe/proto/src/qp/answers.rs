//! Answers of the responder in PSN order: READ responses and results of atomics, then NAKs and acknowledgements.

use dat_handshake::Capabilities;

use super::Qp;
use super::outgoing::{Outgoing, Payload, Role, psns};
use super::responder::{Job, JobKind};
use crate::memory::{Memory, Rights};
use crate::near::{MAX_LENT, MIN_LENT};
use crate::opcode::Opcode;
use crate::outputs::Context;
use crate::psn::Psn;
use crate::wire::{Aeth, Bth, Nak, Syndrome, atomicack};
use crate::work::Status;

impl Qp {
    /// Returns whether READ responses or results of atomics wait.
    pub(crate) fn has_answers(&self) -> bool {
        !self.responder.jobs.is_empty()
    }

    /// Returns the next READ response, atomic result or NAK.
    pub(super) fn next_answer<M: Memory>(&self, cx: &Context<'_, M>) -> Option<Outgoing> {
        let r = &self.responder;
        let Some(job) = r.jobs.front() else {
            let (psn, syndrome) = r.nak?;
            let aeth = self.aeth(syndrome, r.messages);
            return self.answer(Role::Nak, Opcode::Acknowledge, psn, aeth, None);
        };
        let aeth = self.aeth(Syndrome::ACK, job.messages);
        match job.kind {
            JobKind::Atomic(original) => self.answer(
                Role::Response,
                Opcode::AtomicAcknowledge,
                job.psn,
                aeth,
                Some(original),
            ),
            JobKind::Read { reth, begun } => {
                // The answer to a repetition is copied: the peer may not be able to read the memory.
                let lent = !job.duplicate && reth.length >= MIN_LENT && cx.memory.lends();
                let longest = if lent { MAX_LENT } else { r.mtu };
                let last = reth.length <= longest;
                let (opcode, aeth) = match (begun, last) {
                    (false, true) => (Opcode::ReadResponseOnly, aeth),
                    (false, false) => (Opcode::ReadResponseFirst, aeth),
                    (true, true) => (Opcode::ReadResponseLast, aeth),
                    (true, false) => (Opcode::ReadResponseMiddle, None),
                };
                let mut packet = self.answer(Role::Response, opcode, job.psn, aeth, None)?;
                packet.lent = lent;
                let access = self.remote(reth.rkey, Rights::REMOTE_READ);
                let payload = match reth.length {
                    0 => Payload::Empty,
                    _ => Payload::Remote {
                        access,
                        va: reth.va,
                    },
                };
                Some(packet.with_payload(payload, reth.length.min(longest) as usize))
            }
        }
    }

    /// Returns the acknowledgement that is due: `urgent` if enough packets wait for it, otherwise by time.
    pub(super) fn next_ack<M>(&self, cx: &Context<'_, M>, urgent: bool) -> Option<Outgoing> {
        let (count, due) = self.responder.ack?;
        if urgent && count < cx.config.ack_every || !urgent && due > cx.now {
            return None;
        }
        self.next_ack_at_once()
    }

    /// Returns an acknowledgement of all that has arrived.
    pub(super) fn next_ack_at_once(&self) -> Option<Outgoing> {
        let aeth = self.aeth(Syndrome::ACK, self.responder.messages);
        self.answer(
            Role::Ack,
            Opcode::Acknowledge,
            self.responder.acknowledged(),
            aeth,
            None,
        )
    }

    #[allow(clippy::unnecessary_wraps, reason = "an optional header of the packet")]
    const fn aeth(&self, syndrome: Syndrome, messages: u64) -> Option<Aeth> {
        let (syndrome, msn) = (syndrome.to_wire(), (messages & 0xff_ffff) as u32);
        Some(Aeth { syndrome, msn })
    }

    fn answer(
        &self,
        role: Role,
        opcode: Opcode,
        psn: Psn,
        aeth: Option<Aeth>,
        original: Option<u64>,
    ) -> Option<Outgoing> {
        let path = self.path.as_ref()?;
        let bth = Bth::new(opcode as u8, path.qpn, psn);
        let mut packet = Outgoing::new(path.remote, role, &bth);
        if let Some(aeth) = aeth {
            packet.push(Aeth::LEN, |out| aeth.emit(out));
        }
        if let Some(original) = original {
            packet.push(atomicack::LEN, |out| atomicack::emit(original, out));
        }
        Some(packet)
    }

    /// Records that a READ response of `length` bytes or the result of an atomic was sent.
    pub(super) fn response_sent(&mut self, length: u32) {
        let r = &mut self.responder;
        let mtu = r.mtu;
        let done = match r.jobs.front_mut() {
            Some(Job {
                psn,
                kind: JobKind::Read { reth, begun },
                ..
            }) if reth.length > length => {
                *psn = psn.plus(psns(length, mtu));
                *begun = true;
                reth.va = reth.va.wrapping_add(u64::from(length));
                reth.length -= length;
                false
            }
            _ => true,
        };
        if done {
            r.jobs.pop_front();
        }
    }

    /// Refuses the rest of a READ whose memory is gone.
    pub(super) fn refuse_read<M>(&mut self, cx: &mut Context<'_, M>, psn: Psn) {
        let may_refuse = self
            .path
            .is_some_and(|path| path.agreement.has(Capabilities::LATE_READ_NAK));
        let r = &mut self.responder;
        let duplicate = r.jobs.pop_front().is_some_and(|job| job.duplicate);
        let insists = r.unreadable_at.replace(psn) == Some(psn);
        // A link that loses nothing has no late copies.
        if duplicate && !insists && !self.requester.path.lossless {
            // This may be a late copy of a READ that was answered. A requester that still waits for the answer repeats its
            // request.
            return;
        }
        r.jobs.clear();
        r.ack = None;
        if may_refuse || r.begins_read(psn) {
            r.refuse(psn, Nak::RemoteAccess);
        } else {
            // rdma_rxe 6.1 completes a READ of which it has a part, without the rest, when it receives a NAK. The end of
            // the connection flushes the READ instead.
            self.fail(cx, Some(Status::RemoteAccess));
        }
    }
}
