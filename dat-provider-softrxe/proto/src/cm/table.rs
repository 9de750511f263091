//! Where connections are found: by our id, by the peer's id, by the peer's queue pair. An id or a queue pair number of a peer means
//! something only together with the peer that it belongs to.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use dat_handshake::guid::is_own;

use super::connection::Connection;
use super::sidr::Resolution;
use super::state::State;
use super::unproven::Unproven;
use crate::Qpn;

/// The owner of communication ids and queue pairs, as far as a message shows it.
///
/// A CA GUID is public and any host can write it into a REQ; the source address of a datagram cannot be chosen so freely. Engines
/// of this crate send from one UDP port all their life, and no other process of their address can send from it. rdma_rxe sends from
/// any port, as the kernel speaks for all processes of the address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Peer {
    address: IpAddr,
    /// 0 unless it is an engine of this crate.
    port: u16,
    guid: u64,
}

impl Peer {
    /// The owner of what a message from `source` names together with `guid`.
    pub(crate) const fn new(source: SocketAddr, guid: u64) -> Self {
        Self {
            address: source.ip(),
            port: if is_own(guid) { source.port() } else { 0 },
            guid,
        }
    }
}

/// All connections and resolutions of an engine.
#[derive(Debug, Default)]
pub(crate) struct Table {
    connections: HashMap<u32, Connection>,
    /// (peer, its id) -> our id, for REQs that are repeated and for peers that do not know our id.
    by_peer: HashMap<(Peer, u32), u32>,
    /// (peer, its queue pair) -> our id, for REQs from a peer that began anew.
    by_qp: HashMap<(Peer, Qpn), u32>,
    resolutions: HashMap<u32, Resolution>,
    /// (peer's address, its request id) -> our id, for questions of peers.
    asked: HashMap<(IpAddr, u32), u32>,
    /// Requests and questions of peers that nothing is known of yet, and those of them that are answered and wait for a repetition.
    pub(crate) unproven: Unproven,
    /// Connections that ended, oldest first; some of them are forgotten already.
    ended: VecDeque<u32>,
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

    pub(crate) fn resolution(&mut self, id: u32) -> Option<&mut Resolution> {
        self.resolutions.get_mut(&id)
    }

    /// The question that a peer at `address` calls `request_id`.
    pub(crate) fn asked(&self, address: IpAddr, request_id: u32) -> Option<(u32, &Resolution)> {
        let id = *self.asked.get(&(address, request_id))?;
        Some((id, self.resolutions.get(&id)?))
    }

    pub(crate) fn insert_resolution(&mut self, id: u32, resolution: Resolution) {
        if !resolution.ours {
            self.asked.insert(resolution.asked(), id);
        }
        self.resolutions.insert(id, resolution);
    }

    pub(crate) fn remove_resolution(&mut self, id: u32) {
        if let Some(resolution) = self.resolutions.remove(&id)
            && !resolution.ours
        {
            self.asked.remove(&resolution.asked());
            self.unproven.remove(id);
        }
    }

    /// A connection is over and only kept for what its peer may repeat. Returns another one that is to be forgotten if there are more
    /// than `most` of them.
    pub(crate) fn note_end(&mut self, id: u32, most: usize) -> Option<u32> {
        self.ended.push_back(id);
        if self.ended.len() <= most {
            return None;
        }
        let over = |id: &u32| {
            let state = self.connections.get(id).map(|c| c.state);
            matches!(state, Some(State::TimeWait | State::DreqSent))
        };
        self.ended.pop_front().filter(over)
    }

    /// Is a DREQ of ours not confirmed yet?
    pub(crate) fn is_leaving(&self) -> bool {
        let mut all = self.connections.values();
        all.any(|c| c.state == State::DreqSent)
    }

    /// Connections with own peers that are `gone`, and whose end we await to be confirmed.
    pub(crate) fn unconfirmed(&self, gone: impl Fn(IpAddr, Qpn) -> bool) -> Vec<u32> {
        let awaits = |c: &&Connection| {
            c.state == State::DreqSent && is_own(c.remote_guid) && gone(c.remote.ip(), c.remote_qpn)
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
            self.by_peer.insert((c.peer(), c.remote_id), id);
            self.by_qp.insert((c.peer(), c.remote_qpn), id);
        }
    }

    /// The connection no longer stands for its peer's queue pair: a new one may.
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
        self.unproven.remove(id);
        let key = (connection.peer(), connection.remote_id);
        if self.by_peer.get(&key) == Some(&id) {
            self.by_peer.remove(&key);
        }
        Some(connection)
    }

    /// The connection that `peer` calls `remote_id`.
    pub(crate) fn by_peer(&self, peer: Peer, remote_id: u32) -> Option<u32> {
        self.by_peer.get(&(peer, remote_id)).copied()
    }

    /// The connection with the queue pair `qpn` of `peer`.
    pub(crate) fn by_qp(&self, peer: Peer, qpn: Qpn) -> Option<u32> {
        self.by_qp.get(&(peer, qpn)).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.connections.len() + self.resolutions.len()
    }
}
