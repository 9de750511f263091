//! The responder: executes requests and decides on their answers (IBTA 9.7.4, 9.7.5, 9.9.3).
//!
//! Answers are sent in PSN order: responses of READs and atomics wait in `jobs`, and an acknowledgement or NAK follows
//! them. One acknowledgement covers all requests since the last.

use std::collections::{TryReserveError, VecDeque};

use super::ring::Receive;
use super::{Path, Qp};
use crate::memory::{Access, AccessError, AtomicOp, Memory, Rights};
use crate::opcode::{Opcode, RequestKind};
use crate::outputs::Context;
use crate::psn::Psn;
use crate::time::Time;
use crate::wire::{AtomicEth, Nak, Packet, Reth, Syndrome};
use crate::work::{CompletedOp, Completion, Sge, Status};
use crate::wrong_keys::key_fault;

/// The message that is being received.
#[derive(Clone, Copy, Debug)]
enum Current {
    None,
    /// A SEND, and the bytes placed.
    Send(u32),
    /// A WRITE.
    Write {
        reth: Reth,
        /// Bytes placed.
        done: u32,
    },
}

/// An executed READ or atomic, kept for duplicates.
#[derive(Clone, Copy, Debug)]
enum Resource {
    Read {
        reth: Reth,
        first: Psn,
        packets: u32,
    },
    Atomic {
        psn: Psn,
        original: u64,
    },
}

/// Responses to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) psn: Psn,
    pub(super) msn: u32,
    /// The responses answer a repetition.
    pub(super) duplicate: bool,
    pub(super) kind: JobKind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum JobKind {
    /// The rest of a READ; `begun` once its first packet was sent.
    Read {
        reth: Reth,
        begun: bool,
    },
    Atomic(u64),
}

/// State of the responder.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) expected: Psn,
    pub(super) msn: u32,
    pub(super) mtu: u32,
    depth: usize,
    current: Current,
    receive: Option<Receive>,
    sges: Vec<Sge>,
    resources: VecDeque<Resource>,
    pub(super) jobs: VecDeque<Job>,
    /// PSN of a repeated READ whose memory is gone.
    pub(super) unreadable_at: Option<Psn>,
    /// A NAK or RNR NAK to send once, and its PSN.
    pub(super) nak: Option<(Psn, Syndrome)>,
    /// A NAK for the gap or missing receive at `expected` was sent.
    reported: bool,
    /// Packets that wait for an acknowledgement, and its deadline.
    pub(super) ack: Option<(u32, Time)>,
}

/// Reason to refuse a request.
enum Refusal {
    NotReady,
    Nak(Nak, Option<Status>),
    /// The key does not grant the access.
    Access(AccessError),
    /// The key does not name memory that a peer may invalidate.
    Invalidate(AccessError),
}

impl Refusal {
    const INVALID: Self = Self::Nak(Nak::InvalidRequest, None);
}

/// Returns the refusal for `error`. Missing memory is not the peer's fault.
const fn refusal(error: AccessError) -> Refusal {
    match error {
        AccessError::Fault { .. } => Refusal::Nak(Nak::RemoteOperation, None),
        _ => Refusal::Access(error),
    }
}

impl Responder {
    /// Creates a responder for receives of up to `max_sge` SGEs.
    pub(super) fn new(max_sge: usize) -> Result<Self, TryReserveError> {
        let mut responder = Self::with(Vec::new(), VecDeque::new(), VecDeque::new());
        responder.sges.try_reserve_exact(max_sge)?;
        Ok(responder)
    }

    fn with(sges: Vec<Sge>, resources: VecDeque<Resource>, jobs: VecDeque<Job>) -> Self {
        Self {
            expected: Psn::default(),
            msn: 0,
            mtu: 1024,
            depth: 0,
            current: Current::None,
            receive: None,
            sges,
            resources,
            jobs,
            unreadable_at: None,
            nak: None,
            reported: false,
            ack: None,
        }
    }

    /// Allocates room for `depth` READs and atomics of the peer.
    pub(super) fn reserve(&mut self, depth: usize) -> Result<(), TryReserveError> {
        self.resources.try_reserve_exact(depth + 1)?;
        self.jobs.try_reserve_exact(job_limit(depth))
    }

    /// Resets the state and keeps the memory.
    pub(super) fn reset(&mut self) {
        self.sges.clear();
        self.resources.clear();
        self.jobs.clear();
        *self = Self::with(
            std::mem::take(&mut self.sges),
            std::mem::take(&mut self.resources),
            std::mem::take(&mut self.jobs),
        );
    }

    pub(super) fn connect(&mut self, path: &Path) {
        self.expected = path.receive_psn;
        self.mtu = u32::from(path.mtu);
        self.depth = usize::from(path.responder_resources);
    }

    const fn job_limit(&self) -> usize {
        job_limit(self.depth)
    }

    pub(super) fn sges(&self) -> &[Sge] {
        &self.sges
    }

    pub(super) const fn sges_mut(&mut self) -> &mut Vec<Sge> {
        &mut self.sges
    }

    /// Takes the receive in use, which will not complete.
    pub(super) fn abandon(&mut self) -> Option<Receive> {
        self.current = Current::None;
        self.receive.take()
    }

    pub(super) const fn holds_receive(&self) -> bool {
        self.receive.is_some()
    }

    pub(super) fn ack_deadline(&self) -> Option<Time> {
        self.ack.map(|(_, due)| due)
    }

    pub(super) fn want_ack(&mut self, now: Time, delay: std::time::Duration) {
        let (count, due) = self.ack.unwrap_or((0, now + delay));
        self.ack = Some((count + 1, due.min(now + delay)));
    }

    /// Returns the newest PSN that an acknowledgement may name. Only its response may acknowledge a READ or an atomic:
    /// rdma_rxe takes an acknowledgement with its PSN for the response, and completes it without the data.
    pub(super) fn acknowledged(&self) -> Psn {
        let mut end = self.expected;
        for resource in self.resources.iter().rev() {
            let (first, packets) = match *resource {
                Resource::Read { first, packets, .. } => (first, packets),
                Resource::Atomic { psn, .. } => (psn, 1),
            };
            if first.plus(packets) != end {
                break;
            }
            end = first;
        }
        end.minus(1)
    }

    /// Returns true if a READ begins at `psn`.
    pub(super) fn begins_read(&self, psn: Psn) -> bool {
        let begins = |r: &Resource| matches!(r, Resource::Read { first, .. } if *first == psn);
        self.resources.iter().any(begins)
    }

    fn remember(&mut self, resource: Resource) {
        if self.resources.len() >= self.depth.max(1) {
            self.resources.pop_front();
        }
        self.resources.push_back(resource);
    }
}

impl Qp {
    pub(super) fn handle_request<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Packet<'_>,
    ) {
        if !self.state.receives() {
            return;
        }
        let r = &mut self.responder;
        let distance = packet.bth.psn.distance(r.expected);
        if distance > 0 {
            cx.out.counters.out_of_sequence += 1;
            if !std::mem::replace(&mut r.reported, true) {
                r.nak = Some((r.expected, Syndrome::Nak(Nak::SequenceError)));
            }
            return;
        }
        if distance < 0 {
            cx.out.counters.duplicates += 1;
            self.handle_duplicate(cx, packet);
            return;
        }
        r.reported = false;
        if matches!(r.nak, Some((_, Syndrome::Nak(Nak::SequenceError)))) {
            r.nak = None;
        }
        match self.execute(cx, packet) {
            Ok(()) => {
                // The response of a READ or atomic acknowledges it.
                let answered = matches!(
                    packet.opcode.request(),
                    Some(RequestKind::Read | RequestKind::Atomic)
                );
                if packet.bth.ack_request && !answered {
                    self.responder.want_ack(cx.now, cx.config.ack_delay);
                }
            }
            Err(Refusal::NotReady) => {
                cx.out.counters.rnr_sent += 1;
                self.responder.nak = Some((packet.bth.psn, Syndrome::Rnr(cx.config.rnr_code)));
                self.responder.reported = true;
            }
            Err(Refusal::Nak(nak, receive)) => self.refuse(cx, packet, nak, receive),
            Err(Refusal::Access(error)) => {
                self.wrong_key(cx, &error);
                self.refuse(cx, packet, Nak::RemoteAccess, None);
            }
            Err(Refusal::Invalidate(error)) => {
                self.wrong_key(cx, &error);
                let status = Some(Status::RemoteInvalidRequest);
                self.refuse(cx, packet, Nak::InvalidRequest, status);
            }
        }
    }

    /// Answers a request with a NAK and moves the queue pair to Error. The peer cannot try again.
    fn refuse<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Packet<'_>,
        nak: Nak,
        receive: Option<Status>,
    ) {
        cx.out.counters.refused += 1;
        self.responder.nak = Some((packet.bth.psn, Syndrome::Nak(nak)));
        self.responder.ack = None;
        // Without a status the receive is flushed with the others.
        if let Some(status) = receive
            && let Some(taken) = self.responder.abandon()
        {
            self.complete_receive(cx, taken.wr_id, status);
        }
        let status = match nak {
            Nak::RemoteAccess => Status::RemoteAccess,
            Nak::RemoteOperation => Status::RemoteOperation,
            Nak::SequenceError | Nak::InvalidRequest => Status::RemoteInvalidRequest,
        };
        self.fail(cx, Some(receive.unwrap_or(status)));
    }

    /// Counts a request whose key does not grant the access, and warns of it.
    fn wrong_key<M>(&self, cx: &mut Context<'_, M>, error: &AccessError) {
        tracing::debug!(qpn = ?self.qpn, %error, "remote access refused");
        let Some(reason) = key_fault(error) else {
            return;
        };
        cx.out.counters.wrong_keys += 1;
        let Some(suppressed) = cx.out.wrong_key_log.note(cx.now) else {
            return;
        };
        let peer = self.path.as_ref().map(|path| path.remote);
        let total = cx.out.counters.wrong_keys;
        tracing::warn!(
            ?peer,
            qpn = ?self.qpn,
            reason,
            suppressed,
            total,
            "a peer used a wrong key of memory and lost its connection"
        );
    }

    /// Executes the request with the expected PSN.
    fn execute<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Packet<'_>,
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
        let full = match (position.begins(), position.ends()) {
            (_, false) => length == mtu,
            (false, true) => (1..=mtu).contains(&length),
            (true, true) => length <= mtu,
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
        r.expected = r.expected.plus(1);
        if position.ends() {
            r.msn = r.msn.wrapping_add(1) & 0xff_ffff;
            r.current = Current::None;
        }
        Ok(())
    }

    fn execute_send<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        if packet.opcode.position().begins() {
            let receive = self.take_receive(cx).ok_or(Refusal::NotReady)?;
            self.responder.receive = Some(receive);
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
        self.place_received(cx, done, packet.payload)
            .map_err(|_| Refusal::Nak(Nak::RemoteOperation, Some(Status::LocalProtection)))?;
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
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        if !self.init.access.contains(Rights::REMOTE_WRITE) {
            return Err(Refusal::INVALID);
        }
        let (reth, done) = match (packet.headers.reth, self.responder.current) {
            (Some(reth), _) => {
                self.check(cx, reth, Rights::REMOTE_WRITE)?;
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
            cx.memory
                .write(&access, va, packet.payload)
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
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let reth = packet.headers.reth.ok_or(Refusal::INVALID)?;
        let allowed = self.init.access.contains(Rights::REMOTE_READ);
        // A window has half of all PSNs; a longer READ could not be distinguished from a duplicate.
        if !allowed || !packet.payload.is_empty() || reth.length > 1 << 31 {
            return Err(Refusal::INVALID);
        }
        self.check(cx, reth, Rights::REMOTE_READ)?;
        let r = &mut self.responder;
        if r.jobs.len() >= r.job_limit() {
            return Err(Refusal::INVALID);
        }
        let (first, packets) = (packet.bth.psn, reth.length.div_ceil(r.mtu).max(1));
        r.expected = first.plus(packets);
        r.msn = r.msn.wrapping_add(1) & 0xff_ffff;
        r.remember(Resource::Read {
            reth,
            first,
            packets,
        });
        r.jobs.push_back(Job {
            psn: first,
            msn: r.msn,
            duplicate: false,
            kind: JobKind::Read { reth, begun: false },
        });
        r.ack = None;
        Ok(())
    }

    fn execute_atomic<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Packet<'_>,
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
        r.expected = psn.plus(1);
        r.msn = r.msn.wrapping_add(1) & 0xff_ffff;
        r.remember(Resource::Atomic { psn, original });
        r.jobs.push_back(Job {
            psn,
            msn: r.msn,
            duplicate: false,
            kind: JobKind::Atomic(original),
        });
        r.ack = None;
        Ok(())
    }

    /// Handles a request that was executed before.
    fn handle_duplicate<M>(&mut self, cx: &Context<'_, M>, packet: &Packet<'_>) {
        let (psn, r) = (packet.bth.psn, &mut self.responder);
        let mtu = r.mtu;
        let job = match (packet.opcode.request(), packet.headers.reth) {
            (Some(RequestKind::Read), Some(tail)) => {
                let fits = |found: &&Resource| tail_of(found, psn, &tail, mtu);
                r.resources.iter().find(fits).map(|_| JobKind::Read {
                    reth: tail,
                    begun: false,
                })
            }
            (Some(RequestKind::Atomic), _) => r.resources.iter().find_map(|found| match found {
                Resource::Atomic { psn: at, original } if *at == psn => {
                    Some(JobKind::Atomic(*original))
                }
                _ => None,
            }),
            _ => {
                // The data was placed already, so only the progress is acknowledged.
                r.want_ack(cx.now, std::time::Duration::ZERO);
                return;
            }
        };
        // An answer that still waits serves this request, too.
        let waiting = r.jobs.iter().any(|waiting| waiting.psn == psn);
        // The places for new requests of the peer stay free; it repeats those of the old ones that it misses.
        let crowded = r.jobs.len() > r.depth + 1;
        if let (Some(kind), false) = (job, waiting || crowded) {
            let msn = r.msn;
            r.jobs.push_back(Job {
                psn,
                msn,
                duplicate: true,
                kind,
            });
        }
    }

    /// Completes the receive of a message that was placed.
    fn complete_message<M>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Packet<'_>,
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

/// Returns the limit of jobs: a peer may repeat all its requests while the first answers still wait.
const fn job_limit(depth: usize) -> usize {
    2 * depth + 2
}

/// Returns true if a READ request for `tail` at `psn` is a part of `found`, up to its end or less.
fn tail_of(found: &Resource, psn: Psn, tail: &Reth, mtu: u32) -> bool {
    let Resource::Read {
        reth,
        first,
        packets,
    } = found
    else {
        return false;
    };
    let Ok(index) = u32::try_from(psn.distance(*first)) else {
        return false;
    };
    if index >= *packets {
        return false;
    }
    let offset = index * mtu;
    tail.rkey == reth.rkey
        && tail.va == reth.va.wrapping_add(u64::from(offset))
        && tail.length <= reth.length.saturating_sub(offset)
}
