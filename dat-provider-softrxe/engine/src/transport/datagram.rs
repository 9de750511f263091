//! Datagram queue pairs: queries for a peer, and answers to a peer's query.

use std::net::SocketAddr;

use dat_core::error::Result;
use dat_core::transport::{Connect, Token};
use dat_core::upcall::DatagramOutcome;
use dat_handshake::Caller;
use softrxe_port::slot::slot_of_qpn;
use softrxe_proto::{CmError, SidrReply, SidrRequest, service_id};

use super::convert::cm_error;
use super::objects::{ConnRequest, Qp};
use crate::adapter::datagram::{AddressHandle, QKEY, Query, VALID};
use crate::adapter::ports::cm_address;
use crate::adapter::upcall::Upcall;

/// Starts a query for the peer that `connect` names. An upcall reports the outcome.
pub(super) fn query(qp: &Qp, connect: &Connect<'_>, port: u16, source_port: u16) -> Result<()> {
    let caller = Caller {
        lid: 0,
        qpn: qp.qpn.value(),
        qkey: QKEY,
    };
    let request = SidrRequest {
        remote: cm_address(connect.remote),
        service_id: service_id::udp(port),
        source_port,
        private_data: &caller.write(connect.private_data),
        timeout: connect.timeout,
    };
    let query = Query {
        token: connect.token,
        qpn: qp.qpn,
        remote: SocketAddr::new(connect.remote, port),
    };
    qp.hub.with(|state, now| {
        let id = state.engine.sidr_request(now, &request).map_err(cm_error)?;
        state.connections.add_query(id, query);
        Ok(())
    })
}

/// Answers the query `request` with `qp`. Core gets the peer's address handle in an upcall.
pub(super) fn answer(
    request: &mut ConnRequest,
    caller: Caller,
    qp: &Qp,
    ah: Token,
    private_data: &[u8],
) -> Result<()> {
    let id = request.id;
    let peer = (request.remote.ip(), slot_of_qpn(caller.qpn));
    qp.hub.await_channel_for_datagrams(peer);
    let reply = SidrReply {
        status: VALID,
        qpn: qp.qpn,
        qkey: QKEY,
        private_data,
    };
    let resolved = DatagramOutcome::Resolved {
        address: AddressHandle {
            address: request.remote.ip(),
            qkey: caller.qkey,
        },
        qpn: caller.qpn,
        remote: request.remote,
        private_data: Box::default(),
    };
    // A reply does not depend on the lane that it is sent from.
    request.hub.with(|state, now| {
        let outcome = match state.engine.sidr_reply(now, id, &reply) {
            Ok(()) => resolved,
            // The peer gave up before it was answered.
            Err(CmError::UnknownId(_)) => DatagramOutcome::Failed,
            Err(error) => return Err(cm_error(error)),
        };
        let upcall = Upcall::Datagram(ah, outcome);
        state.pending.upcalls.push_back(upcall);
        Ok(())
    })?;
    request.answered = true;
    Ok(())
}
