//! Refusals: the NAK for a request that is invalid or not allowed, after which the queue pair is in Error.

use super::Qp;
use super::incoming::Incoming;
use crate::memory::{AccessError, Memory};
use crate::outputs::Context;
use crate::wire::Nak;
use crate::work::Status;
use crate::wrong_keys::key_fault;

/// Reason to refuse a request.
pub(super) enum Refusal {
    NotReady,
    /// The peer's memory that a record lends could not be read. The peer repeats the packet.
    Withdrawn,
    Nak(Nak, Option<Status>),
    /// The key does not grant the access.
    Access(AccessError),
    /// The key does not name memory that a peer may invalidate.
    Invalidate(AccessError),
}

impl Refusal {
    pub(super) const INVALID: Self = Self::Nak(Nak::InvalidRequest, None);
}

/// Returns the refusal for `error`. Missing memory is not the peer's fault.
pub(super) const fn refusal(error: AccessError) -> Refusal {
    match error {
        AccessError::Withdrawn { .. } => Refusal::Withdrawn,
        AccessError::Fault { .. } => Refusal::Nak(Nak::RemoteOperation, None),
        _ => Refusal::Access(error),
    }
}

impl Qp {
    /// Answers a request with a NAK and moves the queue pair to Error. The peer cannot try again.
    pub(super) fn refuse<M: Memory>(
        &mut self,
        cx: &mut Context<'_, M>,
        packet: &Incoming<'_>,
        nak: Nak,
        receive: Option<Status>,
    ) {
        cx.out.counters.refused += 1;
        self.responder.refuse(packet.bth.psn, nak);
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
    pub(super) fn wrong_key<M>(&self, cx: &mut Context<'_, M>, error: &AccessError) {
        tracing::debug!(qpn = ?self.qpn, %error, "remote access refused");
        let Some(reason) = key_fault(error) else {
            return;
        };
        cx.out.counters.wrong_keys += 1;
        let Some(suppressed) = cx.out.wrong_key_log.record(cx.now) else {
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
}
