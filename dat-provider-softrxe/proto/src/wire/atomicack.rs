//! Atomic acknowledge extended transport header (IBTA 9.5.3): the value before the operation.

/// Bytes on the wire.
pub const LEN: usize = 8;

/// Reads the value; `None` if it is cut short.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|b| u64::from_be_bytes(*b))
}

/// Writes the value to the front of `out`.
pub fn emit(original: u64, out: &mut [u8]) {
    out[..LEN].copy_from_slice(&original.to_be_bytes());
}
