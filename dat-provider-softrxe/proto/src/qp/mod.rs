//! Queue pairs: reliable connection (RC) and unreliable datagram (UD).
//!
//! `requester` decides what to send next, `request_packet` makes the packet, `retransmission` repeats it, `completer` handles the answers.
//! `responder` orders received requests, `execute` executes them, `refusal` refuses them, `answers` sends the answers. `express` is a
//! shorter way for most records of a channel. `keepalive` probes silent peers, `failure` ends a queue pair, `datagram` implements UD. They
//! are built of `wqe`, `ring`, `send_window`, `timeout_lengths`, `round_trip` and `state`.

mod answers;
mod completer;
mod datagram;
mod execute;
pub(crate) mod express;
mod failure;
pub(crate) mod incoming;
mod keepalive;
pub(crate) mod outgoing;
mod parameters;
mod refusal;
mod request_packet;
mod requester;
mod responder;
mod retransmission;
pub(crate) mod ring;
mod round_trip;
mod send_window;
mod state;
mod timeout_lengths;
mod wqe;

pub use parameters::{Path, QpInit, QpKind};
pub use state::{QpInput, QpState};
pub(crate) use timeout_lengths::repetitions;
pub use timeout_lengths::rnr_wait;

use std::collections::TryReserveError;
use std::time::Duration;

use dat_handshake::Capabilities;

use crate::event::CmId;
use crate::memory::{Access, AccessError, Memory, Rights};
use crate::near::{Link, NearOut};
use crate::outputs::{Context, Outputs};
use crate::psn::{Psn, Qpn};
use crate::time::Time;
use crate::wire::Nak;
use crate::work::{CompletedOp, Completion, PostError, SendRequest, Sge, Status};
use incoming::Incoming;
use keepalive::KeepAlive;
use outgoing::{Outgoing, Role};
use requester::Requester;
use responder::Responder;
use ring::{Receive, Ring, for_each_part};

/// Limit of a peer's first packets that may be lost before one arrives.
const MAX_LOST_FIRST: i32 = 1024;

/// Longest payload of a datagram that carries an acknowledgement behind its headers, so that it fits whatever the MTU is.
const MAX_ACKNOWLEDGING: usize = 128;

/// Bytes of records that passed through a channel since it began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) sent: u64,
    /// Consumed by the peer.
    pub(crate) freed: u64,
}

/// Error: the memory of a packet's payload is gone.
pub(crate) struct Inaccessible;

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) qpn: Qpn,
    pub(crate) init: QpInit,
    pub(crate) path: Option<Path>,
    pub(crate) cm: Option<CmId>,
    /// The queue pair is on the ready list of its link, or on a list of acknowledgements that are held back.
    pub(crate) queued: bool,
    /// It is on its channel's list of acknowledgements that are held back, not on the ready list.
    pub(crate) held: bool,
    /// Time of the engine's earliest timer entry for this queue pair.
    pub(crate) armed: Option<Time>,
    /// The first valid packet is an input of the connection: the peer is ready.
    awaits_data: bool,
    keepalive: KeepAlive,
    state: QpState,
    receives: Ring<Receive>,
    requester: Requester,
    responder: Responder,
}

impl Qp {
    /// Creates a queue pair whose receives have up to `recv_sge` SGEs.
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
            held: false,
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

    /// Makes a UD queue pair ready, as it needs no connection.
    fn begin(&mut self) {
        if self.init.kind == QpKind::Ud {
            self.step(QpInput::Receive);
            self.step(QpInput::Send);
        }
    }

    /// Allocates what a connection with these numbers of READs and atomics, out and in, has to keep.
    pub(crate) fn reserve(
        &mut self,
        initiator_depth: u8,
        responder_resources: u8,
    ) -> Result<(), TryReserveError> {
        self.requester.reserve(initiator_depth.into())?;
        self.responder.reserve(responder_resources.into())
    }

    /// Returns the link of the connection; the wire without one.
    pub(crate) fn link(&self) -> Link {
        self.path.as_ref().map_or(Link::Wire, |path| path.link)
    }

    /// Records that the channel has ended.
    pub(crate) fn link_down(&mut self) {
        if let Some(path) = &mut self.path {
            path.link = Link::Down;
        }
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
            self.stop_probing();
        }
    }

    /// Returns true if `packet` shows that the peer has our REP: it has a PSN that only the REP contains.
    pub(crate) fn has_psn_of_rep(&self, packet: &Incoming<'_>) -> bool {
        let first = match packet.opcode.request() {
            Some(_) => self.responder.expected,
            None => self.requester.una,
        };
        // The first packets may be lost. A probe, and the answer to one, has the PSN before.
        (-1..MAX_LOST_FIRST).contains(&packet.bth.psn.distance(first))
    }

    fn step(&mut self, input: QpInput) -> bool {
        let Some(next) = self.state.step(input) else {
            return false;
        };
        tracing::trace!(qpn = ?self.qpn, from = ?self.state, to = ?next, "queue pair");
        self.state = next;
        true
    }

    /// Connects: from Init to ReadyToSend. Returns false in any other state. Allocates nothing if
    /// [`reserve`](Self::reserve) was called with the same numbers.
    pub(crate) fn connect(&mut self, path: Path, max_window: u32, max_reads: u32) -> bool {
        if !self.step(QpInput::Receive) || !self.step(QpInput::Send) {
            return false;
        }
        self.requester.connect(&path, max_window, max_reads);
        self.responder.connect(&path);
        self.path = Some(path);
        true
    }

    /// Returns an access of the local side; the caller sets key and right.
    pub(crate) const fn access(&self) -> Access {
        Access {
            key: 0,
            pd: self.init.pd,
            qpn: self.qpn,
            need: Rights::LOCAL_READ,
        }
    }

    /// Calls `place(access, address, range of the message)` for each part of `sges` that holds a part of `offset..offset + length` of a
    /// message that arrived.
    #[inline]
    fn for_each_received(
        &self,
        sges: &[Sge],
        offset: u32,
        length: usize,
        mut place: impl FnMut(&Access, u64, std::ops::Range<usize>) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        for_each_part(sges, offset, length, |va, key, range| {
            place(&self.receive_access(key), va, range)
        })
    }

    /// Returns the access of a received message to the memory of `key`.
    fn receive_access(&self, key: u32) -> Access {
        Access {
            key,
            need: Rights::LOCAL_WRITE,
            ..self.access()
        }
    }

    /// Queues a request. In state Error it is flushed at once.
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
        let length = self.requester.admit(request, mtu, self.state.sends())?;
        cx.out.reserve_completion(self.init.send_cq)?;
        self.requester.post(request, length);
        self.requester.start_timer(cx.now, cx.config.ack_timeout);
        if self.state == QpState::Error {
            self.flush_sends(cx);
        }
        Ok(())
    }

    /// Queues a receive. In state Error [`flush_receives`](Self::flush_receives) has to follow.
    #[inline(always)]
    pub(crate) fn post_recv(
        &mut self,
        out: &mut Outputs,
        wr_id: u64,
        sges: &[Sge],
    ) -> Result<(), PostError> {
        if self.init.srq.is_some() {
            return Err(PostError::Unsupported(
                "receives of its own in addition to an SRQ",
            ));
        }
        let length = self.receives.admit(sges)?;
        out.reserve_completion(self.init.recv_cq)?;
        self.receives.post(wr_id, length, sges);
        Ok(())
    }

    /// Handles a packet from the peer, whose ICRC is right.
    pub(crate) fn handle<M: Memory>(&mut self, cx: &mut Context<'_, M>, packet: &Incoming<'_>) {
        self.keepalive.packet_received();
        if let Some(psn) = packet.acknowledged {
            self.handle_ack(cx, psn);
        }
        if packet.opcode.request().is_some() {
            self.handle_request(cx, packet);
        } else if packet.opcode.is_response() {
            self.handle_response(cx, packet);
        }
    }

    /// Records that the channel has carried `until` bytes of records, the last of which is of this queue pair.
    pub(crate) const fn sent_until(&mut self, until: u64) {
        self.requester.sent_until = until;
    }

    /// Returns the next packet to send. With `hold`, an acknowledgement that can wait is not returned. Idempotent until
    /// [`sent`](Self::sent).
    pub(crate) fn next<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        hold: bool,
    ) -> Option<Outgoing> {
        if self.init.kind == QpKind::Ud {
            return self.next_datagram();
        }
        // One after the other: an `Outgoing` is large, and chained options would copy it.
        let urgent = self.next_answer(cx);
        if urgent.is_some() {
            return urgent;
        }
        let urgent = self.next_ack(cx, true);
        if urgent.is_some() {
            return urgent;
        }
        let mut request = self.next_request(cx);
        if let Some(packet) = &mut request {
            if self.responder.ack.is_some() {
                if self.may_acknowledge(packet) {
                    packet.acknowledge(self.responder.acknowledged());
                }
                // The peer's request completes before the message that answers it, as with adapters.
                let goes_first = !packet.acknowledges && packet.completes_a_receive();
                if goes_first && !self.requester.path.lossless {
                    return self.next_ack_at_once();
                }
            }
            return request;
        }
        let probe = self.next_probe();
        if probe.is_some() || hold {
            return probe;
        }
        self.next_ack(cx, false)
    }

    /// Returns true if the peer reads an acknowledgement behind the headers of `packet`. Over UDP only one that is short and goes alone: in a
    /// run of several the first may not be shorter than the others, nor the last longer.
    fn may_acknowledge(&self, packet: &Outgoing) -> bool {
        let reads = |path: &Path| path.agreement.has(Capabilities::REQUEST_ACKNOWLEDGES);
        self.requester.path.lossless
            || packet.length <= MAX_ACKNOWLEDGING
                && self.requester.is_at_last()
                && self.path.as_ref().is_some_and(reads)
    }

    /// Returns true if there may be something to send.
    pub(crate) fn has_output(&self) -> bool {
        self.responder.has_output() || self.requester.has_output() || self.wants_to_probe()
    }

    /// Returns true if there may be more to send than an acknowledgement that can wait.
    pub(crate) fn has_urgent_output<M>(&self, cx: &Context<'_, M>) -> bool {
        self.responder.has_urgent_output(cx.config.ack_every)
            || self.requester.has_output()
            || self.wants_to_probe()
    }

    /// Returns true if an acknowledgement is owed.
    pub(crate) const fn owes_ack(&self) -> bool {
        self.responder.ack.is_some()
    }

    /// Returns the PSN that the peer has to send next, once there was a connection.
    pub(crate) fn expected(&self) -> Option<Psn> {
        self.path.as_ref().map(|_| self.responder.expected)
    }

    /// Returns what the peer was refused, once there was a connection.
    pub(crate) fn refusal(&self) -> Option<(Psn, Nak)> {
        self.responder.refusal
    }

    /// Sends the last acknowledgement once more. The connection ends, and nothing will repeat a lost one.
    pub(crate) fn acknowledge_again(&mut self, now: Time) {
        if self.path.is_some() && self.responder.messages != 0 {
            self.responder.schedule_ack(now, Duration::ZERO);
        }
    }

    /// Returns true if requests have not ended.
    pub(crate) const fn has_requests(&self) -> bool {
        self.requester.ring.len() > 0
    }

    /// Returns true if requests are in flight.
    pub(crate) fn in_flight(&self) -> bool {
        self.requester.una != self.requester.high
    }

    /// Writes `packet` without its ICRC to `out`, which is at `at` of the driver's buffer. If the payload is lent, returns
    /// the CRC-32 with it. `Err`: the payload's memory is gone, and the request was failed or refused; ask for the next
    /// packet.
    pub(crate) fn write<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Outgoing,
        at: usize,
        out: &mut [u8],
    ) -> Result<Option<u32>, Inaccessible> {
        let sges = self.sges_of(packet);
        packet
            .write(cx.memory, self.access(), sges, at, out)
            .map_err(|error| self.payload_is_gone(cx, packet, error))
    }

    /// Writes `packet` to the record at hand. `Err`: as with [`write`](Self::write).
    pub(crate) fn write_near<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Outgoing,
    ) -> Result<NearOut, Inaccessible> {
        let sges = self.sges_of(packet);
        packet
            .write_near(cx.memory, self.access(), sges)
            .map_err(|error| self.payload_is_gone(cx, packet, error))
    }

    fn sges_of(&self, packet: &Outgoing) -> &[Sge] {
        match packet.payload {
            outgoing::Payload::Request { seq, .. } => self.requester.sges(seq),
            _ => &[],
        }
    }

    /// Fails the request, or refuses the READ, whose payload cannot be read.
    #[cold]
    fn payload_is_gone<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Outgoing,
        error: AccessError,
    ) -> Inaccessible {
        tracing::debug!(qpn = ?self.qpn, %error, "payload is not accessible");
        match packet.payload {
            outgoing::Payload::Remote { .. } => self.refuse_read(cx, packet.psn),
            outgoing::Payload::Request { seq, .. } => {
                self.fail_request(cx, seq, Status::LocalProtection);
            }
            outgoing::Payload::Empty => {}
        }
        Inaccessible
    }

    /// Records that `packet` was sent.
    pub(crate) fn sent<M: Memory>(&mut self, cx: &mut Context<'_, M>, packet: &Outgoing) {
        if packet.acknowledges {
            self.responder.ack = None;
        }
        match packet.role {
            Role::Request => self.request_sent(cx, packet.psns(self.requester.path.mtu)),
            Role::ResponseWanted(count) => {
                self.request_sent(cx, count);
                self.response_wanted();
            }
            Role::Ack => self.responder.ack = None,
            Role::Nak => self.responder.nak = None,
            Role::Response => self.response_sent(packet.length as u32),
            Role::Probe => self.probe_sent(),
            Role::Datagram => self.datagram_sent(cx),
        }
    }

    /// Returns the time to call [`handle_timeout`](Self::handle_timeout). An acknowledgement that is due needs a call of
    /// [`next`](Self::next), not a timer.
    pub(crate) fn deadline(&self, now: Time) -> Option<Time> {
        let requester = self.requester.deadline();
        let ack = self.responder.ack_deadline().filter(|due| *due > now);
        let first = |a: Option<Time>, b: Option<Time>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        first(first(requester, ack), self.keepalive.deadline())
    }

    /// Returns true if the engine's timer entry is not after the requester's deadline, which is the only one that a post sets.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        let entry = self.armed;
        entry.is_some_and(|at| self.requester.deadline().is_none_or(|due| at <= due))
    }

    /// Returns true if a deadline has passed.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        let passed = |deadline: Option<Time>| deadline.is_some_and(|at| at <= now);
        passed(self.requester.deadline())
            || passed(self.responder.ack_deadline())
            || passed(self.keepalive.deadline())
    }

    /// Handles deadlines that have passed. `progress` is that of the connection's channel.
    pub(crate) fn handle_timeout<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        progress: Progress,
    ) {
        if self.state.sends() {
            self.requester_timeout(cx, progress);
        }
        if self.state.sends() {
            self.keepalive_timeout(cx);
        }
    }

    /// Moves back to Init, as new. Nothing completes, and the memory of the queues is kept.
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

    /// Releases the completions that were reserved for outstanding requests.
    pub(crate) fn forget(&self, out: &mut Outputs) {
        out.release_completions(self.init.send_cq, self.requester.ring.len());
        let taken = u32::from(self.responder.holds_receive());
        out.release_completions(self.init.recv_cq, self.receives.len() + taken);
    }

    /// Takes a receive; its SGEs go to the responder.
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
