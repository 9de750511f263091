//! What is left of a process's share in the port when the holder has ended. The next share is made of it.

use std::sync::Arc;

use crate::port_keeper::SharedKeptPorts;
use crate::shared_socket::SharedSocket;

/// What a process keeps of its share in the port when the holder has ended.
#[derive(Clone, Debug, Default)]
pub struct FormerShare {
    /// Uid of the required holder for all users; `None`: see [`Policy`](crate::port_share::Policy).
    pub(crate) holder: Option<u32>,
    /// The socket of the port and its lock, from the former holder.
    pub(crate) shared_socket: Option<Arc<SharedSocket>>,
    /// This process's own UDP port for data; 0 if none was reported.
    pub(crate) data_port: u16,
    /// Keepers of the ports of other processes.
    pub(crate) kept_ports: SharedKeptPorts,
}
