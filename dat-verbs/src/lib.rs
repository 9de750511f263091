//! The DAT transport over libibverbs and librdmacm.
//!
//! [`Verbs`] implements [`dat_core::transport::Transport`] for any verbs device: InfiniBand and RoCE adapters and
//! the kernel's Soft-RoCE (`rdma_rxe`). Connections are plain `rdma_cm` ones with the parameters of DAPL's cma
//! provider, or with `cm=socket` those of its scm provider, so an endpoint of either may be at the other end.
//!
//! * `sys` is the only user of `rdma-sys`, `verbs` holds the libibverbs objects, `cm` the connections;
//! * `map` translates between DAT and verbs, `settings` reads `ia_params`, `find` finds the device;
//! * `adapter` and `thread`: one thread an open adapter makes every upcall.
//!
//! **Device removal**: connections report Broken, then nothing works any more; close the IA.
//!
//! **fork**: see `docs/ia_params.md`.

mod adapter;
mod attributes;
mod cm;
mod counters;
mod find;
mod map;
mod park;
mod settings;
mod sys;
mod thread;
mod transport;
mod verbs;

pub use cm::rdma::caller::Caller;
pub use find::local_addresses;
pub use settings::KEYS;
pub use transport::Verbs;

/// The types that [`Verbs`] gives core, opaque.
pub mod objects {
    pub use crate::adapter::Adapter;
    pub use crate::cm::{ConnRequest, Listener};
    pub use crate::park::Parker;
    pub use crate::sys::Wc;
    pub use crate::verbs::ah::AddressHandle;
    pub use crate::verbs::cq::Cq;
    pub use crate::verbs::mr::Lmr;
    pub use crate::verbs::mw::Rmr;
    pub use crate::verbs::pd::Pd;
    pub use crate::verbs::qp::Qp;
    pub use crate::verbs::srq::Srq;
}
