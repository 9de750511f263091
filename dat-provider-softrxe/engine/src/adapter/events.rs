//! Conversion of the protocol's events to upcalls.

use dat_core::upcall::ConnOutcome;
use dat_handshake::Caller;
use dat_handshake::rdma_cm::consumers_refusal;
use softrxe_port::liveness::LocalPeer;
use softrxe_port::slot::slot_of_qpn;
use softrxe_proto::{
    CmEvent, CmEventKind, CmId, ConnectRequest, Engine, Event, RejectReason, Time,
};

use super::connections::Connections;
use super::datagram;
use super::descriptors::Descriptors;
use super::near::Near;
use super::near_dial::{self, NearDial};
use super::notices::Notices;
use super::peers::Peers;
use super::upcall::{IncomingRequest, Upcall};
use crate::memory::regions::Regions;

/// What the conversion reads and changes.
pub(crate) struct Context<'a> {
    pub(crate) engine: &'a mut Engine<Regions>,
    pub(crate) near: &'a mut Near,
    pub(crate) near_dial: &'a mut NearDial,
    pub(crate) connections: &'a mut Connections,
    pub(crate) notices: &'a mut Notices,
    pub(crate) peers: &'a mut Peers,
    pub(crate) descriptors: &'a Descriptors,
}

impl Context<'_> {
    /// Returns the upcall that `event` leads to, if any.
    pub(crate) fn upcall(&mut self, now: Time, event: Event) -> Option<Upcall> {
        match event {
            Event::Cm(CmEvent {
                id,
                kind: CmEventKind::SidrRequest(request),
                ..
            }) => self.datagram_request(now, id, &request),
            Event::Cm(event) => match self.connections.remove_query(event.id) {
                Some(query) => {
                    let outcome = query.outcome(&event.kind);
                    Some(Upcall::Datagram(query.token, outcome))
                }
                None => self.connection(now, event),
            },
            Event::CqReady(cq) => self.notices.take_watched(cq).map(Upcall::CqReady),
            Event::QpError {
                connection: Some(id),
                ..
            } => self.connections.break_connection(self.engine, now, id),
            Event::QpError { .. } => None,
            Event::SrqLimit(srq) => self.notices.srq(srq).map(Upcall::SrqLow),
        }
    }

    /// Handles a peer's query for a datagram queue pair.
    fn datagram_request(
        &mut self,
        now: Time,
        id: CmId,
        request: &ConnectRequest,
    ) -> Option<Upcall> {
        let sp = self.connections.service_point(request.service_id);
        let caller = Caller::read(&request.private_data);
        let (Some(sp), Some((caller, private_data))) = (sp, caller) else {
            datagram::refuse(self.engine, now, id, &[]);
            return None;
        };
        let peer = (request.remote.ip(), slot_of_qpn(caller.qpn));
        let (near_dial, mut context) = self.near_parts(now);
        if near_dial.dials_at_requests() {
            near_dial.dial_for_datagrams(&mut context, peer);
        }
        let request = IncomingRequest {
            datagram: Some(caller),
            private_data: private_data.into(),
            ..incoming(id, request, Box::default())
        };
        Some(Upcall::Request(sp, request))
    }

    fn connection(&mut self, now: Time, event: CmEvent) -> Option<Upcall> {
        let CmEvent { id, kind, .. } = event;
        if let CmEventKind::Forwarded(what) = kind {
            return Some(Upcall::Forwarded(id, what));
        }
        if let CmEventKind::Request(mut request) = kind {
            self.watch_request(id);
            let (near_dial, mut context) = self.near_parts(now);
            if near_dial.dials_at_requests() {
                near_dial.dial(&mut context, id);
            }
            let sp = self.connections.service_point(request.service_id);
            let private_data = std::mem::take(&mut request.private_data);
            let request = incoming(id, &request, private_data);
            return Some(Upcall::Request(sp.unwrap_or_default(), request));
        }
        let connection = self.connections.get_mut(id)?;
        let token = connection.token;
        let mut data = Box::default();
        let outcome = match kind {
            CmEventKind::Established(theirs) => {
                connection.established = true;
                let passive = connection.passive;
                self.watch_connection(id);
                self.near_dial.note_established(self.engine, now, id);
                let data = if passive { data } else { theirs };
                return Some(Upcall::Connection(token, ConnOutcome::Established, data));
            }
            CmEventKind::Rejected { .. } | CmEventKind::TimedOut if connection.passive => {
                ConnOutcome::AcceptError
            }
            CmEventKind::Rejected {
                reason,
                private_data,
            } => match consumers_refusal(&private_data) {
                Some(theirs) if reason == RejectReason::CONSUMER => {
                    data = theirs.into();
                    ConnOutcome::PeerRejected
                }
                _ => ConnOutcome::NonPeerRejected,
            },
            CmEventKind::TimedOut => ConnOutcome::Unreachable,
            CmEventKind::Disconnected if connection.passive && !connection.established => {
                ConnOutcome::AcceptError
            }
            CmEventKind::Disconnected => ConnOutcome::Disconnected,
            _ => return None,
        };
        self.connections.remove(id);
        Some(Upcall::Connection(token, outcome, data))
    }

    /// Watches the peer of the request `id` from here on: once it is gone, its name is gone, too.
    pub(crate) fn watch_request(&mut self, id: CmId) {
        if let Some(peer) = self.watch_peer(id) {
            self.connections.add_caller(id, peer);
        }
    }

    /// Returns the agreement on channels, and what it works on.
    const fn near_parts(&mut self, now: Time) -> (&mut NearDial, near_dial::Context<'_>) {
        let context = near_dial::Context {
            engine: self.engine,
            near: self.near,
            now,
        };
        (self.near_dial, context)
    }

    /// Watches the peer of a connection, if it is an engine of this host.
    fn watch_connection(&mut self, id: CmId) {
        if let Some(peer) = self.watch_peer(id)
            && let Some(connection) = self.connections.get_mut(id)
        {
            connection.local_peer = Some(peer);
        }
    }

    fn watch_peer(&mut self, id: CmId) -> Option<LocalPeer> {
        self.peers.watch_peer(self.engine, self.descriptors, id)
    }
}

/// Returns the request `id` of a peer for a connection.
fn incoming(id: CmId, request: &ConnectRequest, private_data: Box<[u8]>) -> IncomingRequest {
    IncomingRequest {
        id,
        // Service ids of rdma_cm end with the port.
        port: request.service_id as u16,
        remote: request.remote,
        datagram: None,
        private_data,
    }
}

#[cfg(test)]
mod tests {
    use dat_core::transport::Token;
    use dat_core::upcall::DatagramOutcome;
    use softrxe_proto::{Qpn, SidrRequest};

    use super::*;
    use crate::adapter::connections::Connection;
    use crate::adapter::datagram::Query;
    use crate::transport::open::test_hub;

    /// What the upcall for a refusal with these bytes says: the outcomes of a connection and of a lookup.
    fn refused(private_data: &[u8]) -> [Option<Box<[u8]>>; 2] {
        let hub = test_hub("127.77.5.22");
        let remote = (hub.address(), 1).into();
        let (token, qpn) = (Token(1), Qpn::new(9));
        let private_data: Box<[u8]> = private_data.into();
        let mut state = hub.state.lock();
        let request = SidrRequest {
            remote,
            service_id: 1,
            source_port: 1,
            private_data: &[],
            timeout: None,
        };
        let id = state.engine.sidr_request(Time::ZERO, &request).unwrap();
        let connection = Connection {
            token,
            qpn,
            port: 1,
            passive: false,
            established: false,
            local_peer: None,
        };
        state.connections.add(id, connection);
        let (_, mut context) = state.parts(&hub.descriptors);
        let kind = CmEventKind::Rejected {
            reason: RejectReason::CONSUMER,
            private_data: private_data.clone(),
        };
        let event = Event::Cm(CmEvent {
            id,
            qpn: Some(qpn),
            kind,
        });
        let of_connection = match context.upcall(Time::ZERO, event) {
            Some(Upcall::Connection(_, ConnOutcome::PeerRejected, data)) => Some(data),
            Some(Upcall::Connection(_, ConnOutcome::NonPeerRejected, _)) => None,
            _ => panic!("another upcall"),
        };
        let query = Query { token, qpn, remote };
        let reply = CmEventKind::SidrReply {
            status: 2,
            qpn: Qpn::default(),
            qkey: 0,
            private_data,
        };
        let of_lookup = match query.outcome(&reply) {
            DatagramOutcome::PeerRejected { private_data } => Some(private_data),
            DatagramOutcome::Failed => None,
            _ => panic!("another outcome"),
        };
        [of_connection, of_lookup]
    }

    /// DAPL puts the versions of DAT and of its provider before the data, and does not look at a peer's.
    #[test]
    fn a_consumers_refusal_may_be_of_any_version_of_dat() {
        for version in [[2, 0, 2, 0], [1, 2, 1, 2], [2, 0, 2, 1]] {
            let mut sent = version.to_vec();
            sent.extend_from_slice(b"no");
            let data = Some(b"no".as_slice().into());
            assert_eq!(refused(&sent), [data.clone(), data], "{version:?}");
        }
        assert_eq!(refused(&[0; 148]), [None, None], "the kernel's");
    }
}
