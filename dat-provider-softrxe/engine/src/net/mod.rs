//! UDP for RoCEv2. The sockets and the sharing of port 4791 between processes are in `softrxe-port`.

pub mod capture;
pub mod interface;

pub(crate) use softrxe_port::{address, liveness, message, port_share, route, slot, socket, wake};
