//! What the engine's events mean to core.

use std::net::IpAddr;
use std::sync::Arc;

use dat_core::transport::Token;
use dat_core::upcall::{Arrival, ConnOutcome, DatagramOutcome, Fault, Upcalls};
use dat_handshake::rdma_cm::REJ_VERSION;
use softrxe_proto::{CmEvent, CmEventKind, CmId, ConnectRequest, Event, RejectReason, Time};

use super::UserEngine;
use super::datagram;
use super::hub::{Connection, Hub, State};
use super::net::liveness::LocalPeer;
use super::objects::ConnRequest;

/// An upcall to be made without the lock.
pub(crate) enum Job {
    Request(Token, ConnRequest, ConnectRequest, IpAddr),
    Connection(Token, ConnOutcome, Box<[u8]>),
    Datagram(Token, DatagramOutcome<UserEngine>),
    CqReady(Token),
    SrqLow(Token),
}

impl Job {
    /// The upcall for a connection that broke.
    fn broken(token: Token) -> Self {
        Self::Connection(token, ConnOutcome::Broken, Box::default())
    }

    pub(crate) fn run(self, upcalls: Upcalls<UserEngine>) {
        match self {
            Self::Request(sp, request, asked, local) => {
                let datagram = request.caller.is_some();
                let arrival = Arrival {
                    remote: asked.remote,
                    local,
                    private_data: &asked.private_data,
                    datagram,
                };
                upcalls.connect_request(sp, request, &arrival);
            }
            Self::Connection(token, outcome, data) => upcalls.connection(token, outcome, &data),
            Self::Datagram(ah, outcome) => upcalls.datagram(ah, outcome),
            Self::CqReady(token) => upcalls.cq_ready(token),
            Self::SrqLow(token) => upcalls.fault(Fault::SrqLow(token)),
        }
    }
}

/// The upcall that `event` calls for, if any.
pub(crate) fn job(hub: &Arc<Hub>, state: &mut State, now: Time, event: Event) -> Option<Job> {
    match event {
        Event::Cm(CmEvent {
            id,
            kind: CmEventKind::SidrRequest(asked),
            ..
        }) => datagram::asked(hub, state, now, id, &asked),
        Event::Cm(event) => datagram::answered(state, event.id, &event.kind)
            .or_else(|| connection(hub, state, event)),
        Event::CqReady(cq) => {
            let notice = state.cqs.get_mut(&cq)?;
            // One call of `watch_cq`, one announcement.
            std::mem::take(&mut notice.watched).then_some(Job::CqReady(notice.token))
        }
        Event::QpError {
            connection: Some(id),
            ..
        } => {
            // None if the consumer has ended it.
            let connection = state.part(id)?;
            // It may have ended meanwhile.
            let _ = state.engine.disconnect(now, id);
            Some(Job::broken(connection.token))
        }
        Event::QpError { .. } => None,
        Event::SrqLimit(srq) => state.srqs.get(&srq).copied().map(Job::SrqLow),
    }
}

/// Requests of engines that are `gone` end. The consumer still answers them, and hears then that there is no peer.
pub(crate) fn withdrawn(state: &mut State, now: Time, gone: &[LocalPeer]) {
    let callers = state.callers.iter();
    let dead = callers.filter(|(_, who)| gone.contains(who));
    for id in dead.map(|(id, _)| *id).collect::<Vec<_>>() {
        state.callers.remove(&id);
        // It may have ended meanwhile.
        let _ = state.engine.disconnect(now, id);
    }
}

/// Connections to engines that are `gone` break.
pub(crate) fn bereaved(state: &mut State, now: Time, gone: &[LocalPeer]) -> Vec<Job> {
    let of_gone = |c: &Connection| c.neighbour.is_some_and(|who| gone.contains(&who));
    let all = state.connections.iter();
    let broken: Vec<CmId> = all.filter(|(_, c)| of_gone(c)).map(|(id, _)| *id).collect();
    let end = |id: CmId| {
        let connection = state.part(id)?;
        // It may have ended meanwhile.
        let _ = state.engine.disconnect(now, id);
        Some(Job::broken(connection.token))
    };
    broken.into_iter().filter_map(end).collect()
}

fn connection(hub: &Arc<Hub>, state: &mut State, event: CmEvent) -> Option<Job> {
    let CmEvent { id, kind, .. } = event;
    if let CmEventKind::Request(asked) = kind {
        let request = ConnRequest::new(hub, id, &asked);
        hub.befriend_caller(state, id);
        let Some((token, _)) = state.services.get(&asked.service_id) else {
            // The job refuses it without the lock.
            return Some(Job::Request(
                Token::default(),
                request,
                asked,
                hub.place.address,
            ));
        };
        return Some(Job::Request(*token, request, asked, hub.place.address));
    }
    let known = state.connections.get_mut(&id)?;
    let token = known.token;
    let mut data = Box::default();
    let outcome = match kind {
        CmEventKind::Established(data) => {
            known.established = true;
            let passive = known.passive;
            hub.befriend(state, id);
            let data = if passive { Box::default() } else { data };
            return Some(Job::Connection(token, ConnOutcome::Established, data));
        }
        CmEventKind::Rejected { .. } | CmEventKind::TimedOut if known.passive => {
            ConnOutcome::AcceptError
        }
        CmEventKind::Rejected {
            reason,
            private_data,
        } => match private_data.strip_prefix(&REJ_VERSION) {
            Some(theirs) if reason == RejectReason::CONSUMER => {
                data = theirs.into();
                ConnOutcome::PeerRejected
            }
            _ => ConnOutcome::NonPeerRejected,
        },
        CmEventKind::TimedOut => ConnOutcome::Unreachable,
        CmEventKind::Disconnected if known.passive && !known.established => {
            ConnOutcome::AcceptError
        }
        CmEventKind::Disconnected => ConnOutcome::Disconnected,
        _ => return None,
    };
    state.part(id);
    Some(Job::Connection(token, outcome, data))
}
