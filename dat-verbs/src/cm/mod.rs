//! Connections. The IA's `cm` setting selects the connection manager; peers must use the same one.
//!
//! * `rdma`: librdmacm, compatible with DAPL's cma provider;
//! * `socket`: queue pair data exchanged over TCP, compatible with DAPL's scm provider.
//!
//! `connect`, `listener` and `request` select between the two.

pub(crate) mod addr;
pub(crate) mod connect;
pub(crate) mod listener;
pub(crate) mod rdma;
pub(crate) mod request;
pub(crate) mod socket;
