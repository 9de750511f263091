//! Bytes that a message contains, by which its receiver recognises it.

/// Returns the word at `index` of message `seed`.
fn word(seed: u64, index: usize) -> [u8; 8] {
    let place = (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (place ^ seed.wrapping_mul(0xD134_2543_DE82_EF95)).to_le_bytes()
}

/// Fills `bytes` with those of message `seed`.
pub(crate) fn fill(bytes: &mut [u8], seed: u64) {
    for (index, chunk) in bytes.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&word(seed, index)[..chunk.len()]);
    }
}

/// The first byte that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) offset: usize,
    pub(crate) found: u8,
    pub(crate) expected: u8,
}

/// Compares `bytes` with those of message `seed`.
pub(crate) fn difference(bytes: &[u8], seed: u64) -> Option<Difference> {
    for (index, chunk) in bytes.chunks(8).enumerate() {
        let expected = word(seed, index);
        if chunk != &expected[..chunk.len()] {
            let at = chunk.iter().zip(expected).position(|(a, b)| *a != b)?;
            return Some(Difference {
                offset: index * 8 + at,
                found: chunk[at],
                expected: expected[at],
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_recognised_and_another_one_is_not() {
        let mut bytes = vec![0; 1003];
        fill(&mut bytes, 5);
        assert_eq!(difference(&bytes, 5), None);
        assert!(difference(&bytes, 6).is_some());
        let expected = bytes[1001];
        bytes[1001] ^= 1;
        let found = difference(&bytes, 5);
        assert_eq!(
            found,
            Some(Difference {
                offset: 1001,
                found: expected ^ 1,
                expected
            })
        );
        // A part at another place is not taken for the right one.
        fill(&mut bytes, 5);
        bytes.rotate_left(8);
        assert_eq!(difference(&bytes, 5).map(|d| d.offset), Some(0));
    }

    #[test]
    fn one_byte_tells_256_messages_in_a_row_apart() {
        let first: std::collections::BTreeSet<u8> = (0..256).map(|seed| word(seed, 0)[0]).collect();
        assert_eq!(first.len(), 256);
    }
}
