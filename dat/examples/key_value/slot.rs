//! The layout of a slot: a version, which is odd while the slot changes, and the content.

/// Number of slots.
pub(crate) const SLOTS: usize = 256;
/// Bytes of a slot, in cache lines of its own.
pub(crate) const SIZE: usize = 128;
/// Bytes of the version.
pub(crate) const VERSION: usize = 8;
const KEY: usize = 24;
/// Longest key and value; each has a byte for its length.
pub(crate) const KEY_MOST: usize = KEY - 1;
pub(crate) const VALUE_MOST: usize = SIZE - VERSION - KEY - 1;

/// The bytes of a slot after its version. An empty key is a free slot.
pub(crate) type Content = [u8; SIZE - VERSION];

/// Returns the slot at which the search for a key begins (FNV-1a).
pub(crate) fn first(key: &[u8]) -> usize {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, step);
    (hash % SLOTS as u64) as usize
}

/// Returns the content of a slot with this key and value, unless one is too long.
pub(crate) fn encode(key: &[u8], value: &[u8]) -> Option<Content> {
    if key.is_empty() || key.len() > KEY_MOST || value.len() > VALUE_MOST {
        return None;
    }
    let mut content = [0; SIZE - VERSION];
    content[0] = key.len() as u8;
    content[1..=key.len()].copy_from_slice(key);
    content[KEY] = value.len() as u8;
    content[KEY + 1..=KEY + value.len()].copy_from_slice(value);
    Some(content)
}

/// Returns key and value of a content, unless the lengths are impossible.
pub(crate) fn decode(content: &[u8]) -> Option<(&[u8], &[u8])> {
    let field = |at: usize| {
        let length = usize::from(*content.get(at)?);
        content.get(at + 1..=at + length)
    };
    Some((field(0)?, field(KEY)?))
}
