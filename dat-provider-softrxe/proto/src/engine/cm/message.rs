//! Received management datagrams: finds their connection and handles each message.

use std::net::SocketAddr;

use dat_handshake::guid::is_own;
use dat_handshake::{Capabilities, final_psn};

use super::super::Engine;
use super::super::output::GSI_QKEY;
use super::step::Details;
use crate::Psn;
use crate::cm::connection::{self, Connection, Terms, mtu_of};
use crate::cm::peer::Peer;
use crate::cm::state::{Input, State};
use crate::event::{CmEventKind, CmId, ConnectRequest, RejectReason};
use crate::memory::Memory;
use crate::near::Link;
use crate::qp::repetitions;
use crate::time::{Spared, Time};
use crate::wire::cm::{self, CmMessage, Dreq, Rej, Rep, Req};
use crate::wire::cma::{CmaHeader, gid};
use crate::wire::{MadHeader, Packet, Syndrome};

/// Service ids of rdma_cm carry a CMA header.
const RDMA_CM_SERVICES: u64 = 0x01;

impl<M: Memory> Engine<M> {
    pub(in crate::engine) fn handle_mad(
        &mut self,
        now: Time,
        source: SocketAddr,
        packet: &Packet<'_>,
    ) {
        let Some((transaction, message)) = parse(packet) else {
            self.out.counters.malformed += 1;
            return;
        };
        match &message {
            CmMessage::Req(req) => self.handle_req(now, source, transaction, req),
            CmMessage::Rep(rep) => self.handle_rep(now, source, transaction, rep),
            CmMessage::Dreq(dreq) => self.handle_dreq(now, source, transaction, dreq),
            CmMessage::SidrReq(req) => self.handle_sidr_req(now, source, transaction, req),
            CmMessage::SidrRep(rep) => self.handle_sidr_rep(source, transaction, rep),
            CmMessage::Mra(mra) => {
                let details = Details {
                    service_timeout: mra.service_timeout,
                    ..Details::default()
                };
                let id = self
                    .find(source, mra.remote_id, mra.local_id)
                    .filter(|id| self.may_answer(*id, transaction));
                self.step_found(now, id, Input::Mra, &details);
            }
            CmMessage::Rej(rej) => self.handle_rej(now, source, transaction, rej),
            CmMessage::Rtu(rtu) => {
                let id = self.find(source, rtu.remote_id, rtu.local_id);
                self.step_found(now, id, Input::Rtu, &Details::default());
            }
            CmMessage::Drep(drep) => {
                let id = self.find(source, drep.remote_id, drep.local_id);
                self.step_found(now, id, Input::Drep, &Details::default());
            }
        }
    }

    fn step_found(&mut self, now: Time, id: Option<u32>, input: Input, details: &Details<'_>) {
        if let Some(id) = id {
            self.cm_step_with(now, id, input, details);
        }
    }

    /// Returns the connection that a message names, if the message is from its peer.
    fn find(&self, source: SocketAddr, local_id: u32, remote_id: u32) -> Option<u32> {
        let c = self.cm.get(local_id)?;
        c.is_from_peer(source, remote_id).then_some(local_id)
    }

    /// Returns false for an answer to our REQ with another transaction id. Before the REP a forger would have to guess it.
    fn may_answer(&self, id: u32, transaction: u64) -> bool {
        self.cm.get(id).is_none_or(|c| {
            !matches!(c.state, State::ReqSent | State::MraReceived) || c.transaction == transaction
        })
    }

    /// Finds the request of a peer that gives up and names only its own id, because our REP has not reached it. Such a REJ
    /// contains the peer's CA GUID (IBTA 12.6.7.2).
    fn find_requester(&self, source: SocketAddr, rej: &Rej) -> Option<u32> {
        if rej.reason != RejectReason::TIMEOUT || rej.info_length < 8 {
            return None;
        }
        let guid = u64::from_be_bytes(*rej.info.first_chunk()?);
        let id = self.cm.by_peer(Peer::new(source, guid), rej.local_id)?;
        let waits = |c: &&Connection| {
            matches!(
                c.state,
                State::ReqReceived | State::MraSent | State::RepSent | State::PassedOn
            )
        };
        self.cm.get(id).filter(waits).map(|_| id)
    }

    /// Rejects a REQ with the peer's id `remote_id`, of which this engine has no connection.
    pub(super) fn reject_req(
        &mut self,
        to: SocketAddr,
        transaction: u64,
        remote_id: u32,
        reason: RejectReason,
    ) {
        let rej = connection::reject_req(transaction, remote_id, reason);
        self.mads.push_back((to, rej));
    }

    fn handle_rej(&mut self, now: Time, source: SocketAddr, transaction: u64, rej: &Rej) {
        let id = self
            .find(source, rej.remote_id, rej.local_id)
            .filter(|id| self.may_answer(*id, transaction))
            .or_else(|| self.find_requester(source, rej));
        let Some(id) = id else { return };
        let no_listener = rej.reason == RejectReason::INVALID_SERVICE_ID;
        // STALE_CONNECTION: the peer missed our DREQ for this QP and now ends the old connection; send the REQ again.
        let stale =
            rej.reason == RejectReason::STALE_CONNECTION && rej.message == cm::Answered::Req;
        if (no_listener || stale) && (self.was_answered(id) || self.retry_refused(now, id)) {
            return;
        }
        let too_large = rej.reason == RejectReason::INVALID_MTU;
        if too_large && self.retry_with_less(now, id) {
            return;
        }
        let details = Details {
            data: &rej.private_data,
            reason: Some(rej.reason),
            ..Details::default()
        };
        self.cm_step_with(now, id, Input::Rej, &details);
    }

    fn handle_req(&mut self, now: Time, source: SocketAddr, transaction: u64, req: &Req) {
        let peer = Peer::new(source, req.ca_guid);
        if let Some(id) = self.cm.by_peer(peer, req.local_id) {
            if !self.is_over(id, transaction) {
                self.cm_step(now, id, Input::Req);
                return;
            }
            self.cm_step(now, id, Input::GiveUp);
        }
        let own = is_own(req.ca_guid);
        let answer_to = reply_to(source, own);
        if self
            .cm
            .answered
            .has(now, &(peer, req.local_id, transaction))
        {
            // Its sender has ended, too, or has not received the answer while that was repeated.
            tracing::debug!(%source, id = req.local_id, "a repeated request whose connection has ended is refused");
            self.reject_req(answer_to, transaction, req.local_id, RejectReason::CONSUMER);
            return;
        }
        if let Some(old) = self.cm.by_qp(peer, req.qpn) {
            let stale = RejectReason::STALE_CONNECTION;
            self.reject_req(answer_to, transaction, req.local_id, stale);
            self.end_stale(now, old, own);
            return;
        }
        let (remote, data) = match self.check_req(source, req) {
            Ok(good) => good,
            Err(reason) => {
                tracing::debug!(%source, ?reason, service = req.service_id, "request refused");
                self.reject_req(answer_to, transaction, req.local_id, reason);
                return;
            }
        };
        if !self.admit_request(now, source) {
            return;
        }
        let connection = self.passive_side(answer_to, transaction, req);
        let id = connection.local_id;
        self.cm.insert(connection);
        self.add_pending(now, id, source);
        let request = ConnectRequest {
            service_id: req.service_id,
            remote,
            initiator_depth: req.initiator_depth,
            responder_resources: req.responder_resources,
            private_data: data.into(),
        };
        self.raise(id, CmEventKind::Request(request));
    }

    /// Returns the connection for a REQ that may be accepted, whose answers go to `remote`.
    fn passive_side(&mut self, remote: SocketAddr, transaction: u64, req: &Req) -> Connection {
        let local_id = self.new_id();
        Connection {
            state: State::ReqReceived,
            local_id,
            remote_id: req.local_id,
            remote_guid: req.ca_guid,
            agreement: self.config.offer.agree(req.ca_guid, req.qkey),
            link: Link::Wire,
            remote_qpn: req.qpn,
            remote,
            transaction,
            service_id: req.service_id,
            qpn: None,
            terms: Terms {
                mtu: mtu_of(req.mtu).unwrap_or(self.config.mtu),
                initiator_depth: req.responder_resources,
                responder_resources: req.initiator_depth,
                // The count belongs to the peer's timeout; 0 means no timeout.
                retry_count: match req.primary.ack_timeout {
                    0 => 7,
                    code => repetitions(
                        self.config.ack_timeout,
                        req.retry_count,
                        connection::timeout_of(code),
                    ),
                },
                rnr_retry: req.rnr_retry,
            },
            receive_psn: Psn::new(self.random.u32()),
            send_psn: req.starting_psn,
            last: None,
            repeated: 0,
            spared: Spared::default(),
            refused: 0,
            due: None,
            armed: None,
            allowance: Some(connection::AMPLIFICATION * connection::MAD_DATAGRAM),
        }
    }

    /// Ends the connection `old` of a queue pair for which a REQ has come. `own`: the REQ is from an engine of this project.
    pub(super) fn end_stale(&mut self, now: Time, old: u32, own: bool) {
        if own {
            // Only the peer itself sends from its port. It has restarted, and its last connection has not ended here.
            self.cm_step(now, old, Input::Disconnect);
        } else {
            // Any process of the peer's address can send this.
            self.probe_suspect(now, old);
        }
    }

    /// Returns true if the connection `id` has ended here and a REQ with this transaction id is for a new one: the peer uses its id again.
    fn is_over(&self, id: u32, transaction: u64) -> bool {
        self.cm.get(id).is_some_and(|c| {
            matches!(c.state, State::TimeWait | State::PassedOn) && c.transaction != transaction
        })
    }

    /// Checks a REQ. Returns the peer's address and the consumer's private data, or the reason to refuse it.
    fn check_req<'r>(
        &self,
        source: SocketAddr,
        req: &'r Req,
    ) -> Result<(SocketAddr, &'r [u8]), RejectReason> {
        if !self.cm.services.contains(&req.service_id) {
            return Err(RejectReason::INVALID_SERVICE_ID);
        }
        if req.transport != 0 {
            return Err(RejectReason::INVALID_TRANSPORT);
        }
        if !req.qpn.is_connectable() {
            return Err(RejectReason::UNSUPPORTED);
        }
        if req.primary.remote_gid != gid(self.config.local) {
            return Err(RejectReason::INVALID_GID);
        }
        if mtu_of(req.mtu).is_none_or(|mtu| mtu > self.config.mtu) {
            return Err(RejectReason::INVALID_MTU);
        }
        consumer_part(source, req.service_id, &req.private_data).ok_or(RejectReason::UNSUPPORTED)
    }

    fn handle_rep(&mut self, now: Time, source: SocketAddr, transaction: u64, rep: &Rep) {
        let Some(id) = self.find(source, rep.remote_id, rep.local_id) else {
            // This side has given up; its REJ was lost or came too early.
            let rej = connection::reject_rep(transaction, rep);
            let own = is_own(rep.ca_guid);
            self.mads.push_back((reply_to(source, own), rej));
            return;
        };
        if !rep.qpn.is_connectable() {
            tracing::debug!(%source, qpn = ?rep.qpn, "reply ignored: no connected queue pair has this number");
            return;
        }
        let Some(c) = self.cm.get_mut(id) else { return };
        if matches!(c.state, State::ReqSent | State::MraReceived) {
            if c.transaction != transaction {
                return;
            }
            c.remote_id = rep.local_id;
            c.remote_guid = rep.ca_guid;
            c.agreement = self.config.offer.agree(rep.ca_guid, rep.qkey);
            c.remote_qpn = rep.qpn;
            c.send_psn = rep.starting_psn;
            if is_own(rep.ca_guid) {
                c.remote.set_port(source.port());
            }
            let terms = &mut c.terms;
            terms.initiator_depth = terms.initiator_depth.min(rep.responder_resources);
            terms.responder_resources = terms.responder_resources.min(rep.initiator_depth);
            terms.rnr_retry = rep.rnr_retry;
            let near = c.agreement.has(Capabilities::NEAR);
            self.cm.index(id);
            self.choose_link(id);
            if near && self.near_of(CmId(id)).is_none() {
                return self.refuse_rep(now, id, transaction, rep);
            }
        }
        let details = Details {
            data: &rep.private_data,
            ..Details::default()
        };
        self.cm_step_with(now, id, Input::Rep, &details);
    }

    /// Refuses a REP that states `NEAR` without a channel to its sender. The attempt ends as one that the peer refused.
    fn refuse_rep(&mut self, now: Time, id: u32, transaction: u64, rep: &Rep) {
        tracing::warn!(
            id,
            guid = rep.ca_guid,
            "reply refused: there is no channel to its sender"
        );
        let reason = Some(RejectReason::UNSUPPORTED);
        let Some(c) = self.cm.get(id) else { return };
        let rej = connection::reject_rep(transaction, rep);
        self.mads.push_back((c.remote, rej));
        let details = Details {
            reason,
            ..Details::default()
        };
        self.cm_step_with(now, id, Input::Rej, &details);
    }

    fn handle_dreq(&mut self, now: Time, source: SocketAddr, transaction: u64, dreq: &Dreq) {
        let drep = connection::drep(transaction, dreq);
        let Some(id) = self.find(source, dreq.remote_id, dreq.local_id) else {
            // The connection is unknown here. Without a DREP the peer would repeat the DREQ for a minute.
            let own = final_psn::parse(&dreq.private_data).is_some();
            self.mads.push_back((reply_to(source, own), drep));
            return;
        };
        // Only engines of this project end a connection before their REP has arrived; they use the transaction id of the REQ.
        if !self.may_answer(id, transaction) {
            return;
        }
        let ours = self.cm.get(id).and_then(|c| c.qpn);
        if ours.is_some_and(|qpn| qpn != dreq.remote_qpn) {
            return;
        }
        self.apply_final_psn(now, id, dreq);
        let details = Details {
            drep: Some(&drep),
            ..Details::default()
        };
        self.cm_step_with(now, id, Input::Dreq, &details);
    }

    /// Completes requests that the DREQ's final PSN acknowledges, and the one that it refuses.
    fn apply_final_psn(&mut self, now: Time, id: u32, dreq: &Dreq) {
        // In any other state the queue pair may belong to another connection already.
        let up = |c: &&Connection| matches!(c.state, State::Established | State::RepSent);
        let Some(c) = self.cm.get(id).filter(up) else {
            return;
        };
        if c.agreement.has(Capabilities::FINAL_PSN)
            && let Some(expected) = final_psn::parse(&dreq.private_data)
            && let Some(slot) = c.qpn.and_then(|qpn| self.slot(qpn))
        {
            let expected = Psn::new(expected);
            let refusal = final_psn::parse_refusal(&dreq.private_data);
            self.with_qp(now, slot, |qp, cx| {
                if let Some(refusal) = refusal
                    && let Some(Syndrome::Nak(nak)) = Syndrome::from_wire(refusal.syndrome)
                {
                    qp.refused_final(cx, Psn::new(refusal.psn), nak);
                }
                qp.acknowledge_final(cx, expected);
            });
        }
    }
}

/// Returns the destination of an answer. rdma_rxe sends from any port and listens on one.
pub(super) const fn reply_to(source: SocketAddr, own: bool) -> SocketAddr {
    if own {
        source
    } else {
        SocketAddr::new(source.ip(), crate::ROCE_PORT)
    }
}

/// Reads transaction id and message of a management datagram of the connection manager.
fn parse(packet: &Packet<'_>) -> Option<(u64, CmMessage)> {
    packet.headers.deth.filter(|deth| deth.qkey == GSI_QKEY)?;
    let header = MadHeader::parse(packet.payload)?;
    let body: &cm::Body = packet.payload[MadHeader::LEN..].try_into().ok()?;
    let for_us = header.base_version == 1
        && header.class == MadHeader::CLASS_CM
        && header.class_version == 2
        && header.method == MadHeader::METHOD_SEND;
    let message = CmMessage::parse(header.attribute_id, body)?;
    for_us.then_some((header.transaction_id, message))
}

/// Returns the peer's address and the consumer's part of the private data, which is after the CMA header if the service has
/// one.
pub(super) fn consumer_part(
    source: SocketAddr,
    service: u64,
    data: &[u8],
) -> Option<(SocketAddr, &[u8])> {
    if service >> 24 != RDMA_CM_SERVICES {
        return Some((source, data));
    }
    let header = CmaHeader::parse(data)?;
    // The address is that of the datagram: the header's can be forged more easily.
    let remote = SocketAddr::new(source.ip(), header.source.port());
    Some((remote, &data[CmaHeader::LEN..]))
}
