//! Service id resolution (SIDR): its calls, the messages received, and repetitions.

use std::net::SocketAddr;

use super::super::Engine;
use super::super::timers::Owner;
use super::calls::check_length;
use super::message::{consumer_part, reply_to};
use super::step::{TIME_WAIT, pause};
use crate::cm::CmError;
use crate::cm::connection::request_lifetime;
use crate::cm::sidr::{self, Resolution, SidrReply, SidrRequest};
use crate::event::{CmEventKind, CmId, ConnectRequest};
use crate::memory::Memory;
use crate::psn::Qpn;
use crate::time::{Spared, Time};
use crate::wire::cm::{SidrRep, SidrReq};

/// Bytes of private data in a SIDR_REQ after the CMA header, and in a SIDR_REP.
const SIDR_REQ_DATA: usize = 180;
const SIDR_REP_DATA: usize = 136;

impl<M: Memory> Engine<M> {
    /// Sends a SIDR_REQ for a datagram queue pair. The resolution ends in `SidrReply` or `TimedOut`.
    ///
    /// # Errors
    /// `PrivateData` or `Family`.
    pub fn sidr_request(
        &mut self,
        now: Time,
        arguments: &SidrRequest<'_>,
    ) -> Result<CmId, CmError> {
        check_length(arguments.private_data, SIDR_REQ_DATA)?;
        self.check_family(arguments.remote)?;
        let id = self.new_id();
        let transaction = self.random.u64();
        let local = SocketAddr::new(self.config.local, arguments.source_port);
        let last = sidr::request(id, transaction, local, arguments);
        self.mads.push_back((arguments.remote, last.clone()));
        let due = now + self.config.cm_retry;
        self.cm.insert_resolution(
            id,
            Resolution {
                ours: true,
                remote: arguments.remote,
                request_id: id,
                transaction,
                service_id: arguments.service_id,
                last: Some(last),
                repeated: 0,
                spared: Spared::default(),
                until: arguments.timeout.map(|timeout| now + timeout),
                due: Some(due),
            },
        );
        self.timers.add(due, Owner::Cm(id));
        Ok(CmId(id))
    }

    /// Ends a resolution of this side: its request is not repeated, and there is no event unless it was raised before.
    pub fn end_sidr_request(&mut self, id: CmId) {
        if self.cm.resolution(id.0).is_some_and(|r| r.ours) {
            self.cm.remove_resolution(id.0);
        }
    }

    /// Answers a `SidrRequest`. The id is dead afterwards.
    ///
    /// # Errors
    /// `UnknownId` or `PrivateData`.
    pub fn sidr_reply(
        &mut self,
        now: Time,
        id: CmId,
        arguments: &SidrReply<'_>,
    ) -> Result<(), CmError> {
        check_length(arguments.private_data, SIDR_REP_DATA)?;
        let resolution = self.cm.resolution(id.0);
        let resolution = resolution.filter(|r| !r.ours && r.last.is_none());
        let resolution = resolution.ok_or(CmError::UnknownId(id))?;
        let last = sidr::reply(resolution, arguments);
        self.mads.push_back((resolution.remote, last.clone()));
        self.cm.answer_resolution(id.0, last);
        self.cm.pending.answered(id.0, now + TIME_WAIT);
        self.arm_requests();
        Ok(())
    }

    pub(super) fn handle_sidr_req(
        &mut self,
        now: Time,
        source: SocketAddr,
        transaction: u64,
        req: &SidrReq,
    ) {
        let request = (source.ip(), req.request_id, transaction);
        if let Some((id, asked)) = self.cm.by_request(&request) {
            match asked.last.clone() {
                Some(last) => self.mads.push_back((asked.remote, last)),
                None => self.keep_request(id, now + request_lifetime()),
            }
            return;
        }
        let asker = reply_to(source, false);
        let resolution = Resolution {
            ours: false,
            remote: asker,
            request_id: req.request_id,
            transaction,
            service_id: req.service_id,
            last: None,
            repeated: 0,
            spared: Spared::default(),
            until: None,
            due: None,
        };
        let part = consumer_part(source, req.service_id, &req.private_data);
        let Some((remote, data)) = part.filter(|_| self.cm.services.contains(&req.service_id))
        else {
            let no_listener = SidrReply {
                status: 1,
                qpn: Qpn::default(),
                qkey: 0,
                private_data: &[],
            };
            self.mads
                .push_back((asker, sidr::reply(&resolution, &no_listener)));
            return;
        };
        if !self.admit_request(now, source) {
            return;
        }
        let id = self.new_id();
        self.cm.insert_resolution(id, resolution);
        self.add_pending(now, id, source);
        let request = ConnectRequest {
            service_id: req.service_id,
            remote,
            initiator_depth: 0,
            responder_resources: 0,
            private_data: data.into(),
        };
        self.raise(id, CmEventKind::SidrRequest(request));
    }

    pub(super) fn handle_sidr_rep(&mut self, source: SocketAddr, transaction: u64, rep: &SidrRep) {
        let asked = self.cm.resolution(rep.request_id);
        let answers =
            |r: &Resolution| r.ours && r.remote.ip() == source.ip() && r.transaction == transaction;
        if !asked.is_some_and(|r| answers(r)) {
            return;
        }
        self.cm.remove_resolution(rep.request_id);
        let kind = CmEventKind::SidrReply {
            status: rep.status,
            qpn: rep.qpn,
            qkey: rep.qkey,
            private_data: rep.private_data.as_slice().into(),
        };
        self.raise(rep.request_id, kind);
    }

    /// Handles a timer entry of a resolution: repeats our request, or gives it up.
    pub(super) fn resolution_timeout(&mut self, now: Time, at: Time, id: u32) {
        let (retry, retries) = (self.config.cm_retry, self.config.cm_retries);
        let Some(r) = self.cm.resolution(id) else {
            return;
        };
        if r.due != Some(at) {
            return;
        }
        let counts = r.spared.counts(now, at);
        if now.is_after_stop(at) {
            // The time limit does not count the stop either.
            r.until = r.until.map(|until| until + now.since(at));
        }
        if counts && r.repeated >= retries || r.until.is_some_and(|until| until <= now) {
            self.raise(id, CmEventKind::TimedOut);
            self.cm.remove_resolution(id);
            return;
        }
        r.repeated += u8::from(counts);
        let due = now + pause(retry, r.repeated);
        r.due = Some(due);
        if let Some(last) = r.last.clone() {
            self.mads.push_back((r.remote, last));
        }
        self.timers.add(due, Owner::Cm(id));
    }
}
