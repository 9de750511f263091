//! Steps of connections: executes the actions of the state table, sends messages and repeats them.

use std::time::Duration;

use super::super::Engine;
use super::super::timers::Owner;
use crate::cm::connection::{
    Connection, LastReceived, MAD_DATAGRAM, Mad, PROBE_PACKET, SERVICE_TIMEOUT, request_lifetime,
    request_lifetime_after_mra, timeout_of,
};
use crate::cm::state::{Action, Input, State};
use crate::event::{CmEvent, CmEventKind, CmId, Event, Forwarded, RejectReason};
use crate::memory::Memory;
use crate::psn::Qpn;
use crate::qp::Qp;
use crate::time::Time;

/// Longest pause between repetitions.
const LONGEST_RETRY: Duration = Duration::from_secs(4);
/// Part of a peer's allowance that is reserved for eight probes.
const PROBE_ALLOWANCE: u32 = 8 * PROBE_PACKET;
/// Time for which an ended connection repeats its last message.
pub(super) const TIME_WAIT: Duration = Duration::from_secs(2);

/// Repetitions of a request that was passed on that raise an event, at most. A peer repeats a REQ 15 times; nothing else bounds what a
/// program that does not take the events has to keep.
const MAX_FORWARDED: u8 = 32;

/// Data of a step besides its input.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Details<'a> {
    /// Private data, sent or received.
    pub(super) data: &'a [u8],
    /// Reason, sent or received.
    pub(super) reason: Option<RejectReason>,
    /// Service timeout of an MRA.
    pub(super) service_timeout: u8,
    /// RNR retry count in a REP.
    pub(super) rnr_retry: u8,
    /// DREP to send.
    pub(super) drep: Option<&'a Mad>,
}

impl<M: Memory> Engine<M> {
    /// Executes a step for an input without details.
    pub(in crate::engine) fn cm_step(&mut self, now: Time, id: u32, input: Input) {
        self.cm_step_with(now, id, input, &Details::default());
    }

    /// Executes a step and its actions.
    pub(super) fn cm_step_with(&mut self, now: Time, id: u32, input: Input, details: &Details<'_>) {
        let Some(c) = self.cm.get_mut(id) else { return };
        match input {
            Input::Req => c.add_allowance(),
            // Only a peer that has received our id, or our PSNs, can send these.
            Input::Rtu | Input::Data | Input::Rep | Input::Mra | Input::Dreq | Input::Drep => {
                c.allowance = None;
            }
            _ => {}
        }
        let state = c.state;
        let Some(step) = state.step(input) else {
            return;
        };
        tracing::debug!(id, ?state, ?input, next = ?step.next, "connection");
        let waits = |state| matches!(state, State::ReqReceived | State::MraSent);
        // A request that is given up may come again.
        if waits(state) && !step.next.is_some_and(waits) && input != Input::GiveUp {
            let request = c.request();
            self.cm.answered.add(now, request);
        }
        for action in step.actions {
            self.act(now, id, *action, details);
        }
        let Some(next) = step.next else {
            self.forget(id);
            return;
        };
        self.cm.set_state(id, next);
        if next != state {
            let refuses = step.actions.contains(&Action::SendRej);
            self.entered(now, id, (state, next), refuses);
        }
    }

    /// Does what follows from a change of the state: sets the deadline, releases what the state does not need. `refuses`: the step sent a REJ.
    fn entered(&mut self, now: Time, id: u32, (state, next): (State, State), refuses: bool) {
        let Some(c) = self.cm.get_mut(id) else { return };
        match next {
            // A refused request: the peer has not shown that it receives answers. After an MRA it repeats the request late, and the
            // answer may have been lost.
            State::TimeWait if refuses => {
                let kept_for = match state {
                    State::MraSent => request_lifetime_after_mra(),
                    _ => TIME_WAIT,
                };
                self.cm.release_qp(id);
                self.cm.pending.answered(id, now + kept_for);
                self.arm_requests();
            }
            State::TimeWait | State::DreqSent | State::PassedOn => {
                let kept_for = match (next, state) {
                    (State::TimeWait, _) => Some(TIME_WAIT),
                    (State::PassedOn, State::MraSent) => Some(request_lifetime_after_mra()),
                    (State::PassedOn, _) => Some(request_lifetime()),
                    _ => None,
                };
                if let Some(time) = kept_for {
                    self.set_due(id, now + time);
                }
                self.cm.pending.remove(id);
                self.cm.release_qp(id);
                self.detach(id);
                if let Some(oldest) = self.cm.add_ended(id, self.config.max_ended()) {
                    self.cm_step(now, oldest, Input::GiveUp);
                }
            }
            State::MraSent => {}
            next => {
                if !next.repeats() {
                    c.due = None;
                }
                self.cm.pending.remove(id);
            }
        }
        self.await_data(id, next == State::RepSent);
    }

    fn act(&mut self, now: Time, id: u32, action: Action, details: &Details<'_>) {
        let this = self.identity();
        let Some(c) = self.cm.get(id) else { return };
        let data = details.data;
        match action {
            Action::Repeat => {
                if let Some(last) = c.last.clone() {
                    self.send(id, last);
                }
            }
            Action::SendMra => {
                let mra = c.mra();
                self.send(id, mra);
                self.keep_request(id, now + request_lifetime_after_mra());
            }
            Action::ConnectQp => {
                self.connect_queue_pair(id);
                self.arm_keepalive(now);
            }
            Action::SendRep => {
                let Some(qpn) = c.qpn else { return };
                let rep = c.rep(this, qpn, self.has_srq(qpn), details.rnr_retry, data);
                self.send_until_answered(now, id, rep);
            }
            Action::SendRtu => {
                let rtu = c.rtu();
                self.send_and_keep(id, rtu);
            }
            Action::SendRej => {
                let reason = details.reason.unwrap_or(RejectReason::CONSUMER);
                let rej = c.rej(this.guid, reason, data);
                self.send_and_keep(id, rej);
            }
            Action::SendRejTimeout => {
                let rej = c.rej(this.guid, RejectReason::TIMEOUT, &[]);
                self.send_and_keep(id, rej);
            }
            Action::SendDreq => self.send_dreq(now, id),
            Action::SendDrep => {
                if let Some(drep) = details.drep {
                    self.send_and_keep(id, Box::new(*drep));
                }
            }
            Action::ExtendDeadline => self.extend_deadline(now, id, details.service_timeout),
            Action::FailQp => {
                if let Some(qpn) = c.qpn {
                    self.break_qp(now, qpn);
                }
            }
            Action::Established => self.raise(id, CmEventKind::Established(data.into())),
            Action::Rejected => {
                let kind = CmEventKind::Rejected {
                    reason: details.reason.unwrap_or(RejectReason::CONSUMER),
                    private_data: data.into(),
                };
                self.raise(id, kind);
            }
            Action::TimedOut => self.raise(id, CmEventKind::TimedOut),
            Action::Disconnected => self.raise(id, CmEventKind::Disconnected),
            Action::Forward => {
                let what = match details.reason {
                    None => Forwarded::Repeated,
                    Some(_) => Forwarded::Cancelled,
                };
                self.forward(id, what);
            }
        }
    }

    fn send_dreq(&mut self, now: Time, id: u32) {
        if let Some(dreq) = self.dreq_after_acknowledgement(now, id) {
            self.send_until_answered(now, id, dreq);
        }
    }

    /// Builds the DREQ of a connection, and lets the last acknowledgement go out before it.
    pub(super) fn dreq_after_acknowledgement(&mut self, now: Time, id: u32) -> Option<Box<Mad>> {
        let c = self.cm.get(id)?;
        let qpn = c.qpn;
        let dreq = c.dreq(qpn.and_then(|qpn| self.last_received(qpn)));
        if let Some(slot) = qpn.and_then(|qpn| self.slot(qpn)) {
            self.with_qp(now, slot, |qp, cx| qp.acknowledge_again(cx.now));
            self.enqueue(slot);
        }
        Some(dreq)
    }

    /// Raises an event for the engine that answers the request in place of this one.
    fn forward(&mut self, id: u32, what: Forwarded) {
        let Some(c) = self.cm.get_mut(id) else { return };
        // A peer cancels its request once.
        if what == Forwarded::Cancelled || c.repeated < MAX_FORWARDED {
            c.repeated = c.repeated.saturating_add(1);
            self.raise(id, CmEventKind::Forwarded(what));
        }
    }

    pub(super) fn raise(&mut self, id: u32, kind: CmEventKind) {
        let qpn = self.cm.get(id).and_then(|c| c.qpn);
        let id = CmId(id);
        self.out
            .events
            .push_back(Event::Cm(CmEvent { id, qpn, kind }));
    }

    /// Sends a message if the peer's allowance covers it.
    pub(super) fn send(&mut self, id: u32, message: Box<Mad>) {
        if let Some(c) = self.cm.get_mut(id)
            && c.spend(MAD_DATAGRAM)
        {
            self.mads.push_back((c.remote, message));
        }
    }

    /// Sends a message and keeps it; it is repeated only when the peer repeats its own.
    fn send_and_keep(&mut self, id: u32, message: Box<Mad>) {
        self.send(id, message.clone());
        if let Some(c) = self.cm.get_mut(id) {
            c.last = Some(message);
        }
    }

    /// Probes the peer's queue pair instead of repeating the REP. The answer counts as an RTU, and a probe is much smaller.
    fn probe_peer(&mut self, id: u32) {
        let Some(c) = self.cm.get_mut(id) else { return };
        let affords = c.spend(PROBE_PACKET);
        if let Some(qpn) = c.qpn.filter(|_| affords)
            && let Some((slot, qp)) = self.qp_mut(qpn)
        {
            qp.probe_once();
            self.enqueue(slot);
        }
    }

    /// Sends a message and repeats it until an answer arrives.
    pub(super) fn send_until_answered(&mut self, now: Time, id: u32, message: Box<Mad>) {
        self.send_and_keep(id, message);
        if let Some(c) = self.cm.get_mut(id) {
            c.repeated = 0;
        }
        self.set_due(id, now + self.config.cm_retry);
    }

    /// Sets the connection's deadline. An earlier timer entry is reused, so that no peer can make entries pile up.
    pub(super) fn set_due(&mut self, id: u32, due: Time) {
        let Some(c) = self.cm.get_mut(id) else { return };
        c.due = Some(due);
        if c.armed.is_none_or(|armed| due < armed) {
            c.armed = Some(due);
            self.timers.add(due, Owner::Cm(id));
        }
    }

    /// Extends the deadline after an MRA: the peer has our message and needs time. A peer that needs more than a minute answers the
    /// repetition with another MRA; one that has died meanwhile does not.
    fn extend_deadline(&mut self, now: Time, id: u32, service_timeout: u8) {
        let timeout = timeout_of(service_timeout.min(SERVICE_TIMEOUT));
        self.set_due(id, now + timeout + LONGEST_RETRY);
    }

    /// Probes the peer's queue pair after a message that claims it for another connection. If the queue pair answers,
    /// nothing happens; without an answer the connection breaks, as with any request.
    pub(super) fn probe_suspect(&mut self, now: Time, id: u32) {
        let up = |c: &&Connection| c.state == State::Established;
        let qpn = self.cm.get(id).filter(up).and_then(|c| c.qpn);
        if let Some(slot) = qpn.and_then(|qpn| self.slot(qpn))
            && self.with_qp(now, slot, |qp, cx| qp.probe_suspect(cx)) == Some(true)
        {
            self.enqueue(slot);
            self.arm(now, slot);
        }
    }

    /// Ends connections that wait for a DREP of a peer for which `gone` returns true.
    pub fn forget_gone(&mut self, now: Time, gone: impl Fn(std::net::IpAddr, Qpn) -> bool) {
        for id in self.cm.unconfirmed(gone) {
            self.cm_step(now, id, Input::GiveUp);
        }
    }

    /// Handles a timer entry of a connection or resolution.
    pub(in crate::engine) fn cm_timeout(&mut self, now: Time, at: Time, id: u32) {
        let (retry, retries) = (self.config.cm_retry, self.config.cm_retries);
        let Some(c) = self.cm.get_mut(id) else {
            return self.resolution_timeout(now, at, id);
        };
        if c.armed != Some(at) {
            return;
        }
        c.armed = None;
        let Some(due) = c.due else { return };
        if due > now {
            self.set_due(id, due);
            return;
        }
        let counts = c.spared.counts(now, due);
        if !c.state.repeats() || counts && c.repeated >= retries {
            self.cm_step(now, id, Input::GiveUp);
            return;
        }
        c.repeated += u8::from(counts);
        let due = now + pause(retry, c.repeated);
        let asks = c.state == State::RepSent && !c.affords(MAD_DATAGRAM + PROBE_ALLOWANCE);
        self.set_due(id, due);
        if asks {
            self.probe_peer(id);
        } else {
            self.cm_step(now, id, Input::Timeout);
        }
    }

    /// Ends the connection of a queue pair that is destroyed or failed by its owner.
    pub(in crate::engine) fn abandon_connection(&mut self, now: Time, qpn: Qpn) {
        if let Some(id) = self.qp(qpn).and_then(|qp| qp.cm) {
            self.cm_step(now, id.0, Input::Disconnect);
        }
    }

    fn connect_queue_pair(&mut self, id: u32) {
        let Some(c) = self.cm.get(id) else { return };
        let (Some(qpn), path) = (c.qpn, c.path()) else {
            return;
        };
        if let Err(error) = self.connect_qp(qpn, &path) {
            tracing::warn!(id, %error, "queue pair cannot be connected");
        }
    }

    pub(super) fn has_srq(&self, qpn: Qpn) -> bool {
        self.qp(qpn).is_some_and(|qp| qp.init.srq.is_some())
    }

    /// Returns the PSN that a connected queue pair expects, or expected when it failed, and what it refused.
    fn last_received(&self, qpn: Qpn) -> Option<LastReceived> {
        let qp = self.qp(qpn)?;
        Some((qp.expected()?, qp.refusal()))
    }

    /// Sets the connection of a queue pair.
    pub(super) fn attach(&mut self, qpn: Qpn, id: CmId) {
        if let Some((_, qp)) = self.qp_mut(qpn) {
            qp.cm = Some(id);
        }
    }

    /// Returns the queue pair of a connection, unless it has another connection by now.
    fn qp_of(&mut self, id: u32) -> Option<&mut Qp> {
        let qpn = self.cm.get(id)?.qpn?;
        let (_, qp) = self.qp_mut(qpn)?;
        (qp.cm == Some(CmId(id))).then_some(qp)
    }

    /// Removes the connection from its queue pair.
    fn detach(&mut self, id: u32) {
        if let Some(qp) = self.qp_of(id) {
            qp.cm = None;
            qp.await_data(false);
        }
    }

    /// Sets whether a valid packet on the queue pair is an input of the connection.
    fn await_data(&mut self, id: u32, on: bool) {
        if let Some(qp) = self.qp_of(id) {
            qp.await_data(on);
        }
    }

    fn forget(&mut self, id: u32) {
        self.detach(id);
        self.cm.remove(id);
    }

    /// Returns a random id with this engine's prefix, which routes answers to the engine.
    pub(super) fn new_id(&mut self) -> u32 {
        let bits = u32::from(self.config.qpn_prefix_bits);
        let below = u32::MAX >> bits;
        let prefix = self.config.qpn_prefix.checked_shl(32 - bits).unwrap_or(0);
        loop {
            let id = prefix | (self.random.u32() & below);
            if id != 0 && !self.cm.holds(id) {
                return id;
            }
        }
    }
}

/// Returns the pause before a message that was sent `repeated` times more than once is sent again; `retry` is the first one.
pub(super) fn pause(retry: Duration, repeated: u8) -> Duration {
    (retry * (1 << repeated.min(8))).min(LONGEST_RETRY.max(retry))
}
