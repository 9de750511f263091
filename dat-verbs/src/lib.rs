//! The DAT transport over libibverbs and librdmacm.
//!
//! [`Verbs`] implements [`dat_core::transport::Transport`] for any verbs device: InfiniBand and RoCE adapters and the
//! kernel's Soft-RoCE (`rdma_rxe`). Connections are plain `rdma_cm` ones with the parameters of DAPL's cma provider,
//! or with `cm=socket` those of its scm provider. The remote endpoint may therefore be one of either DAPL provider.
//!
//! Begin reading in `transport`, which maps each operation of the trait to an object. Then:
//! * `open` opens the device, `adapter` holds the state of an open adapter, `thread` runs its event thread;
//! * `verbs` holds the libibverbs objects, `cm` the connections; `sys` declares and loads both C libraries;
//! * `convert` translates between DAT and verbs, `settings` parses `ia_params`, `find` locates the device;
//! * `park` sleeps for a waiter, `epoll` waits for descriptors, `attributes` and `counters` answer queries.
//!
//! The crate may import `dat-arena`, `dat-core`, `dat-handshake` and `dat-os`. Unsafe code stands in `sys`, `verbs`, `cm`
//! and the files that call C (`open`, `find`).
//!
//! **Device removal**: every connection reports Broken, and all later operations fail. The consumer closes the IA.
//!
//! **fork**: see `docs/ia_params.md`.

mod adapter;
mod attributes;
mod cm;
mod convert;
mod counters;
mod epoll;
mod event_thread;
#[cfg(test)]
mod fake;
mod find;
mod open;
mod park;
mod settings;
mod sys;
mod transport;
mod verbs;

pub use find::local_addresses;
pub use settings::{KEYS, SETTINGS};
pub use sys::{LoadError, load};

/// The transport type: data through libibverbs, connections through librdmacm or sockets.
#[derive(Debug)]
pub struct Verbs;

/// The objects of [`Verbs`] that core holds; opaque to other crates.
pub mod objects {
    pub use crate::adapter::Adapter;
    pub use crate::cm::listener::Listener;
    pub use crate::cm::request::ConnRequest;
    pub use crate::park::Parker;
    pub use crate::sys::Wc;
    pub use crate::verbs::ah::AddressHandle;
    pub use crate::verbs::cq::Cq;
    pub use crate::verbs::lmr::Lmr;
    pub use crate::verbs::pd::Pd;
    pub use crate::verbs::qp::Qp;
    pub use crate::verbs::rmr::Rmr;
    pub use crate::verbs::srq::Srq;
}
