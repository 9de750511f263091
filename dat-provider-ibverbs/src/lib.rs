//! DAT provider for any verbs device: InfiniBand and RoCE adapters, and software devices such as rdma_rxe.
//!
//! A shell: `dat_verbs` moves the data, `dat_abi` speaks C. `ia_params` are described in `docs/ia_params.md`.

dat_abi::export_provider!(dat_verbs::Verbs);
