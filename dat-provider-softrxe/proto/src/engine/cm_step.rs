//! Steps of connections: what the actions of the connection manager's table do, and when.

use super::Engine;
use super::timers::Owner;
use crate::cm::connection::{Connection, DATAGRAM, Mad, QUESTION, silence_after_mra, timeout_of};
use crate::cm::state::{Action, Input, State};
use crate::event::{CmEvent, CmEventKind, CmId, Event, RejectReason};
use crate::memory::Memory;
use crate::psn::{Psn, Qpn};
use crate::time::Time;

/// Longest pause between repetitions.
const LONGEST_RETRY: std::time::Duration = std::time::Duration::from_secs(4);
/// First pause before a REQ that found nobody is sent again; doubles.
const REFUSED_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
/// What is kept back of a peer's allowance for questions: as many as a REP has repetitions.
const QUESTIONS: u32 = 8 * QUESTION;
/// How long a finished connection repeats its last word.
pub(super) const TIME_WAIT: std::time::Duration = std::time::Duration::from_secs(2);

/// What a step needs beside its input.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Details<'a> {
    /// Private data to send, or received.
    pub(super) data: &'a [u8],
    /// Reason to send, or received.
    pub(super) reason: Option<RejectReason>,
    /// Service timeout of an MRA.
    pub(super) service_timeout: u8,
    /// RNR retries announced in a REP.
    pub(super) rnr_retry: u8,
    /// DREP to send.
    pub(super) drep: Option<&'a Mad>,
}

impl<M: Memory> Engine<M> {
    /// An input without details.
    pub(super) fn cm_step(&mut self, now: Time, id: u32, input: Input) {
        self.cm_step_with(now, id, input, &Details::default());
    }

    /// Takes a step and does what it says.
    pub(super) fn cm_step_with(&mut self, now: Time, id: u32, input: Input, details: &Details<'_>) {
        let Some(c) = self.cm.get_mut(id) else { return };
        match input {
            Input::Req => c.asked_again(),
            // Only one that received our id, or our packets' numbers, can say these.
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
        for action in step.actions {
            self.act(now, id, *action, details);
        }
        let Some(next) = step.next else {
            self.forget(id);
            return;
        };
        let Some(c) = self.cm.get_mut(id) else { return };
        c.state = next;
        if next == state {
            return;
        }
        match next {
            // Refused: its peer has not shown that it is there.
            State::TimeWait if matches!(state, State::ReqReceived | State::MraSent) => {
                self.cm.release_qp(id);
                self.keep_request(id, now + TIME_WAIT);
            }
            State::TimeWait | State::DreqSent => {
                if next == State::TimeWait {
                    self.wake_connection(id, now + TIME_WAIT);
                }
                self.cm.release_qp(id);
                self.detach(id);
                if let Some(oldest) = self.cm.note_end(id, self.config.most_ended()) {
                    self.cm_step(now, oldest, Input::GiveUp);
                }
            }
            State::MraSent => {}
            next => {
                if !next.repeats() {
                    c.due = None;
                }
                self.cm.unproven.remove(id);
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
                self.keep_request(id, now + silence_after_mra());
            }
            Action::ConnectQp => {
                self.connect_queue_pair(id);
                self.keep_alive(now);
            }
            Action::SendRep => {
                let Some(qpn) = c.qpn else { return };
                let rep = c.rep(this, qpn, self.has_srq(qpn), details.rnr_retry, data);
                self.say(now, id, rep);
            }
            Action::SendRtu => {
                let rtu = c.rtu();
                self.say_once(id, rtu);
            }
            Action::SendRej => {
                let reason = details.reason.unwrap_or(RejectReason::CONSUMER);
                let rej = c.rej(this.guid, reason, data);
                self.say_once(id, rej);
            }
            Action::SendRejTimeout => {
                let rej = c.rej(this.guid, RejectReason::TIMEOUT, &[]);
                self.say_once(id, rej);
            }
            Action::SendDreq => {
                let qpn = c.qpn;
                let dreq = c.dreq(qpn.and_then(|qpn| self.expected(qpn)));
                // Before the DREQ.
                if let Some(slot) = qpn.and_then(|qpn| self.slot(qpn)) {
                    self.with_qp(now, slot, |qp, cx| qp.acknowledge_again(cx.now));
                    self.enqueue(slot);
                }
                self.say(now, id, dreq);
            }
            Action::SendDrep => {
                if let Some(drep) = details.drep {
                    self.say_once(id, Box::new(*drep));
                }
            }
            Action::Stretch => self.stretch(now, id, details.service_timeout),
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
        }
    }

    pub(super) fn raise(&mut self, id: u32, kind: CmEventKind) {
        let qpn = self.cm.get(id).and_then(|c| c.qpn);
        let id = CmId(id);
        self.out
            .events
            .push_back(Event::Cm(CmEvent { id, qpn, kind }));
    }

    /// Sends a message, unless its receiver would get too much that it may not have asked for.
    fn send(&mut self, id: u32, message: Box<Mad>) {
        if let Some(c) = self.cm.get_mut(id)
            && c.spend(DATAGRAM)
        {
            self.mads.push_back((c.remote, message));
        }
    }

    /// Sends a message and keeps it for repetition, by request only.
    fn say_once(&mut self, id: u32, message: Box<Mad>) {
        self.send(id, message.clone());
        if let Some(c) = self.cm.get_mut(id) {
            c.last = Some(message);
        }
    }

    /// Asks the peer's queue pair, whose answer is as good as an RTU, instead of repeating the REP: it takes few bytes.
    fn question(&mut self, id: u32) {
        let Some(c) = self.cm.get_mut(id) else { return };
        let affords = c.spend(QUESTION);
        if let Some(qpn) = c.qpn.filter(|_| affords)
            && let Some(slot) = self.slot(qpn)
            && let Some(qp) = &mut self.qps[slot as usize]
        {
            qp.ask_once();
            self.enqueue(slot);
        }
    }

    /// Sends a message that is repeated until there is an answer.
    pub(super) fn say(&mut self, now: Time, id: u32, message: Box<Mad>) {
        self.say_once(id, message);
        if let Some(c) = self.cm.get_mut(id) {
            c.repeated = 0;
        }
        self.wake_connection(id, now + self.config.cm_retry);
    }

    /// The connection has something to do at `due`. A timer entry that fires earlier does for it, so that no peer makes them pile up.
    fn wake_connection(&mut self, id: u32, due: Time) {
        let Some(c) = self.cm.get_mut(id) else { return };
        c.due = Some(due);
        if c.armed.is_none_or(|armed| due < armed) {
            c.armed = Some(due);
            self.timers.add(due, Owner::Cm(id));
        }
    }

    /// A request or question that waits is forgotten at `deadline`.
    pub(super) fn keep_request(&mut self, id: u32, deadline: Time) {
        self.cm.unproven.wait_until(id, deadline);
        self.arm_requests();
    }

    /// Makes sure that there is a timer entry at or before the first deadline of those that wait.
    pub(super) fn arm_requests(&mut self) {
        let Some(deadline) = self.cm.unproven.deadline() else {
            return;
        };
        if self.unproven_armed.is_none_or(|armed| deadline < armed) {
            self.unproven_armed = Some(deadline);
            self.timers.add(deadline, Owner::Unproven);
        }
    }

    /// The timer entry for requests that wait fired.
    pub(super) fn expire_requests(&mut self, now: Time, at: Time) {
        if self.unproven_armed != Some(at) {
            return;
        }
        self.unproven_armed = None;
        while let Some(id) = self.cm.unproven.expired(now) {
            if self.drop_request(now, id) {
                self.out.counters.requests_expired += 1;
            }
        }
        self.arm_requests();
    }

    /// Forgets a request or question that waits, or its answer. Whether the consumer had not answered it: its answer is an error now.
    pub(super) fn drop_request(&mut self, now: Time, id: u32) -> bool {
        self.cm.unproven.remove(id);
        if let Some(resolution) = self.cm.resolution(id) {
            let open = resolution.last.is_none();
            self.cm.remove_resolution(id);
            return open;
        }
        let open = self.cm.get(id).is_some_and(|c| c.state != State::TimeWait);
        self.cm_step(now, id, Input::GiveUp);
        open
    }

    /// Did somebody take our REQ? Then nobody's refusal of an earlier copy is late.
    pub(super) fn was_answered(&self, id: u32) -> bool {
        self.cm.get(id).is_some_and(|c| c.state != State::ReqSent)
    }

    /// Nobody listens there: whether our REQ goes out again a little later, because somebody is about to.
    pub(super) fn ask_again(&mut self, now: Time, id: u32) -> bool {
        let times = self.config.refused_repeats;
        let Some(c) = self.cm.get_mut(id) else {
            return false;
        };
        if c.state != State::ReqSent || c.refused >= times {
            return false;
        }
        let due = now + REFUSED_PAUSE * (1 << c.refused.min(8));
        c.refused += 1;
        c.repeated = 0;
        self.wake_connection(id, due);
        true
    }

    /// The peer has our message and asked for time.
    fn stretch(&mut self, now: Time, id: u32, service_timeout: u8) {
        self.wake_connection(id, now + timeout_of(service_timeout) + LONGEST_RETRY);
    }

    /// A message claims that the peer's queue pair belongs to another connection now: the queue pair itself is asked. One that is there
    /// answers and nothing happens; without an answer the connection breaks, as with any request.
    pub(super) fn doubt(&mut self, now: Time, id: u32) {
        let up = |c: &&Connection| c.state == State::Established;
        let qpn = self.cm.get(id).filter(up).and_then(|c| c.qpn);
        if let Some(slot) = qpn.and_then(|qpn| self.slot(qpn))
            && self.with_qp(now, slot, |qp, cx| qp.doubt(cx)) == Some(true)
        {
            self.enqueue(slot);
            self.arm(now, slot);
        }
    }

    /// Peers of which `gone` says that they are no longer there need not confirm the ends of their connections.
    pub fn forget_gone(&mut self, now: Time, gone: impl Fn(std::net::IpAddr, Qpn) -> bool) {
        for id in self.cm.unconfirmed(gone) {
            self.cm_step(now, id, Input::GiveUp);
        }
    }

    /// A timer entry of a connection or resolution fired.
    pub(super) fn cm_timeout(&mut self, now: Time, at: Time, id: u32) {
        let (retry, retries) = (self.config.cm_retry, self.config.cm_retries);
        let pause = |repeated: u8| (retry * (1 << repeated.min(8))).min(LONGEST_RETRY.max(retry));
        if let Some(r) = self.cm.resolution(id) {
            if r.due != Some(at) {
                return;
            }
            if r.repeated >= retries {
                self.raise(id, CmEventKind::TimedOut);
                self.cm.remove_resolution(id);
                return;
            }
            r.repeated += 1;
            let due = now + pause(r.repeated);
            r.due = Some(due);
            if let Some(last) = r.last.clone() {
                self.mads.push_back((r.remote, last));
            }
            self.timers.add(due, Owner::Cm(id));
            return;
        }
        let Some(c) = self.cm.get_mut(id) else { return };
        if c.armed != Some(at) {
            return;
        }
        c.armed = None;
        let Some(due) = c.due else { return };
        if due > now {
            self.wake_connection(id, due);
            return;
        }
        if !c.state.repeats() || c.repeated >= retries {
            self.cm_step(now, id, Input::GiveUp);
            return;
        }
        c.repeated += 1;
        let due = now + pause(c.repeated);
        let asks = c.state == State::RepSent && !c.affords(DATAGRAM + QUESTIONS);
        self.wake_connection(id, due);
        if asks {
            self.question(id);
        } else {
            self.cm_step(now, id, Input::Timeout);
        }
    }

    /// The queue pair goes away or is broken by its owner: so does its connection.
    pub(super) fn abandon_connection(&mut self, now: Time, qpn: Qpn) {
        let slot = self.slot(qpn);
        let qp = slot.and_then(|slot| self.qps[slot as usize].as_ref());
        if let Some(id) = qp.and_then(|qp| qp.cm) {
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
        let slot = self.slot(qpn);
        let qp = slot.and_then(|slot| self.qps[slot as usize].as_ref());
        qp.is_some_and(|qp| qp.init.srq.is_some())
    }

    /// The PSN that a connected queue pair expects, or expected when it failed.
    fn expected(&self, qpn: Qpn) -> Option<Psn> {
        let slot = self.slot(qpn)?;
        self.qps[slot as usize].as_ref()?.expected()
    }

    /// Names the connection of a queue pair.
    pub(super) fn attach(&mut self, qpn: Qpn, id: Option<CmId>) {
        if let Some(slot) = self.slot(qpn)
            && let Some(qp) = &mut self.qps[slot as usize]
        {
            qp.cm = id;
        }
    }

    /// The queue pair has no connection any more.
    fn detach(&mut self, id: u32) {
        if let Some(qpn) = self.cm.get(id).and_then(|c| c.qpn) {
            self.attach(qpn, None);
        }
    }

    /// A valid packet is news to the connection, or no longer.
    fn await_data(&mut self, id: u32, on: bool) {
        let qpn = self.cm.get(id).and_then(|c| c.qpn);
        if let Some(slot) = qpn.and_then(|qpn| self.slot(qpn))
            && let Some(qp) = &mut self.qps[slot as usize]
        {
            qp.await_data(on);
        }
    }

    fn forget(&mut self, id: u32) {
        self.detach(id);
        self.cm.remove(id);
    }

    /// An id that nobody guesses, below this engine's prefix: answers find the engine by it.
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
