//! Indexes of connections: by our id, by the peer's id, by the peer's queue pair. An id or a queue pair number of a peer is
//! unique only together with that peer.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;

use dat_handshake::guid::is_own;

use super::answered::AnsweredRequests;
use super::asked::AskedServices;
use super::connection::{Connection, Mad};
use super::peer::Peer;
use super::pending::PendingRequests;
use super::sidr::{RequestKey, Resolution};
use super::state::State;
use crate::Qpn;
use crate::event::CmId;

/// All connections and resolutions of an engine.
#[derive(Debug, Default)]
pub(crate) struct Table {
    connections: HashMap<u32, Connection>,
    /// (peer, its id) -> our id, for repeated REQs and for peers that do not have our id.
    by_peer: HashMap<(Peer, u32), u32>,
    /// (peer, its queue pair) -> our id, for REQs of a peer that has restarted.
    by_qp: HashMap<(Peer, Qpn), u32>,
    resolutions: HashMap<u32, Resolution>,
    /// Request -> our id, for resolutions of peers.
    by_request: HashMap<RequestKey, u32>,
    /// Requests and resolutions of peers that have not shown that they receive answers, also answered ones that are kept
    /// for repetition.
    pub(crate) pending: PendingRequests,
    /// Requests of peers that were answered, also those whose connection is no longer here.
    pub(crate) answered: AnsweredRequests,
    /// Connections that ended, oldest first; some are removed already.
    ended: VecDeque<u32>,
    pub(crate) services: HashSet<u64>,
    pub(crate) asked: AskedServices,
}

impl Table {
    pub(crate) fn get(&self, id: u32) -> Option<&Connection> {
        self.connections.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Connection> {
        self.connections.get_mut(&id)
    }

    pub(crate) fn holds(&self, id: u32) -> bool {
        self.connections.contains_key(&id) || self.resolutions.contains_key(&id)
    }

    pub(crate) fn insert(&mut self, connection: Connection) {
        let id = connection.local_id;
        if connection.state.is_asked() {
            self.asked.add(connection.service_id);
        }
        self.connections.insert(id, connection);
        self.index(id);
    }

    /// Sets the state of the connection `id`.
    pub(crate) fn set_state(&mut self, id: u32, next: State) {
        let Some(c) = self.connections.get_mut(&id) else {
            return;
        };
        let was = std::mem::replace(&mut c.state, next);
        match (was.is_asked(), next.is_asked()) {
            (true, false) => self.asked.remove(c.service_id),
            (false, true) => self.asked.add(c.service_id),
            _ => {}
        }
    }

    pub(crate) fn resolution(&mut self, id: u32) -> Option<&mut Resolution> {
        self.resolutions.get_mut(&id)
    }

    /// Returns the resolution for a request of a peer.
    pub(crate) fn by_request(&self, request: &RequestKey) -> Option<(u32, &Resolution)> {
        let id = *self.by_request.get(request)?;
        Some((id, self.resolutions.get(&id)?))
    }

    pub(crate) fn insert_resolution(&mut self, id: u32, resolution: Resolution) {
        if !resolution.ours {
            self.by_request.insert(resolution.request_key(), id);
            self.asked.add(resolution.service_id);
        }
        self.resolutions.insert(id, resolution);
    }

    /// Records the answer to the resolution `id` of a peer, which has none yet, for repetition.
    pub(crate) fn answer_resolution(&mut self, id: u32, last: Box<Mad>) {
        if let Some(resolution) = self.resolutions.get_mut(&id) {
            resolution.last = Some(last);
            self.asked.remove(resolution.service_id);
        }
    }

    pub(crate) fn remove_resolution(&mut self, id: u32) {
        if let Some(resolution) = self.resolutions.remove(&id)
            && !resolution.ours
        {
            if resolution.last.is_none() {
                self.asked.remove(resolution.service_id);
            }
            self.by_request.remove(&resolution.request_key());
            self.pending.remove(id);
        }
    }

    /// Records that a connection has ended and is kept for repetitions. Returns another one to remove if there are more
    /// than `most`.
    pub(crate) fn add_ended(&mut self, id: u32, most: usize) -> Option<u32> {
        self.ended.push_back(id);
        if self.ended.len() <= most {
            return None;
        }
        let over = |id: &u32| {
            let state = self.connections.get(id).map(|c| c.state);
            matches!(
                state,
                Some(State::TimeWait | State::DreqSent | State::PassedOn)
            )
        };
        self.ended.pop_front().filter(over)
    }

    /// Returns true if a DREQ of ours is not confirmed yet.
    pub(crate) fn is_leaving(&self) -> bool {
        let mut all = self.connections.values();
        all.any(|c| c.state == State::DreqSent)
    }

    /// Returns the connections whose state `wanted` returns true for.
    pub(crate) fn with_state(&self, wanted: impl Fn(State) -> bool) -> Vec<CmId> {
        let all = self.connections.values();
        let all = all.filter(|c| wanted(c.state));
        all.map(|c| CmId(c.local_id)).collect()
    }

    /// Returns connections with engines of this project that are `gone` and have not confirmed our DREQ.
    pub(crate) fn unconfirmed(&self, gone: impl Fn(IpAddr, Qpn) -> bool) -> Vec<u32> {
        let awaits = |c: &&Connection| {
            c.state == State::DreqSent && is_own(c.remote_guid) && gone(c.remote.ip(), c.remote_qpn)
        };
        let all = self.connections.values().filter(awaits);
        all.map(|c| c.local_id).collect()
    }

    /// Returns the connections and resolutions of this side whose request to `remote` was repeated, and has no answer.
    pub(crate) fn unanswered(&self, remote: IpAddr) -> Vec<u32> {
        let asked = |c: &&Connection| {
            c.state == State::ReqSent && c.repeated > 0 && c.remote.ip() == remote
        };
        let attempts = self.connections.values().filter(asked);
        let asked =
            |(_, r): &(&u32, &Resolution)| r.ours && r.repeated > 0 && r.remote.ip() == remote;
        let lookups = self.resolutions.iter().filter(asked);
        let attempts = attempts.map(|c| c.local_id);
        attempts.chain(lookups.map(|(id, _)| *id)).collect()
    }

    /// Updates the indexes with what is now known of the peer.
    pub(crate) fn index(&mut self, id: u32) {
        let Some(c) = self.connections.get(&id) else {
            return;
        };
        if c.remote_guid != 0 {
            self.by_peer.insert((c.peer(), c.remote_id), id);
            self.by_qp.insert((c.peer(), c.remote_qpn), id);
        }
    }

    /// Removes the connection from the index of the peers' queue pairs, so that a new one can take its place.
    pub(crate) fn release_qp(&mut self, id: u32) {
        if let Some(c) = self.connections.get(&id) {
            let key = (c.peer(), c.remote_qpn);
            if self.by_qp.get(&key) == Some(&id) {
                self.by_qp.remove(&key);
            }
        }
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Connection> {
        self.release_qp(id);
        let connection = self.connections.remove(&id)?;
        self.pending.remove(id);
        if connection.state.is_asked() {
            self.asked.remove(connection.service_id);
        }
        let key = (connection.peer(), connection.remote_id);
        if self.by_peer.get(&key) == Some(&id) {
            self.by_peer.remove(&key);
        }
        Some(connection)
    }

    /// Returns the connection with the id `remote_id` of `peer`.
    pub(crate) fn by_peer(&self, peer: Peer, remote_id: u32) -> Option<u32> {
        self.by_peer.get(&(peer, remote_id)).copied()
    }

    /// Returns the connection with the queue pair `qpn` of `peer`.
    pub(crate) fn by_qp(&self, peer: Peer, qpn: Qpn) -> Option<u32> {
        self.by_qp.get(&(peer, qpn)).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.connections.len() + self.resolutions.len()
    }
}
