//! DAT provider for Soft-RoCE: chooses between the kernel's rdma_rxe and the user-space engine.
//!
//! `engine=kernel` opens the kernel's rdma_rxe device of a netdev through `dat_verbs`; [`kernel`] finds that device or
//! creates it. `engine=user` opens `softrxe_engine`, RoCEv2 in this process. Without the setting the kernel's engine is
//! used where that is possible. See `docs/ia_params.md`.
//!
//! Begin with `provider.rs`, which chooses. The crate imports `dat-core`, `dat-abi`, `dat-verbs` and `softrxe-engine`.

pub mod kernel;
mod provider;

pub use provider::SoftRxe;

dat_abi::export_provider!(
    SoftRxe,
    settings: [provider::SETTINGS, dat_verbs::SETTINGS, softrxe_engine::SETTINGS, provider::RELATIONS]
);
