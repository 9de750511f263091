//! Queue pairs: reliable connection (RC) and unreliable datagram (UD).
//!
//! `requester` decides what to send next, `completer` what an answer means, `responder` what a request does,
//! `answers` what it draws, `keepalive` asks whether a silent peer is still there, `datagram` does UD. `ring`, `window`, `timer` and `state` are what they are made of.

mod answers;
mod completer;
mod datagram;
mod keepalive;
pub(crate) mod outgoing;
mod requester;
mod responder;
pub(crate) mod ring;
mod state;
mod timer;
mod window;

pub use state::{QpInput, QpState};
pub(crate) use timer::repetitions;
pub use timer::rnr_wait;

use std::collections::TryReserveError;
use std::net::SocketAddr;
use std::time::Duration;

use dat_handshake::Agreement;

use crate::event::{CmId, Event};
use crate::memory::{Access, Memory, Pd, Rights};
use crate::outputs::{Context, Outputs};
use crate::psn::{Psn, Qpn};
use crate::time::Time;
use crate::wire::Packet;
use crate::work::{CompletedOp, Completion, CqId, PostError, SendRequest, Sge, SrqId, Status};
use keepalive::KeepAlive;
use outgoing::Outgoing;
use requester::Requester;
use responder::Responder;
use ring::{Receive, Ring};

/// Kind of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpKind {
    /// Reliable connection.
    Rc,
    /// Unreliable datagram; ready at once.
    Ud,
}

/// Arguments of `Engine::create_qp`.
#[derive(Clone, Copy, Debug)]
pub struct QpInit {
    /// Kind.
    pub kind: QpKind,
    /// Protection domain.
    pub pd: Pd,
    /// The driver's name for it; comes back in completions and events.
    pub token: u64,
    /// Completions of requests.
    pub send_cq: CqId,
    /// Completions of receives.
    pub recv_cq: CqId,
    /// Receives come from here instead of the queue pair's own ring.
    pub srq: Option<SrqId>,
    /// Requests outstanding at most.
    pub send_depth: usize,
    /// Receives outstanding at most.
    pub recv_depth: usize,
    /// SGEs a work request at most.
    pub max_sge: usize,
    /// Remote rights of the peer (`REMOTE_*`).
    pub access: Rights,
    /// Q_Key, for UD.
    pub qkey: u32,
}

/// The way to a connected peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Its address and UDP port.
    pub remote: SocketAddr,
    /// Its queue pair.
    pub qpn: Qpn,
    /// Path MTU: 256, 512, 1024, 2048 or 4096.
    pub mtu: u16,
    /// First PSN that we send.
    pub send_psn: Psn,
    /// First PSN that we expect.
    pub receive_psn: Psn,
    /// READs and atomics outstanding towards the peer at most.
    pub initiator_depth: u8,
    /// READs and atomics of the peer remembered at most.
    pub responder_resources: u8,
    /// Timeouts in a row before giving up, 0..=7.
    pub retry_count: u8,
    /// RNR NAKs in a row before giving up; 7 is for ever.
    pub rnr_retry: u8,
    /// What both ends can do beyond RoCE.
    pub agreement: Agreement,
}

/// First packets of a peer that may be lost before one is heard.
const NEAR: i32 = 1024;

/// The memory of a packet is gone.
pub(crate) struct Inaccessible;

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) qpn: Qpn,
    pub(crate) init: QpInit,
    pub(crate) path: Option<Path>,
    pub(crate) cm: Option<CmId>,
    /// On the engine's ready list.
    pub(crate) queued: bool,
    /// Time of the engine's earliest timer entry for this queue pair.
    pub(crate) armed: Option<Time>,
    /// The first valid packet tells the connection manager that the peer is ready.
    awaits_data: bool,
    keepalive: KeepAlive,
    state: QpState,
    receives: Ring<Receive>,
    requester: Requester,
    responder: Responder,
}

impl Qp {
    /// A queue pair whose receives have up to `recv_sge` SGEs.
    pub(crate) fn new(qpn: Qpn, init: QpInit, recv_sge: usize) -> Result<Self, TryReserveError> {
        let recv_depth = if init.srq.is_some() {
            0
        } else {
            init.recv_depth
        };
        let mut qp = Self {
            qpn,
            path: None,
            cm: None,
            queued: false,
            armed: None,
            awaits_data: false,
            keepalive: KeepAlive::default(),
            state: QpState::Init,
            receives: Ring::new(recv_depth, init.max_sge)?,
            requester: Requester::new(Ring::new(init.send_depth, init.max_sge)?),
            responder: Responder::new(recv_sge)?,
            init,
        };
        qp.begin();
        Ok(qp)
    }

    /// Datagrams need no connection.
    fn begin(&mut self) {
        if self.init.kind == QpKind::Ud {
            self.step(QpInput::Receive);
            self.step(QpInput::Send);
        }
    }

    /// Makes room for what a connection with these numbers of READs and atomics, out and in, has to remember.
    pub(crate) fn reserve(
        &mut self,
        initiator_depth: u8,
        responder_resources: u8,
    ) -> Result<(), TryReserveError> {
        self.requester.reserve(initiator_depth.into())?;
        self.responder.reserve(responder_resources.into())
    }

    pub(crate) const fn state(&self) -> QpState {
        self.state
    }

    pub(crate) const fn awaits_data(&self) -> bool {
        self.awaits_data
    }

    pub(crate) fn await_data(&mut self, on: bool) {
        self.awaits_data = on;
        if !on {
            self.asked_enough();
        }
    }

    /// Returns true if `packet` can be from a peer that has our REP: it names a PSN that only the REP tells.
    pub(crate) fn agrees(&self, packet: &Packet<'_>) -> bool {
        let first = match packet.opcode.request() {
            Some(_) => self.responder.expected,
            None => self.requester.una,
        };
        // The first packets may be lost; a question, and the answer to one, is just before.
        (-1..NEAR).contains(&packet.bth.psn.distance(first))
    }

    fn step(&mut self, input: QpInput) -> bool {
        let Some(next) = self.state.step(input) else {
            return false;
        };
        tracing::trace!(qpn = ?self.qpn, from = ?self.state, to = ?next, "queue pair");
        self.state = next;
        true
    }

    /// Connects: from Init to ReadyToSend. `false` from any other state. Allocates nothing if [`reserve`](Self::reserve) was
    /// called for as much.
    pub(crate) fn connect(&mut self, path: Path, max_window: u32) -> bool {
        if !self.step(QpInput::Receive) || !self.step(QpInput::Send) {
            return false;
        }
        self.requester.connect(&path, max_window);
        self.responder.connect(&path);
        self.path = Some(path);
        true
    }

    /// The local side of an access; key and right are filled in where they are known.
    pub(crate) const fn access(&self) -> Access {
        Access {
            key: 0,
            pd: self.init.pd,
            qpn: self.qpn,
            need: Rights::LOCAL_READ,
        }
    }

    /// Queues a request; in Error it is flushed at once.
    pub(crate) fn post_send<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        match self.state {
            QpState::ReadyToSend | QpState::Error => {}
            state => return Err(PostError::State(state)),
        }
        let mtu = match self.init.kind {
            QpKind::Ud => Some(cx.config.mtu),
            QpKind::Rc => None,
        };
        self.requester.admit(request, mtu)?;
        cx.out.expect(self.init.send_cq)?;
        self.requester.post(request);
        if self.state == QpState::Error {
            self.flush_sends(cx);
        }
        Ok(())
    }

    /// Queues a receive; in Error it is flushed at once.
    pub(crate) fn post_recv<M>(
        &mut self,
        cx: &mut Context<'_, M>,
        wr_id: u64,
        sges: &[Sge],
    ) -> Result<(), PostError> {
        if self.init.srq.is_some() {
            return Err(PostError::Unsupported("receives of its own beside an SRQ"));
        }
        let length = self.receives.admit(sges)?;
        cx.out.expect(self.init.recv_cq)?;
        self.receives.post(wr_id, length, sges);
        if self.state == QpState::Error {
            self.flush_receives(cx);
        }
        Ok(())
    }

    /// A packet for this queue pair, from its peer, with a right ICRC.
    pub(crate) fn handle<M: Memory>(&mut self, cx: &mut Context<'_, M>, packet: &Packet<'_>) {
        self.keepalive.heard();
        if packet.opcode.request().is_some() {
            self.handle_request(cx, packet);
        } else if packet.opcode.is_response() {
            self.handle_response(cx, packet);
        }
    }

    /// The next packet to send, if there is one; `hold`: not an acknowledgement that can wait. Idempotent until
    /// [`sent`](Self::sent).
    pub(crate) fn next<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        hold: bool,
    ) -> Option<Outgoing> {
        if self.init.kind == QpKind::Ud {
            return self.next_datagram(cx);
        }
        // Each by itself: a packet to be is large, and chained options copy it.
        let urgent = self.next_answer(cx);
        if urgent.is_some() {
            return urgent;
        }
        let urgent = self.next_ack(cx, true);
        if urgent.is_some() {
            return urgent;
        }
        let request = self.next_request(cx);
        if request.is_some() {
            return request;
        }
        let question = self.next_question();
        if question.is_some() || hold {
            return question;
        }
        self.next_ack(cx, false)
    }

    /// Is an acknowledgement owed?
    pub(crate) const fn owes_ack(&self) -> bool {
        self.responder.ack.is_some()
    }

    /// The PSN that the peer has to send next, once there was a connection.
    pub(crate) fn expected(&self) -> Option<Psn> {
        self.path.as_ref().map(|_| self.responder.expected)
    }

    /// What was received is acknowledged once more: the connection ends, and there will be nobody to repeat a lost acknowledgement.
    pub(crate) fn acknowledge_again(&mut self, now: Time) {
        if self.path.is_some() && self.responder.msn != 0 {
            self.responder.want_ack(now, Duration::ZERO);
        }
    }

    /// Are requests on their way?
    pub(crate) fn in_flight(&self) -> bool {
        self.requester.una != self.requester.high
    }

    /// Writes `packet` but for its ICRC to `out`, at `at` of the driver's buffer. If its payload is lent, returns the CRC-32 with
    /// it. `Err`: its memory is no longer accessible, which was dealt with; ask for the next.
    pub(crate) fn write<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Outgoing,
        at: usize,
        out: &mut [u8],
    ) -> Result<Option<u32>, Inaccessible> {
        let sges = match packet.payload {
            outgoing::Payload::Request { seq, .. } => self.requester.sges(seq),
            _ => &[],
        };
        let error = match packet.write(cx.memory, self.access(), sges, at, out) {
            Ok(lent) => return Ok(lent),
            Err(error) => error,
        };
        tracing::debug!(qpn = ?self.qpn, %error, "payload is not accessible");
        match packet.payload {
            outgoing::Payload::Remote { .. } => self.refuse_read(cx, packet.bth.psn),
            outgoing::Payload::Request { seq, .. } => {
                self.fail_request(cx, seq, Status::LocalProtection);
            }
            outgoing::Payload::Empty => {}
        }
        Err(Inaccessible)
    }

    /// `packet` went out.
    pub(crate) fn sent<M: Memory>(&mut self, cx: &mut Context<'_, M>, packet: &Outgoing) {
        if self.init.kind == QpKind::Ud {
            self.datagram_sent(cx);
        } else if packet.headers.aeth.is_some()
            || matches!(packet.payload, outgoing::Payload::Remote { .. })
        {
            self.answer_sent(packet);
        } else if self.is_question(packet) {
            self.question_sent();
        } else {
            self.request_sent(cx, packet);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is wanted. An acknowledgement that is due waits for
    /// [`next`](Self::next), not for a timer.
    pub(crate) fn deadline(&self, now: Time) -> Option<Time> {
        let requester = self.requester.deadline();
        let ack = self.responder.ack_deadline().filter(|due| *due > now);
        let first = |a: Option<Time>, b: Option<Time>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        first(first(requester, ack), self.keepalive.deadline())
    }

    /// Has a deadline passed?
    pub(crate) fn is_due(&self, now: Time) -> bool {
        let passed = |deadline: Option<Time>| deadline.is_some_and(|at| at <= now);
        passed(self.requester.deadline())
            || passed(self.responder.ack_deadline())
            || passed(self.keepalive.deadline())
    }

    /// The deadline may have passed.
    pub(crate) fn handle_timeout<M: Memory>(&mut self, cx: &mut Context<'_, M>) {
        if self.state.sends() {
            self.requester_timeout(cx);
        }
        if self.state.sends() {
            self.keepalive_timeout(cx);
        }
    }

    /// To Error, everything flushed. `raise` tells the driver why.
    pub(crate) fn fail<M>(&mut self, cx: &mut Context<'_, M>, raise: Option<Status>) {
        if self.state == QpState::Error {
            return;
        }
        self.step(QpInput::Fail);
        if let Some(status) = raise {
            tracing::debug!(qpn = ?self.qpn, ?status, "queue pair failed");
            cx.out.events.push_back(Event::QpError {
                qpn: self.qpn,
                connection: self.cm,
                token: self.init.token,
                status,
            });
        }
        self.requester.stop();
        self.keepalive = KeepAlive::default();
        self.flush_sends(cx);
        if let Some(receive) = self.responder.abandon() {
            self.complete_receive(cx, receive.wr_id, Status::Flushed);
        }
        self.flush_receives(cx);
    }

    /// Back to Init, as new; nothing is completed. The memory of its queues stays.
    pub(crate) fn reset(&mut self, out: &mut Outputs) {
        self.forget(out);
        self.receives.clear();
        self.requester.reset();
        self.responder.reset();
        self.path = None;
        self.cm = None;
        self.awaits_data = false;
        self.keepalive = KeepAlive::default();
        self.state = QpState::Init;
        self.begin();
    }

    /// What is outstanding will not complete.
    pub(crate) fn forget(&self, out: &mut Outputs) {
        out.settle(self.init.send_cq, self.requester.ring.len());
        let taken = u32::from(self.responder.holds_receive());
        out.settle(self.init.recv_cq, self.receives.len() + taken);
    }

    fn flush_sends<M>(&mut self, cx: &mut Context<'_, M>) {
        while let Some((wr_id, op)) = self.requester.pop() {
            self.complete_send(cx, wr_id, op, Status::Flushed, 0);
        }
    }

    fn flush_receives<M>(&mut self, cx: &mut Context<'_, M>) {
        while let Some(receive) = self.receives.pop() {
            self.complete_receive(cx, receive.wr_id, Status::Flushed);
        }
    }

    /// Takes a receive, its SGEs to the responder.
    fn take_receive<M>(&mut self, cx: &mut Context<'_, M>) -> Option<Receive> {
        match self.init.srq {
            Some(srq) => {
                let cq = self.init.recv_cq;
                cx.out.take_from_srq(srq, cq, self.responder.sges_mut())
            }
            None => self.receives.take(self.responder.sges_mut()),
        }
    }

    fn complete_send<M>(
        &self,
        cx: &mut Context<'_, M>,
        wr_id: u64,
        op: CompletedOp,
        status: Status,
        length: u32,
    ) {
        let completion = Completion {
            status,
            op,
            length,
            ..self.completion(wr_id)
        };
        cx.out.complete(self.init.send_cq, completion);
    }

    fn complete_receive<M>(&self, cx: &mut Context<'_, M>, wr_id: u64, status: Status) {
        let completion = Completion {
            status,
            op: CompletedOp::Receive,
            ..self.completion(wr_id)
        };
        cx.out.complete(self.init.recv_cq, completion);
    }

    fn completion(&self, wr_id: u64) -> Completion {
        Completion {
            wr_id,
            token: self.init.token,
            qpn: self.qpn,
            ..Completion::default()
        }
    }
}
