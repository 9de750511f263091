//! Immediate data (IBTA 9.3.6): four bytes that travel unchanged.

/// Bytes on the wire.
pub const LEN: usize = 4;

/// Reads immediate data; `None` if it is cut short.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<[u8; 4]> {
    bytes.first_chunk().copied()
}

/// Writes immediate data to the front of `out`.
pub fn emit(immediate: [u8; 4], out: &mut [u8]) {
    out[..LEN].copy_from_slice(&immediate);
}
