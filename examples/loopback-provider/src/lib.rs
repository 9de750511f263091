//! The DAT provider of the loopback transport. The macro is all that a provider needs besides its transport.
//! It imports `dat-abi` and `dat-loopback`.

dat_abi::export_provider!(dat_loopback::Loopback);
