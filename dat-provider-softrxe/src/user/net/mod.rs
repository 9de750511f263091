//! UDP for RoCEv2: sockets, and the sharing of port 4791 between processes.

pub(crate) mod address;
pub mod door;
pub mod route;
pub mod socket;
pub mod wake;
