//! Where connections are found: by our id, by the peer's id, by the peer's queue pair.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::connection::Connection;
use super::sidr::Resolution;
use super::state::State;
use crate::Qpn;

/// All connections and resolutions of an engine.
#[derive(Debug, Default)]
pub(crate) struct Table {
    connections: HashMap<u32, Connection>,
    /// (peer's CA GUID, peer's id) -> our id, for REQs that are repeated.
    by_peer: HashMap<(u64, u32), u32>,
    /// (peer's CA GUID, peer's queue pair) -> our id, for REQs from a peer that began anew.
    by_qp: HashMap<(u64, Qpn), u32>,
    pub(crate) resolutions: HashMap<u32, Resolution>,
    pub(crate) services: HashSet<u64>,
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
        self.connections.insert(id, connection);
        self.index(id);
    }

    /// Is a DREQ of ours not confirmed yet?
    pub(crate) fn is_leaving(&self) -> bool {
        let mut all = self.connections.values();
        all.any(|c| c.state == State::DreqSent)
    }

    /// Connections with own peers that are `gone`, and whose end we await to be confirmed.
    pub(crate) fn unconfirmed(&self, gone: impl Fn(IpAddr, Qpn) -> bool) -> Vec<u32> {
        let awaits = |c: &&Connection| {
            c.state == State::DreqSent
                && super::connection::is_own(c.remote_guid)
                && gone(c.remote.ip(), c.remote_qpn)
        };
        let all = self.connections.values().filter(awaits);
        all.map(|c| c.local_id).collect()
    }

    /// Enters what is now known of the peer.
    pub(crate) fn index(&mut self, id: u32) {
        let Some(c) = self.connections.get(&id) else {
            return;
        };
        if c.remote_guid != 0 {
            self.by_peer.insert((c.remote_guid, c.remote_id), id);
            self.by_qp.insert((c.remote_guid, c.remote_qpn), id);
        }
    }

    /// The connection no longer stands for its peer's queue pair: a new one may.
    pub(crate) fn release_qp(&mut self, id: u32) {
        if let Some(c) = self.connections.get(&id) {
            let key = (c.remote_guid, c.remote_qpn);
            if self.by_qp.get(&key) == Some(&id) {
                self.by_qp.remove(&key);
            }
        }
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Connection> {
        self.release_qp(id);
        let connection = self.connections.remove(&id)?;
        let key = (connection.remote_guid, connection.remote_id);
        if self.by_peer.get(&key) == Some(&id) {
            self.by_peer.remove(&key);
        }
        Some(connection)
    }

    pub(crate) fn by_peer(&self, guid: u64, remote_id: u32) -> Option<u32> {
        self.by_peer.get(&(guid, remote_id)).copied()
    }

    pub(crate) fn by_qp(&self, guid: u64, qpn: Qpn) -> Option<u32> {
        self.by_qp.get(&(guid, qpn)).copied()
    }

    /// The request that a peer knows by its own id only: our REP has not reached it.
    pub(crate) fn requester(&self, peer: IpAddr, remote_id: u32) -> Option<u32> {
        let waits = |c: &&Connection| {
            matches!(
                c.state,
                State::ReqReceived | State::MraSent | State::RepSent
            ) && c.remote_id == remote_id
                && c.remote.ip() == peer
        };
        self.connections.values().find(waits).map(|c| c.local_id)
    }

    pub(crate) fn len(&self) -> usize {
        self.connections.len() + self.resolutions.len()
    }
}
