//! The DAT provider of the loopback transport, with faults that `fault=` in its `ia_params` plants (`dat_faulty_loopback::faults`).
//! Only the proof of the conformance suite loads it. It imports `dat-provider` and `dat-faulty-loopback`.

dat_provider::export_provider!(dat_faulty_loopback::Loopback);
