//! Executes requests in PSN order: checks them, places their data and queues their responses (IBTA 9.7.4).

use super::Qp;
use super::incoming::Incoming;
use super::outgoing::psns;
use super::refusal::{Refusal, refusal};
use super::responder::{Current, Job, JobKind, Resource};
use crate::memory::{Access, AccessError, AtomicOp, Memory, Rights};
use crate::near::MAX_LENT;
use crate::opcode::{Opcode, RequestKind};
use crate::outputs::Context;
use crate::wire::{AtomicEth, Nak, Reth};
use crate::work::{CompletedOp, Completion, Status};

impl Qp {
    /// Executes the request with the expected PSN.
    pub(super) fn execute<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Incoming<'_>,
    ) -> Result<(), Refusal> {
        let position = packet.opcode.position();
        let kind = packet.opcode.request().ok_or(Refusal::INVALID)?;
        let in_order = match (self.responder.current, kind) {
            (Current::None, _) => position.begins(),
            (Current::Send(_), RequestKind::Send) | (Current::Write { .. }, RequestKind::Write) => {
                !position.begins()
            }
            _ => false,
        };
        let mtu = self.responder.mtu as usize;
        let length = packet.payload.len();
        let longest = if packet.payload.is_lent() {
            MAX_LENT as usize
        } else {
            mtu
        };
        let full = match (position.begins(), position.ends()) {
            (_, false) => (1..=longest).contains(&length) && length.is_multiple_of(mtu),
            (false, true) => (1..=longest).contains(&length),
            (true, true) => length <= longest,
        };
        if !in_order || !full {
            return Err(Refusal::INVALID);
        }
        match kind {
            RequestKind::Send => self.execute_send(cx, packet)?,
            RequestKind::Write => self.execute_write(cx, packet)?,
            RequestKind::Read => return self.execute_read(cx, packet),
            RequestKind::Atomic => return self.execute_atomic(cx, packet),
        }
        let r = &mut self.responder;
        r.expect_after(psns(length as u32, mtu as u32));
        if position.ends() {
            r.count_message();
            r.current = Current::None;
        }
        Ok(())
    }

    fn execute_send<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Incoming<'_>,
    ) -> Result<(), Refusal> {
        if packet.opcode.position().begins() {
            // After a payload that could not be read, the repetition uses the same receive.
            if self.responder.receive.is_none() {
                let receive = self.take_receive(cx).ok_or(Refusal::NotReady)?;
                self.responder.receive = Some(receive);
            }
            self.responder.current = Current::Send(0);
        }
        let (Current::Send(done), Some(receive)) = (self.responder.current, self.responder.receive)
        else {
            return Err(Refusal::INVALID);
        };
        let length = packet.payload.len() as u32;
        if length > receive.length - done {
            return Err(Refusal::Nak(Nak::InvalidRequest, Some(Status::LocalLength)));
        }
        if let Err(error) = self.place_received(cx, done, &packet.payload) {
            if !matches!(error, AccessError::Withdrawn { .. }) {
                let status = Some(Status::LocalProtection);
                return Err(Refusal::Nak(Nak::RemoteOperation, status));
            }
            if done == 0 {
                self.responder.current = Current::None;
            }
            return Err(Refusal::Withdrawn);
        }
        let total = done + length;
        self.responder.current = Current::Send(total);
        if !packet.opcode.position().ends() {
            return Ok(());
        }
        if let Some(key) = packet.headers.invalidate {
            cx.memory
                .invalidate(key, self.init.pd, self.qpn, true)
                .map_err(Refusal::Invalidate)?;
        }
        self.complete_message(cx, packet, CompletedOp::Receive, total);
        Ok(())
    }

    fn execute_write<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Incoming<'_>,
    ) -> Result<(), Refusal> {
        if !self.init.access.contains(Rights::REMOTE_WRITE) {
            return Err(Refusal::INVALID);
        }
        let (reth, done) = match (packet.headers.reth, self.responder.current) {
            (Some(reth), _) => {
                // The copy checks the same access if it is the first effect of the packet and covers the whole range.
                let is_whole = reth.length as usize == packet.payload.len();
                if !is_whole || packet.headers.immediate.is_some() {
                    self.check(cx, reth, Rights::REMOTE_WRITE)?;
                }
                (reth, 0)
            }
            (None, Current::Write { reth, done }) => (reth, done),
            _ => return Err(Refusal::INVALID),
        };
        let length = packet.payload.len() as u32;
        let left = reth.length - done;
        let ends = packet.opcode.position().ends();
        if length > left || ends && length != left || !ends && length == left {
            return Err(Refusal::INVALID);
        }
        if packet.headers.immediate.is_some() && self.responder.receive.is_none() {
            let receive = self.take_receive(cx).ok_or(Refusal::NotReady)?;
            self.responder.receive = Some(receive);
        }
        if length > 0 {
            let va = reth.va.wrapping_add(u64::from(done));
            let access = self.remote(reth.rkey, Rights::REMOTE_WRITE);
            let all = 0..packet.payload.len();
            packet
                .payload
                .place(cx.memory, &access, va, all)
                .map_err(refusal)?;
        }
        self.responder.current = Current::Write {
            reth,
            done: done + length,
        };
        if packet.headers.immediate.is_some() {
            self.complete_message(cx, packet, CompletedOp::ReceiveWriteImm, reth.length);
        }
        Ok(())
    }

    fn execute_read<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Incoming<'_>,
    ) -> Result<(), Refusal> {
        let reth = packet.headers.reth.ok_or(Refusal::INVALID)?;
        let allowed = self.init.access.contains(Rights::REMOTE_READ);
        // A window has half of all PSNs; a longer READ could not be distinguished from a duplicate.
        if !allowed || packet.payload.len() > 0 || reth.length > 1 << 31 {
            return Err(Refusal::INVALID);
        }
        self.check(cx, reth, Rights::REMOTE_READ)?;
        let r = &mut self.responder;
        if r.jobs.len() >= r.job_limit() {
            return Err(Refusal::INVALID);
        }
        let (first, packets) = (packet.bth.psn, reth.length.div_ceil(r.mtu).max(1));
        r.expect_after(packets);
        r.count_message();
        r.keep_for_duplicates(Resource::Read {
            reth,
            first,
            packets,
        });
        r.jobs.push_back(Job {
            psn: first,
            messages: r.messages,
            duplicate: false,
            kind: JobKind::Read { reth, begun: false },
        });
        r.ack = None;
        Ok(())
    }

    fn execute_atomic<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Incoming<'_>,
    ) -> Result<(), Refusal> {
        let header = packet.headers.atomic.ok_or(Refusal::INVALID)?;
        let AtomicEth {
            va,
            rkey,
            swap_or_add,
            compare,
        } = header;
        let allowed = self.init.access.contains(Rights::REMOTE_ATOMIC);
        let full = self.responder.jobs.len() >= self.responder.job_limit();
        if !allowed || va % 8 != 0 || full {
            return Err(Refusal::INVALID);
        }
        let op = match packet.opcode {
            Opcode::CompareSwap => AtomicOp::CompareSwap {
                compare,
                swap: swap_or_add,
            },
            _ => AtomicOp::FetchAdd(swap_or_add),
        };
        let access = self.remote(rkey, Rights::REMOTE_ATOMIC);
        let original = cx.memory.atomic(&access, va, op).map_err(refusal)?;
        let (r, psn) = (&mut self.responder, packet.bth.psn);
        r.expect_after(1);
        r.count_message();
        r.keep_for_duplicates(Resource::Atomic { psn, original });
        r.jobs.push_back(Job {
            psn,
            messages: r.messages,
            duplicate: false,
            kind: JobKind::Atomic(original),
        });
        r.ack = None;
        Ok(())
    }

    /// Completes the receive of a message that was placed.
    fn complete_message<M>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Incoming<'_>,
        op: CompletedOp,
        length: u32,
    ) {
        let Some(receive) = self.responder.receive.take() else {
            return;
        };
        let completion = Completion {
            op,
            length,
            immediate: packet.headers.immediate,
            invalidated: packet.headers.invalidate,
            solicited: packet.bth.solicited,
            ..self.completion(receive.wr_id)
        };
        cx.out.complete(self.init.recv_cq, completion);
    }

    pub(super) const fn remote(&self, key: u32, need: Rights) -> Access {
        Access {
            key,
            need,
            pd: self.init.pd,
            qpn: self.qpn,
        }
    }

    /// Checks that the peer has the right to the whole range. No key is needed for 0 bytes.
    fn check<M: Memory>(
        &self,
        cx: &Context<'_, M>,
        reth: Reth,
        need: Rights,
    ) -> Result<(), Refusal> {
        if reth.length == 0 {
            return Ok(());
        }
        let access = self.remote(reth.rkey, need);
        cx.memory
            .check(&access, reth.va, u64::from(reth.length))
            .map_err(Refusal::Access)
    }
}
