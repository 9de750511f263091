//! DAT provider over the loopback: all that a provider needs beside its transport.

dat_abi::export_provider!(dat_loopback::Loopback);
