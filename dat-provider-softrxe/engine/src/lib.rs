//! The Soft-RoCE transport in user space: RoCEv2 in this process, over UDP, without privileges or kernel modules.
//!
//! [`UserEngine`] implements `dat_core::transport::Transport`. The provider `dat-provider-softrxe` links it into its
//! shared object; a Rust program may use it statically, through `dat_core::ia::Ia::<UserEngine>::open`.
//! The protocol is in `softrxe-proto`, UDP port 4791 and its sharing between processes in `softrxe-port`. This crate
//! imports these, `dat-core` and `dat-os`. Reading begins at `transport` (what core calls), then `hub`.

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

pub use net::interface::default_address;
pub use settings::KEYS;
pub use transport::UserEngine;
