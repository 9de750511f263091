//! Wire formats, one file per header. All fields are big endian except the ICRC.
//!
//! `parse` takes bytes from the network and never panics. `emit` writes to a slice of at least `LEN` bytes. Reserved bits
//! that peers do set are kept, so that parse and emit are inverse.

pub mod aeth;
pub mod atomicack;
pub mod atomiceth;
pub mod bth;
pub mod cm;
pub mod cma;
pub mod deth;
pub mod icrc;
pub(crate) mod icrc_cache;
pub mod ieth;
pub mod immdt;
pub mod mad;
pub mod packet;
pub mod reth;

pub use aeth::{Aeth, Nak, Syndrome};
pub use atomiceth::AtomicEth;
pub use bth::Bth;
pub use cma::CmaHeader;
pub use deth::Deth;
pub use mad::MadHeader;
pub use packet::{Headers, Packet, ParseError};
pub use reth::Reth;

/// Returns the `N` bytes at `at`. The caller has checked the length of `bytes`.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

fn be24(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(bytes, at))
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

fn put24(out: &mut [u8], at: usize, value: u32) {
    put(out, at, &value.to_be_bytes()[1..]);
}
