//! Invalidate extended transport header (IBTA 9.3.7): the R_Key to invalidate.

/// Bytes on the wire.
pub const LEN: usize = 4;

/// Reads the key; `None` if it is cut short.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// Writes the key to the front of `out`.
pub fn emit(rkey: u32, out: &mut [u8]) {
    out[..LEN].copy_from_slice(&rkey.to_be_bytes());
}
