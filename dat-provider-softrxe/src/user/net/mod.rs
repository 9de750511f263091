//! UDP for RoCEv2: sockets, and the sharing of port 4791 between processes.

pub(crate) mod address;
pub mod capture;
mod child;
mod dial;
pub mod door;
pub mod interface;
pub mod life;
pub mod route;
pub mod share;
pub mod socket;
pub mod wake;
