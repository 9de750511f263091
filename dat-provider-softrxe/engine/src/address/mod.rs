//! Addresses of this host: its netdevs, and the local address that an adapter uses.

pub(crate) mod interface;
pub(crate) mod local_address;
