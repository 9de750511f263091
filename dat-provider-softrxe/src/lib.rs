//! DAT provider for Soft-RoCE, kernel and user-space.
//!
//! `engine=kernel` opens the kernel's rdma_rxe device of a netdev through `dat_verbs`, after `kernel` has found or
//! made it; `engine=user` is RoCEv2 in this process. Without the setting it is the kernel's where that is possible.
//! See `docs/ia_params.md`.

pub mod kernel;
mod provider;
pub mod user;

pub use provider::SoftRxe;

dat_abi::export_provider!(SoftRxe);
