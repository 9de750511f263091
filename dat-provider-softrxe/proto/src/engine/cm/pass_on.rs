//! Requests for connections that one engine receives and another engine of the same address and process answers.
//!
//! The peer does not see that: a REQ names no engine, and the peer learns the id and the queue pair of its end from the REP.

use dat_handshake::guid::is_own;

use super::super::Engine;
use super::step::Details;
use crate::cm::CmError;
use crate::cm::connection::Connection;
use crate::cm::state::Input;
use crate::event::{CmId, Forwarded, RejectReason};
use crate::memory::Memory;
use crate::time::Time;

/// A request that left its engine.
#[derive(Debug)]
pub struct PassedRequest(Connection);

impl<M: Memory> Engine<M> {
    /// Takes the unanswered request `id` out of this engine. What the peer sends for it here raises
    /// [`Forwarded`](crate::CmEventKind::Forwarded) from then on; the id is dead for calls.
    ///
    /// # Errors
    /// `UnknownId` or `State`.
    pub fn pass_on(&mut self, now: Time, id: CmId) -> Result<PassedRequest, CmError> {
        self.check_step(id, Input::PassOn)?;
        let connection = self.cm.get(id.0).cloned();
        self.cm_step(now, id.0, Input::PassOn);
        connection.map(PassedRequest).ok_or(CmError::UnknownId(id))
    }

    /// Adds a request that an engine with the same address and offer [passed on](Self::pass_on), and returns its id here. No event is
    /// raised.
    ///
    /// # Errors
    /// `Stale`; the peer is refused.
    pub fn add_passed(&mut self, now: Time, request: PassedRequest) -> Result<CmId, CmError> {
        let PassedRequest(mut connection) = request;
        if let Some(old) = self.cm.by_qp(connection.peer(), connection.remote_qpn) {
            let own = is_own(connection.remote_guid);
            self.end_stale(now, old, own);
            if !own {
                let (transaction, remote_id) = (connection.transaction, connection.remote_id);
                let stale = RejectReason::STALE_CONNECTION;
                self.reject_req(connection.remote, transaction, remote_id, stale);
                return Err(CmError::Stale(connection.remote_qpn));
            }
        }
        let id = self.new_id();
        let source = connection.remote;
        connection.local_id = id;
        connection.due = None;
        connection.armed = None;
        self.cm.insert(connection);
        self.add_pending(now, id, source);
        Ok(CmId(id))
    }

    /// Handles what the engine that passed on the request `id` has received for it. Without effect if `id` is dead.
    pub fn forwarded(&mut self, now: Time, id: CmId, what: Forwarded) {
        let (input, reason) = match what {
            Forwarded::Repeated => (Input::Req, None),
            Forwarded::Cancelled => (Input::Rej, Some(RejectReason::TIMEOUT)),
        };
        let details = Details {
            reason,
            ..Details::default()
        };
        self.cm_step_with(now, id.0, input, &details);
    }
}
