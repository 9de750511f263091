//! Calls of the connection manager: listening, connecting, accepting, rejecting, disconnecting.

use std::net::{IpAddr, SocketAddr};

use dat_handshake::{Agreement, guid};

use super::super::Engine;
use super::step::Details;
use crate::cm::connection::{Connection, Terms};
use crate::cm::state::{Input, State};
use crate::cm::{Accept, CmError, Connect};
use crate::event::{CmId, RejectReason};
use crate::memory::Memory;
use crate::near::Link;
use crate::psn::{Psn, Qpn};
use crate::qp::{QpKind, QpState};
use crate::time::{Spared, Time};

/// Bytes of private data in a REQ after the CMA header, in a REP and in a REJ.
const REQ_DATA: usize = 56;
const REP_DATA: usize = 196;
const REJ_DATA: usize = 148;

/// Checks that private data fits into its message, which has room for `max` bytes.
pub(super) fn check_length(data: &[u8], max: usize) -> Result<(), CmError> {
    let given = data.len();
    if given > max {
        return Err(CmError::PrivateData { given, max });
    }
    Ok(())
}

impl<M: Memory> Engine<M> {
    /// Starts to raise events for requests for `service_id`.
    ///
    /// # Errors
    /// `ServiceInUse`.
    pub fn listen(&mut self, service_id: u64) -> Result<(), CmError> {
        if self.cm.services.insert(service_id) {
            Ok(())
        } else {
            Err(CmError::ServiceInUse(service_id))
        }
    }

    /// Stops listening: further requests for `service_id` are refused. Requests that were raised stay.
    pub fn unlisten(&mut self, service_id: u64) {
        self.cm.services.remove(&service_id);
    }

    /// Returns true if a peer may repeat its request for `service_id`: the consumer has not answered it, or the peer has not confirmed the answer. As
    /// long as that is so, datagrams for the service have to reach this engine, even if it does not listen any more. Once it has ended,
    /// [`take_unasked`](Self::take_unasked) returns the service.
    pub fn is_asked_for(&mut self, service_id: u64) -> bool {
        self.cm.asked.watch(service_id)
    }

    /// Returns the services for which [`is_asked_for`](Self::is_asked_for) returned true and whose last request has ended since the last call.
    #[must_use]
    pub fn take_unasked(&mut self) -> Vec<u64> {
        self.cm.asked.take_unasked()
    }

    /// Sends a REQ. The attempt ends in `Established`, `Rejected` or `TimedOut`.
    ///
    /// # Errors
    /// `QueuePair`, `PrivateData`, `Family` or `NoMemory`; there is no event then.
    pub fn connect(
        &mut self,
        now: Time,
        qpn: Qpn,
        arguments: &Connect<'_>,
    ) -> Result<CmId, CmError> {
        check_length(arguments.private_data, REQ_DATA)?;
        self.check_family(arguments.remote)?;
        self.reserve(
            qpn,
            arguments.initiator_depth,
            arguments.responder_resources,
        )?;
        let local_id = self.new_id();
        let connection = Connection {
            state: State::ReqSent,
            local_id,
            remote_id: 0,
            remote_guid: 0,
            agreement: Agreement::FOREIGN,
            link: Link::Wire,
            remote_qpn: Qpn::default(),
            remote: arguments.remote,
            transaction: self.random.u64(),
            service_id: arguments.service_id,
            qpn: Some(qpn),
            terms: Terms {
                mtu: arguments
                    .mtu
                    .unwrap_or(self.config.mtu)
                    .min(self.config.mtu),
                initiator_depth: arguments.initiator_depth,
                responder_resources: arguments.responder_resources,
                retry_count: arguments.retry_count.min(7),
                rnr_retry: arguments.rnr_retry.min(7),
            },
            receive_psn: Psn::new(self.random.u32()),
            send_psn: Psn::default(),
            last: None,
            repeated: 0,
            spared: Spared::default(),
            refused: 0,
            due: None,
            armed: None,
            allowance: None,
        };
        let local = SocketAddr::new(self.config.local, arguments.source_port);
        let req = connection.req(self.identity(), local, qpn, arguments.private_data);
        self.cm.insert(connection);
        self.attach(qpn, CmId(local_id));
        self.send_until_answered(now, local_id, req);
        Ok(CmId(local_id))
    }

    /// Accepts a request with a queue pair, which may send at once. The connection ends up in `Established`, `Rejected` or
    /// `TimedOut`.
    ///
    /// # Errors
    /// `UnknownId`, `State`, `QueuePair`, `PrivateData` or `NoMemory`; the request stays open.
    pub fn accept(
        &mut self,
        now: Time,
        id: CmId,
        qpn: Qpn,
        arguments: &Accept<'_>,
    ) -> Result<(), CmError> {
        check_length(arguments.private_data, REP_DATA)?;
        self.check_step(id, Input::Accept)?;
        self.reserve(
            qpn,
            arguments.initiator_depth,
            arguments.responder_resources,
        )?;
        let c = self.cm.get_mut(id.0).ok_or(CmError::UnknownId(id))?;
        // The REQ's fields are named from the peer's view: its initiator depth is our responder resources.
        c.terms.initiator_depth = c.terms.initiator_depth.min(arguments.initiator_depth);
        c.terms.responder_resources = c
            .terms
            .responder_resources
            .min(arguments.responder_resources);
        c.qpn = Some(qpn);
        self.choose_link(id.0);
        self.attach(qpn, id);
        let details = Details {
            data: arguments.private_data,
            rnr_retry: arguments.rnr_retry,
            ..Details::default()
        };
        self.cm_step_with(now, id.0, Input::Accept, &details);
        Ok(())
    }

    /// Refuses a request.
    ///
    /// # Errors
    /// `UnknownId`, `State` or `PrivateData`.
    pub fn reject(
        &mut self,
        now: Time,
        id: CmId,
        reason: RejectReason,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        check_length(private_data, REJ_DATA)?;
        self.check_step(id, Input::Reject)?;
        let details = Details {
            data: private_data,
            reason: Some(reason),
            ..Details::default()
        };
        self.cm_step_with(now, id.0, Input::Reject, &details);
        Ok(())
    }

    /// Ends a connection, an attempt or an unanswered request. The queue pair is in Error on return, and `Disconnected` is
    /// raised, except for a request that was not accepted.
    ///
    /// # Errors
    /// `UnknownId`, or `State` if it has ended already.
    pub fn disconnect(&mut self, now: Time, id: CmId) -> Result<(), CmError> {
        self.check_step(id, Input::Disconnect)?;
        self.cm_step(now, id.0, Input::Disconnect);
        Ok(())
    }

    /// Returns address and queue pair of a connection's peer once they are known, and true if the peer is an engine of this project.
    pub fn peer(&self, id: CmId) -> Option<(IpAddr, Qpn, bool)> {
        let c = self.cm.get(id.0).filter(|c| c.remote_guid != 0)?;
        Some((c.remote.ip(), c.remote_qpn, guid::is_own(c.remote_guid)))
    }

    /// Returns the handshake's result, once the peer's REQ or REP has arrived.
    pub fn agreement(&self, id: CmId) -> Option<Agreement> {
        let c = self.cm.get(id.0).filter(|c| c.remote_guid != 0)?;
        Some(c.agreement)
    }

    /// Returns the CA GUID of a connection's peer, once it is known.
    pub fn peer_guid(&self, id: CmId) -> Option<u64> {
        let guid = self.cm.get(id.0)?.remote_guid;
        (guid != 0).then_some(guid)
    }

    pub(super) fn check_family(&self, remote: SocketAddr) -> Result<(), CmError> {
        if remote.is_ipv4() == self.config.local.is_ipv4() {
            Ok(())
        } else {
            Err(CmError::Family(remote))
        }
    }

    /// Allocates what a queue pair without a connection needs when it is connected, at which time nothing can be refused any more.
    fn reserve(
        &mut self,
        qpn: Qpn,
        initiator_depth: u8,
        responder_resources: u8,
    ) -> Result<(), CmError> {
        let slot = self.slot(qpn).ok_or(CmError::QueuePair(qpn))?;
        match &mut self.qps[slot as usize] {
            Some(qp)
                if qp.init.kind == QpKind::Rc && qp.state() == QpState::Init && qp.cm.is_none() =>
            {
                qp.reserve(initiator_depth, responder_resources)
                    .map_err(|_| CmError::NoMemory)
            }
            _ => Err(CmError::QueuePair(qpn)),
        }
    }

    pub(super) fn check_step(&self, id: CmId, input: Input) -> Result<(), CmError> {
        let state = self.cm.get(id.0).ok_or(CmError::UnknownId(id))?.state;
        match state.step(input) {
            Some(_) => Ok(()),
            None => Err(CmError::State { id, state }),
        }
    }
}
