//! The DAT provider of the loopback transport. The macro is all that a provider needs besides its transport.
//! It imports `dat-provider` and `dat-loopback`.

dat_provider::export_provider!(dat_loopback::Loopback);
