//! The socket connection manager of an adapter.

use dat_handshake::scm;

use crate::cm::socket::gid::Gids;
use crate::cm::socket::timers::Timers;

/// State of an adapter with socket connections.
pub(crate) struct SocketManager {
    pub(crate) timers: Timers,
    pub(crate) gids: Gids,
    pub(crate) lid: u16,
    /// `ibv_mtu` code: the port's, or the lower `mtu` setting.
    pub(crate) mtu: u8,
    /// True if the `mtu` setting was given.
    pub(crate) mtu_is_set: bool,
}

impl SocketManager {
    /// Returns the MTU for a peer whose message has `mtu`. A message without one means 2048, as in DAPL.
    pub(crate) fn mtu_with(&self, peer: &scm::Message) -> u8 {
        match peer.mtu {
            None if self.mtu_is_set => self.mtu,
            _ => self.mtu.min(peer.mtu_or_default()),
        }
    }
}
