//! REQs that are sent again after a refusal: to a service without a listener yet, and with a smaller path MTU.

use std::time::Duration;

use super::super::Engine;
use crate::cm::connection::{Connection, mtu_code};
use crate::cm::state::State;
use crate::memory::Memory;
use crate::time::Time;
use crate::wire::MadHeader;
use crate::wire::cm::Req;

/// First pause before a REQ is sent again to a service without a listener; doubles.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

impl<M: Memory> Engine<M> {
    /// Returns true if our REQ was answered; the refusal of an earlier copy is late then.
    pub(super) fn was_answered(&self, id: u32) -> bool {
        self.cm.get(id).is_some_and(|c| c.state != State::ReqSent)
    }

    /// Schedules our REQ again after a refusal because no service listens, as one may be about to. Returns false when the
    /// repetitions are used up.
    pub(super) fn retry_refused(&mut self, now: Time, id: u32) -> bool {
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
        self.set_due(id, due);
        true
    }

    /// Sends our REQ again with the next smaller path MTU, after a refusal because the peer's netdev has no room for such packets.
    /// Returns false if there is none.
    pub(super) fn retry_with_less(&mut self, now: Time, id: u32) -> bool {
        // A copy of the refusal that comes late then names another transaction.
        let transaction = self.random.u64();
        let attempt = self.cm.get_mut(id).filter(|c| c.state == State::ReqSent);
        let smaller = |c: &Connection| {
            let mut all = [2048, 1024, 512, 256].into_iter();
            all.find(|mtu| *mtu < c.terms.mtu)
        };
        let Some((c, mtu)) = attempt.and_then(|c| smaller(c).map(|mtu| (c, mtu))) else {
            return false;
        };
        let Some((mut req, header)) = c
            .last
            .clone()
            .zip(c.last.as_ref().and_then(|last| MadHeader::parse(&last[..])))
        else {
            return false;
        };
        (c.terms.mtu, c.transaction) = (mtu, transaction);
        let header = MadHeader {
            transaction_id: transaction,
            ..header
        };
        header.emit(&mut req[..]);
        Req::set_mtu(&mut req[MadHeader::LEN..], mtu_code(mtu));
        self.send_until_answered(now, id, req);
        true
    }
}
