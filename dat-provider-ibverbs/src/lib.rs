//! DAT provider for any verbs device: InfiniBand and RoCE adapters, and software devices such as rdma_rxe.
//!
//! Only exports the provider: the transport is in `dat_verbs`, the C interface in `dat_abi`. Begin reading there.
//! The code uses no other crate. `ia_params` are described in `docs/ia_params.md`.

dat_abi::export_provider!(dat_verbs::Verbs, settings: [dat_verbs::SETTINGS]);
