//! Connections through librdmacm. The ids carry no queue pair: the endpoint creates its queue pair long before it
//! connects, and this module moves it to RTR and RTS with the path of the connection manager.
//!
//! `id` and `event` wrap librdmacm, `stage` decides (pure), `conn` performs the actions. `listener` and `request` are the passive side's
//! service point and its pending requests. `retire` releases an id that iWARP would wait for. `resolution` finds the peers of datagram
//! queue pairs, which send the header of `dat_handshake::datagram` to each other. The wire format is that of DAPL's cma provider, so the
//! peer may be DAPL.

pub(crate) mod conn;
pub(crate) mod event;
pub(crate) mod id;
pub(crate) mod listener;
pub(crate) mod request;
pub(crate) mod resolution;
pub(crate) mod retire;
pub(crate) mod stage;
