//! Random numbers that a peer must not predict: ids of the connection manager, first PSNs, memory keys.
//!
//! A [`Generator`] is the ChaCha20 key stream of one [`SecretKey`]. No number of its outputs reveals others, so the numbers
//! that one peer gets do not reveal those of another. The same key gives the same numbers, which tests use. A driver takes
//! each key from the kernel's generator and uses it once.

use std::fmt;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};

/// The key of a [`Generator`]: 256 bits. `Debug` does not show them.
#[derive(Clone)]
pub struct SecretKey([u8; 32]);

impl SecretKey {
    /// Creates a key of bytes that are random and known only to this process.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

/// Random number generator. `Debug` shows neither the key nor the position.
#[derive(Debug)]
pub struct Generator(ChaCha20Rng);

impl Generator {
    /// Creates a generator at the first number of `key`.
    #[must_use]
    pub fn new(key: &SecretKey) -> Self {
        Self(ChaCha20Rng::from_seed(key.0))
    }

    /// Draws 32 bits.
    pub fn u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// Draws 64 bits.
    pub fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_shown() {
        let key = SecretKey::new([0xa5; 32]);
        let shown = format!("{key:?} {:?}", Generator::new(&key));
        let leaked = ["165", "a5", "A5"].iter().any(|byte| shown.contains(byte));
        assert!(!leaked, "{shown}");
    }

    /// The expected values are those of RFC 8439's block function with key, counter and nonce zero. A change of the crate's
    /// stream fails here.
    #[test]
    fn the_numbers_are_those_of_chacha20() {
        let mut generator = Generator::new(&SecretKey::new([0; 32]));
        assert_eq!(generator.u32().to_le_bytes(), [0x76, 0xb8, 0xe0, 0xad]);
        assert_eq!(generator.u32().to_le_bytes(), [0xa0, 0xf1, 0x3d, 0x90]);
    }
}
