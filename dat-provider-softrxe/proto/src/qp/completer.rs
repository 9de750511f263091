//! The completer: handles answers to the requester's packets (IBTA 9.7.5, 9.9.2).

use super::Qp;
use super::incoming::{Arrived, Incoming};
use super::outgoing::psns;
use super::timeout_lengths::rnr_wait;
use super::wqe::Wqe;
use crate::memory::{AccessError, Memory};
use crate::near::MAX_LENT;
use crate::opcode::Opcode;
use crate::outputs::Context;
use crate::psn::Psn;
use crate::wire::{Nak, Syndrome};
use crate::work::Status;

impl Qp {
    pub(super) fn handle_response<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Incoming<'_>,
    ) {
        if !self.state.sends() {
            return;
        }
        let (psn, r) = (packet.bth.psn, &mut self.requester);
        if psn.is_before(r.una) {
            if r.retries == 0 {
                r.round_trip.answered_again(cx.now);
            }
            return;
        }
        // A NAK for a missing PSN may name the PSN after the newest.
        if psn.distance(r.high) > 0 {
            return;
        }
        if packet.opcode != Opcode::Acknowledge {
            if psn.is_before(r.high) {
                self.handle_data(cx, packet);
            }
            return;
        }
        let syndrome = packet.headers.aeth.map(|aeth| aeth.syndrome);
        match syndrome.and_then(Syndrome::from_wire) {
            Some(Syndrome::Ack(_)) => self.handle_ack(cx, psn),
            Some(Syndrome::Rnr(code)) if psn.is_before(r.high) => self.not_ready(cx, psn, code),
            Some(Syndrome::Nak(nak)) => self.handle_nak(cx, psn, nak),
            _ => cx.out.counters.malformed += 1,
        }
    }

    /// Handles a positive acknowledgement of everything up to `psn`.
    pub(super) fn handle_ack<M>(&mut self, cx: &mut Context<'_, M>, psn: Psn) {
        let r = &self.requester;
        if !self.state.sends() || psn.is_before(r.una) || !psn.is_before(r.high) {
            return;
        }
        self.acknowledge(cx, psn.plus(1));
        // The responder answers in order, so the response of a READ or atomic that is now the oldest was lost.
        if !self.requester.una.distance(psn).is_positive() {
            self.handle_gap(cx);
        }
    }

    /// Acknowledges everything before `psn`: the peer's DREQ states that it was received.
    pub(crate) fn acknowledge_final<M>(&mut self, cx: &mut Context<'_, M>, psn: Psn) {
        let r = &self.requester;
        if self.state.sends() && !psn.is_before(r.una) && psn.distance(r.high) <= 0 {
            self.acknowledge(cx, psn);
        }
    }

    /// Fails the request at `psn`: the peer's DREQ states that it was refused. The NAK was lost, or waits where the DREQ overtook it.
    pub(crate) fn refused_final<M>(&mut self, cx: &mut Context<'_, M>, psn: Psn, nak: Nak) {
        let r = &self.requester;
        if !self.state.sends() || psn.is_before(r.una) || !psn.is_before(r.high) {
            return;
        }
        self.acknowledge(cx, psn);
        // A READ or atomic before it that has no response is flushed with all others.
        if self.requester.una == psn
            && let Some(status) = status_of(nak)
        {
            self.fail_head(cx, status);
        }
    }

    /// Handles a NAK. Everything before `psn` is acknowledged.
    fn handle_nak<M>(&mut self, cx: &mut Context<'_, M>, psn: Psn, nak: Nak) {
        self.acknowledge(cx, psn);
        let r = &mut self.requester;
        let is_oldest = r.una == psn;
        let Some(status) = status_of(nak) else {
            if is_oldest {
                r.gone_back_at = None;
            }
            self.handle_gap(cx);
            return;
        };
        // The peer's queue pair is in Error and answers no repetition. A READ before the refused request completes if its response was
        // overtaken, which needs a link that reorders; else it fails, as the refused request would.
        if is_oldest || r.path.lossless {
            self.fail_head(cx, status);
        } else {
            r.refused.get_or_insert((psn, status));
        }
    }

    /// Fails the refused request, if the responses to all READs and atomics before it have arrived. The refusal acknowledges all other
    /// requests before it.
    fn fail_refused<M>(&mut self, cx: &mut Context<'_, M>) {
        let Some((psn, status)) = self.requester.refused else {
            return;
        };
        self.acknowledge(cx, psn);
        if self.requester.una == psn {
            self.fail_head(cx, status);
        }
    }

    fn not_ready<M>(&mut self, cx: &mut Context<'_, M>, psn: Psn, code: u8) {
        cx.out.counters.rnr_received += 1;
        self.acknowledge(cx, psn);
        let r = &mut self.requester;
        if r.una != psn {
            self.handle_gap(cx);
            return;
        }
        // Nothing was sent since the last one, so this RNR NAK is a copy or answers a copy of the same packet.
        if r.rnr_until.is_some() {
            return;
        }
        if r.path.rnr_retry != 7 {
            if r.rnr_retries == 0 {
                self.fail_head(cx, Status::RnrRetryExceeded);
                return;
            }
            r.rnr_retries -= 1;
        }
        // A peer that answers RNR is alive.
        r.retries = 0;
        r.round_trip.not_ready();
        r.go_back();
        r.gone_back_at = None;
        // The queue pair's next deadline, in place of the retransmission timer.
        r.rnr_until = Some(cx.now + rnr_wait(code));
        r.timer = None;
    }

    /// Handles a READ response or the result of an atomic.
    fn handle_data<M: Memory>(&mut self, cx: &mut Context<'_, M>, packet: &Incoming<'_>) {
        let psn = packet.bth.psn;
        self.acknowledge(cx, psn);
        let r = &self.requester;
        if r.una != psn {
            self.handle_gap(cx);
            return;
        }
        let head = r.ring.head();
        let Some((wqe, (start, packets))) = r.ring.get(head).and_then(|w| Some((*w, w.span?)))
        else {
            return;
        };
        let done = if packet.opcode.is_read_response() {
            self.place_read(cx, head, &wqe, psn.distance(start) as u32, packet)
        } else {
            self.place_atomic(cx, head, &wqe, packet.headers.original)
        };
        match done {
            None => cx.out.counters.malformed += 1,
            Some(Err(AccessError::Withdrawn { .. })) => {
                cx.out.counters.withdrawn += 1;
                self.handle_gap(cx);
            }
            Some(Err(error)) => {
                tracing::debug!(qpn = ?self.qpn, %error, "response cannot be placed");
                self.fail_head(cx, Status::LocalProtection);
            }
            Some(Ok(())) => {
                let length = packet.payload.len() as u32;
                let end = psn.plus(psns(length, self.requester.path.mtu));
                self.advance(cx, end);
                if end == start.plus(packets) {
                    self.complete_head(cx);
                }
                self.complete_local(cx);
                self.fail_refused(cx);
            }
        }
    }

    /// Places a READ response packet. Returns `None` if it does not belong to the request. The opcode's position in the
    /// message is not checked: rxe answers the tail of a READ with Middle and Last.
    fn place_read<M: Memory>(
        &self,
        cx: &Context<'_, M>,
        seq: u32,
        wqe: &Wqe,
        index: u32,
        packet: &Incoming<'_>,
    ) -> Option<Result<(), AccessError>> {
        let mtu = self.requester.path.mtu;
        let offset = index * mtu;
        let left = wqe.length.checked_sub(offset)?;
        let length = packet.payload.len() as u32;
        let full = if packet.payload.is_lent() {
            let ends = length == left || length.is_multiple_of(mtu);
            ends && (1..=left.min(MAX_LENT)).contains(&length)
        } else {
            length == left.min(mtu)
        };
        if !matches!(wqe.op, crate::work::Op::Read(_)) || !full {
            return None;
        }
        Some(self.scatter(cx, seq, offset, &packet.payload))
    }

    fn place_atomic<M: Memory>(
        &self,
        cx: &Context<'_, M>,
        seq: u32,
        wqe: &Wqe,
        original: Option<u64>,
    ) -> Option<Result<(), AccessError>> {
        let atomic = wqe.has_response() && !matches!(wqe.op, crate::work::Op::Read(_));
        let original = original.filter(|_| atomic)?;
        Some(self.scatter(cx, seq, 0, &Arrived::Bytes(&original.to_ne_bytes())))
    }

    fn scatter<M: Memory>(
        &self,
        cx: &Context<'_, M>,
        seq: u32,
        offset: u32,
        data: &Arrived<'_>,
    ) -> Result<(), AccessError> {
        let sges = self.requester.sges(seq);
        self.for_each_received(sges, offset, data.len(), |access, va, range| {
            data.place(cx.memory, access, va, range)
        })
    }

    /// Acknowledges everything before `end`, up to the first request that needs a response.
    fn acknowledge<M>(&mut self, cx: &mut Context<'_, M>, end: Psn) {
        let mut una = self.requester.una;
        // Requests that end without a completion. Timers and reservations are renewed once for all of them.
        let mut silent = 0;
        while una.is_before(end) {
            let r = &mut self.requester;
            if r.ring.head() == r.ring.tail() {
                break;
            }
            let Some(wqe) = r.ring.get(r.ring.head()) else {
                break;
            };
            let Some((start, packets)) = wqe.span else {
                break;
            };
            if wqe.has_response() {
                break;
            }
            let after = start.plus(packets);
            if end.is_before(after) {
                una = end;
                break;
            }
            una = after;
            if wqe.signaled {
                self.complete_head(cx);
            } else {
                r.remove_head();
                silent += 1;
            }
            if self.requester.is_local_next() {
                self.advance(cx, una);
                self.complete_local(cx);
            }
        }
        self.advance(cx, una);
        if silent > 0 {
            cx.out.release_completions(self.init.send_cq, silent);
        }
    }

    /// Moves `una` on to `to`, and restarts timers and retries.
    fn advance<M>(&mut self, cx: &Context<'_, M>, to: Psn) {
        let r = &mut self.requester;
        let count = to.distance(r.una).max(0) as u32;
        if count == 0 {
            return;
        }
        r.window.acknowledged(count);
        r.una = to;
        let restored = r.round_trip.answered(to, cx.now, cx.config.ack_timeout);
        if let Some(window) = restored {
            r.window = window;
        }
        if r.next.is_before(to) {
            r.next = to;
        }
        while r.reads.front().is_some_and(|last| last.is_before(to)) {
            r.reads.pop_front();
        }
        r.progressed(cx.now, cx.config.ack_timeout);
    }

    /// Completes the oldest request.
    pub(super) fn complete_head<M>(&mut self, cx: &mut Context<'_, M>) {
        let r = &mut self.requester;
        let Some(wqe) = r.ring.get(r.ring.head()) else {
            return;
        };
        if wqe.signaled {
            let (wr_id, op, length) = (wqe.wr_id, wqe.completed_op(), wqe.length);
            r.remove_head();
            self.complete_send(cx, wr_id, op, Status::Success, length);
        } else {
            r.remove_head();
            cx.out.release_completions(self.init.send_cq, 1);
        }
    }

    /// Completes executed local requests that are now the oldest.
    pub(super) fn complete_local<M>(&mut self, cx: &mut Context<'_, M>) {
        while self.requester.is_local_next() {
            let r = &self.requester;
            if let Some((seq, status)) = r.failed
                && seq == r.ring.head()
            {
                self.fail_head(cx, status);
                return;
            }
            self.complete_head(cx);
        }
    }
}

/// Returns the status of the request that a NAK refuses; `None` if the NAK only asks for a repetition.
const fn status_of(nak: Nak) -> Option<Status> {
    match nak {
        Nak::SequenceError => None,
        Nak::InvalidRequest => Some(Status::RemoteInvalidRequest),
        Nak::RemoteAccess => Some(Status::RemoteAccess),
        Nak::RemoteOperation => Some(Status::RemoteOperation),
    }
}
