//! The user-space engine: RoCEv2 in this process, over UDP, without privileges or kernel modules.

mod events;
mod hub;
pub mod memory;
pub mod net;
mod objects;
mod park;
mod settings;
mod transport;

pub use transport::UserEngine;
