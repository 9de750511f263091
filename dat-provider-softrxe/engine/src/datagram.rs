//! Datagram queue pairs: how they find each other, by service id resolution as rdma_cm does it, with the header of
//! [`Caller`] in the request. A peer may be the kernel's engine or this one.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use dat_core::error::Result;
use dat_core::transport::{Connect, Token};
use dat_core::upcall::DatagramOutcome;
use dat_handshake::Caller;
use dat_handshake::rdma_cm::REJ_VERSION;
use softrxe_proto::{
    CmError, CmEventKind, CmId, ConnectRequest, Qpn, SidrReply, SidrRequest, Time, service_id,
};

use super::events::Job;
use super::hub::{Hub, State, manager};
use super::objects::{ConnRequest, Qp};

/// The Q_Key of all datagram queue pairs that rdma_cm introduces.
pub(crate) const QKEY: u32 = 0x0123_4567;

/// Statuses of an answer (IBTA 12.11.2).
const VALID: u8 = 0;
const NO_SERVICE: u8 = 1;
const REJECTED: u8 = 2;

/// Where datagrams go.
#[derive(Clone, Copy, Debug)]
pub struct AddressHandle {
    pub(crate) address: IpAddr,
    pub(crate) qkey: u32,
}

/// A question on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    token: Token,
    /// Who asks.
    qpn: Qpn,
    /// Whom: address and port.
    remote: SocketAddr,
}

/// Starts to look for a peer.
pub(crate) fn ask(
    qp: &Qp,
    connect: &Connect<'_>,
    port: u16,
    source_port: u16,
) -> Result<(), CmError> {
    let caller = Caller {
        lid: 0,
        qpn: qp.qpn.value(),
        qkey: QKEY,
    };
    let request = SidrRequest {
        remote: manager(connect.remote),
        service_id: service_id::udp(port),
        source_port,
        private_data: &caller.write(connect.private_data),
    };
    let question = Question {
        token: connect.token,
        qpn: qp.qpn,
        remote: SocketAddr::new(connect.remote, port),
    };
    qp.hub.with(|state, now| {
        let id = state.engine.sidr_request(now, &request)?;
        state.questions.insert(id, question);
        Ok(())
    })
}

/// Answers `request` with `qp`: the peer learns of it, and core of the peer.
pub(crate) fn answer(
    request: &mut ConnRequest,
    caller: Caller,
    qp: &Qp,
    ah: Token,
    private_data: &[u8],
) -> Result<(), CmError> {
    let id = request.id;
    let reply = SidrReply {
        status: VALID,
        qpn: qp.qpn,
        qkey: QKEY,
        private_data,
    };
    let peer = DatagramOutcome::Resolved {
        address: AddressHandle {
            address: request.remote.ip(),
            qkey: caller.qkey,
        },
        qpn: caller.qpn,
        remote: request.remote,
        private_data: Box::default(),
    };
    qp.hub.with(|state, now| {
        let peer = match state.engine.sidr_reply(now, id, &reply) {
            Ok(()) => peer,
            // The peer gave up before it was answered.
            Err(CmError::UnknownId(_)) => DatagramOutcome::Failed,
            Err(error) => return Err(error),
        };
        state.jobs.push_back(Job::Datagram(ah, peer));
        Ok(())
    })?;
    request.answered = true;
    Ok(())
}

/// Refuses, as the consumer if `data` says so.
pub(crate) fn refuse(state: &mut State, now: Time, id: CmId, data: &[u8]) {
    let reply = SidrReply {
        status: REJECTED,
        qpn: Qpn::default(),
        qkey: 0,
        private_data: data,
    };
    // The peer may have given up: then it does not need to be told.
    let _ = state.engine.sidr_reply(now, id, &reply);
}

/// A peer asks.
pub(crate) fn asked(
    hub: &Arc<Hub>,
    state: &mut State,
    now: Time,
    id: CmId,
    asked: &ConnectRequest,
) -> Option<Job> {
    let known = state.services.get(&asked.service_id);
    let caller = Caller::read(&asked.private_data);
    let (Some((token, _)), Some((caller, private_data))) = (known, caller) else {
        refuse(state, now, id, &[]);
        return None;
    };
    let mut request = ConnRequest::new(hub, id, asked);
    request.caller = Some(caller);
    let asked = ConnectRequest {
        private_data: private_data.into(),
        ..asked.clone()
    };
    Some(Job::Request(*token, request, asked, hub.place.address))
}

/// What an event of a question of ours means. `None`: it is none.
pub(crate) fn answered(state: &mut State, id: CmId, kind: &CmEventKind) -> Option<Job> {
    let question = state.questions.remove(&id)?;
    let answer = match kind {
        CmEventKind::SidrReply {
            status: VALID,
            qpn,
            qkey,
            private_data,
        } => DatagramOutcome::Resolved {
            address: AddressHandle {
                address: question.remote.ip(),
                qkey: *qkey,
            },
            qpn: qpn.value(),
            remote: question.remote,
            private_data: private_data.clone(),
        },
        CmEventKind::SidrReply {
            status: REJECTED,
            private_data,
            ..
        } => match private_data.strip_prefix(&REJ_VERSION) {
            Some(data) => DatagramOutcome::PeerRejected {
                private_data: data.into(),
            },
            None => DatagramOutcome::Failed,
        },
        CmEventKind::SidrReply {
            status: NO_SERVICE, ..
        } => DatagramOutcome::NoListener,
        _ => DatagramOutcome::Failed,
    };
    Some(Job::Datagram(question.token, answer))
}

/// The queue pair asks no more.
pub(crate) fn forget(state: &mut State, qpn: Qpn) {
    state.questions.retain(|_, question| question.qpn != qpn);
}
