//! The end of the process, as its peers are to learn of it.

use super::super::Engine;
use crate::cm::state::State;
use crate::event::{CmId, RejectReason};
use crate::memory::Memory;
use crate::time::Time;

impl<M: Memory> Engine<M> {
    /// Returns the connections, attempts to connect and unanswered requests of peers, for [`say_process_ends`](Self::say_process_ends);
    /// without those with engines of this process, which `is_own` tells by their CA GUID.
    #[must_use]
    pub fn open_connections(&self, is_own: impl Fn(u64) -> bool) -> Vec<CmId> {
        let ended = |state| matches!(state, State::DreqSent | State::TimeWait | State::PassedOn);
        let mut open = self.cm.with_state(|state| !ended(state));
        open.retain(|id| self.cm.get(id.0).is_some_and(|c| !is_own(c.remote_guid)));
        open
    }

    /// Says to the peer of `id` that this process ends, as a kernel does for a process that has ended: by a DREQ after the last
    /// acknowledgement, or by a REJ. The message is sent once, and nothing else changes: threads that still run, and handlers of
    /// exit(3) that run later, have the connection as before. Poll transmits after each call, or the messages overtake acknowledgements.
    pub fn say_process_ends(&mut self, now: Time, id: CmId) {
        let this = self.identity();
        let Some(c) = self.cm.get(id.0) else { return };
        let message = match c.state {
            State::ReqSent | State::MraReceived => c.rej(this.guid, RejectReason::TIMEOUT, &[]),
            State::ReqReceived | State::MraSent => c.rej(this.guid, RejectReason::CONSUMER, &[]),
            State::Established | State::RepSent => match self.dreq_after_acknowledgement(now, id.0)
            {
                Some(dreq) => dreq,
                None => return,
            },
            State::DreqSent | State::TimeWait | State::PassedOn => return,
        };
        self.send(id.0, message);
    }
}
