//! Connections, services and requests of an adapter, by the connection manager's ids.

use std::collections::{HashMap, HashSet};

use dat_core::transport::Token;
use dat_core::upcall::ConnOutcome;
use softrxe_port::liveness::LocalPeer;
use softrxe_proto::{CmId, Engine, Qpn, Time};

use super::datagram::Query;
use super::upcall::Upcall;
use crate::memory::regions::Regions;

/// A connection that core has an endpoint for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) token: Token,
    pub(crate) qpn: Qpn,
    /// Port of this side.
    pub(crate) port: u16,
    pub(crate) passive: bool,
    pub(crate) established: bool,
    /// The peer's engine, if it runs on this host and is watched.
    pub(crate) local_peer: Option<LocalPeer>,
}

/// The connection manager's map.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// Service points, by service id.
    services: HashMap<u64, Token>,
    /// Service ids without a service point whose requests have not ended. They stay registered: a repeated request finds its way by the
    /// service id.
    pub(crate) lingering: HashSet<u64>,
    connections: HashMap<CmId, Connection>,
    by_qpn: HashMap<Qpn, CmId>,
    /// Engines of this host with a request that the consumer has not answered.
    callers: HashMap<CmId, LocalPeer>,
    /// Queries for datagram peers that are under way.
    queries: HashMap<CmId, Query>,
}

impl Connections {
    /// Makes `service` lead to the service point `sp`.
    pub(crate) fn add_service(&mut self, service: u64, sp: Token) {
        self.services.insert(service, sp);
    }

    /// Removes `service`.
    pub(crate) fn remove_service(&mut self, service: u64) {
        self.services.remove(&service);
    }

    /// Returns the service point of `service`.
    pub(crate) fn service_point(&self, service: u64) -> Option<Token> {
        self.services.get(&service).copied()
    }

    /// Adds a connection. Events of `id` go to its token from then on.
    pub(crate) fn add(&mut self, id: CmId, connection: Connection) {
        self.by_qpn.insert(connection.qpn, id);
        self.connections.insert(id, connection);
    }

    /// Returns the connection `id`.
    pub(crate) fn get_mut(&mut self, id: CmId) -> Option<&mut Connection> {
        self.connections.get_mut(&id)
    }

    /// Removes a connection that has ended. Its queue pair may have another one by now.
    pub(crate) fn remove(&mut self, id: CmId) -> Option<Connection> {
        let connection = self.connections.remove(&id)?;
        if self.by_qpn.get(&connection.qpn) == Some(&id) {
            self.by_qpn.remove(&connection.qpn);
        }
        Some(connection)
    }

    /// Removes the connection of a queue pair, if it has one.
    pub(crate) fn remove_of(&mut self, qpn: Qpn) {
        if let Some(id) = self.by_qpn.remove(&qpn) {
            self.connections.remove(&id);
        }
    }

    /// Returns the id of a queue pair's connection.
    pub(crate) fn id_of(&self, qpn: Qpn) -> Option<CmId> {
        self.by_qpn.get(&qpn).copied()
    }

    /// Returns the local port of a queue pair's connection.
    pub(crate) fn port_of(&self, qpn: Qpn) -> Option<u16> {
        let connection = self.connections.get(self.by_qpn.get(&qpn)?)?;
        Some(connection.port)
    }

    /// Records that the request `id` came from `caller`.
    pub(crate) fn add_caller(&mut self, id: CmId, caller: LocalPeer) {
        self.callers.insert(id, caller);
    }

    /// Removes the caller of a request that has been answered or has ended.
    pub(crate) fn remove_caller(&mut self, id: CmId) -> Option<LocalPeer> {
        self.callers.remove(&id)
    }

    /// Adds a query for a datagram peer.
    pub(crate) fn add_query(&mut self, id: CmId, query: Query) {
        self.queries.insert(id, query);
    }

    /// Removes a query that has ended.
    pub(crate) fn remove_query(&mut self, id: CmId) -> Option<Query> {
        self.queries.remove(&id)
    }

    /// Ends all queries of a queue pair. Their answers are not needed any more, so they are not repeated.
    pub(crate) fn end_queries(&mut self, engine: &mut Engine<Regions>, qpn: Qpn) {
        let of_it = self.queries.extract_if(|_, query| query.qpn == qpn);
        of_it.for_each(|(id, _)| engine.end_sidr_request(id));
    }

    /// Returns whether there is a connection to one of `gone`.
    pub(crate) fn any_to(&self, gone: &[LocalPeer]) -> bool {
        self.connections.values().any(|c| c.is_to(gone))
    }

    /// Ends the requests of engines that are `gone`. The consumer still answers them; the answer then reports that there is no peer.
    pub(crate) fn end_requests(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
        gone: &[LocalPeer],
    ) {
        let of_gone = self.callers.extract_if(|_, caller| gone.contains(caller));
        for (id, _) in of_gone {
            // Fails if the request has ended meanwhile.
            let _ = engine.disconnect(now, id);
        }
    }

    /// Breaks the connections to engines that are `gone`. Returns the upcalls that report it.
    pub(crate) fn break_connections(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
        gone: &[LocalPeer],
    ) -> Vec<Upcall> {
        let to_gone = self.connections.iter().filter(|(_, c)| c.is_to(gone));
        let broken: Vec<CmId> = to_gone.map(|(id, _)| *id).collect();
        let end = |id| self.break_connection(engine, now, id);
        broken.into_iter().filter_map(end).collect()
    }

    /// Breaks the connection `id`. Returns the upcall that reports it; `None` if the consumer has ended the connection.
    pub(crate) fn break_connection(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
        id: CmId,
    ) -> Option<Upcall> {
        let connection = self.remove(id)?;
        // Fails if the connection has ended meanwhile.
        let _ = engine.disconnect(now, id);
        Some(Upcall::outcome(connection.token, ConnOutcome::Broken))
    }
}

impl Connection {
    fn is_to(&self, gone: &[LocalPeer]) -> bool {
        self.local_peer.is_some_and(|peer| gone.contains(&peer))
    }
}
