//! The Soft-RoCE transport in user space: RoCEv2 in this process, over UDP, without privileges or kernel modules.
//!
//! [`UserEngine`] implements `dat_core::transport::Transport`. The provider `dat-provider-softrxe` links it into its
//! shared object; a Rust program can use it statically, through `dat_core::ia::Ia::<UserEngine>::open`.
//! The protocol is in `softrxe-proto`, UDP port 4791 and its sharing between processes in `softrxe-port`, memory shared
//! with processes of the same host in `softrxe-near`. This crate imports these, `dat-arena`, `dat-core`, `dat-handshake`
//! and `dat-os`; the provider imports it.
//!
//! Modules, from the top down; a file imports only from files below it (`tests/import_order.rs`):
//! * `transport`: what core calls, and the objects that core holds. Begin reading here.
//! * `adapter::driver`: the threads that drive an adapter, namely consumers that post and poll, waiters, and the helper.
//! * `adapter::hub`: the lock of an adapter. `adapter::state`: what is behind it, and how data passes between the owners of its parts:
//!   `connections`, `notices`, `peers`, `ports`, `pending`, `near`. `adapter::events` converts the protocol's events to upcalls
//!   (`adapter::upcall`), `adapter::process_ends` handles the end of other processes, `adapter::own_end`
//!   that of this one. `adapter::lanes`: several hubs of one adapter.
//! * `link`: paths for packets below the reliable connection. `memory`: registered memory. `adaptive`: predictions of what
//!   the consumer does next. `wait`: sleeping threads. `address`: local addresses.

mod adapter;
mod adaptive;
mod address;
mod clock;
mod link;
mod memory;
mod secrets;
mod settings;
mod transport;
mod user_engine;
mod wait;

pub use address::interface::default_address;
pub use settings::{KEYS, SETTINGS};
pub use user_engine::UserEngine;
