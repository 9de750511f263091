//! Connections through librdmacm. The ids carry no queue pair: the queue pair is made by the endpoint long
//! before it connects, and this module moves it on with what the connection manager knows of the path.
//!
//! `id` and `event` wrap librdmacm, `stage` decides (pure), `conn` does what was decided, `listener` and
//! `request` are the passive side's service point and its unanswered requests; `resolution` finds the peers of
//! datagram queue pairs, which send a `caller` header to each other. What goes over the wire is what
//! DAPL's cma provider sends, so either may be at the other end.

pub(crate) mod caller;
pub(crate) mod conn;
pub(crate) mod event;
pub(crate) mod id;
pub(crate) mod listener;
pub(crate) mod request;
pub(crate) mod resolution;
pub(crate) mod stage;
