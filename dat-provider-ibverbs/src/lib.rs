//! DAT provider for any verbs device, opened by device, netdev or address: a shell around `dat_verbs`.

dat_abi::export_provider!(dat_verbs::Verbs);
