//! The body `near` of tests/fuzz under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dat_fuzz::near(data));
