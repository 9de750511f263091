//! The user-space engine: RoCEv2 in this process, over UDP, without privileges or kernel modules.

mod clock;
mod connect;
mod convert;
mod crowd;
mod datagram;
mod events;
mod habits;
mod hub;
pub mod memory;
mod named;
pub mod net;
mod objects;
mod open;
mod park;
mod place;
mod progress;
mod secrets;
mod settings;
mod slice;
mod transport;

pub(crate) use net::interface::default_address;
pub(crate) use settings::KEYS;
pub use transport::UserEngine;
