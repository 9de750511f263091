//! Keys of regions and windows. All 32 bits are random: a guess hits one of n live keys with probability n / 2^32, whatever other
//! keys a peer has.
//!
//! A key is looked up as a whole in a table. The usual alternative, an index and a generation, reveals how many keys there are and
//! which comes next. A cipher would hide that, but costs each packet more than the look-up.

use std::collections::VecDeque;

use softrxe_proto::{Generator, SecretKey};

/// A retired key is drawn again only after this many others were retired.
const QUARANTINE: usize = 4096;

/// Draws random keys.
#[derive(Debug)]
pub(super) struct Keys {
    random: Generator,
    /// Retired keys that must not be drawn yet, oldest first.
    quarantined: VecDeque<u32>,
}

impl Keys {
    /// Makes the sequence of keys that `secret` determines.
    pub(super) fn new(secret: &SecretKey) -> Self {
        Self {
            random: Generator::new(secret),
            quarantined: VecDeque::with_capacity(QUARANTINE),
        }
    }

    /// Draws a key that is neither in use, as `in_use` says, nor quarantined. It is never 0, which means "no key" to DAT consumers.
    pub(super) fn draw(&mut self, in_use: impl Fn(u32) -> bool) -> u32 {
        loop {
            let key = self.random.u32();
            if key != 0 && !in_use(key) && !self.quarantined.contains(&key) {
                return key;
            }
        }
    }

    /// Retires `key`, which is no longer in use.
    pub(super) fn retire(&mut self, key: u32) {
        if self.quarantined.len() == QUARANTINE {
            self.quarantined.pop_front();
        }
        self.quarantined.push_back(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: SecretKey = SecretKey::new([7; 32]);
    const MANY: usize = 1 << 14;

    /// Returns whether `heads` of `MANY` coin tosses are within six standard deviations of half.
    fn is_fair(heads: usize) -> bool {
        heads.abs_diff(MANY / 2) < 6 * 64
    }

    fn assert_random(what: &str, values: &(impl Iterator<Item = u32> + Clone)) {
        assert_eq!(values.clone().count(), MANY, "{what}");
        for bit in 0..32 {
            let heads = values.clone().filter(|value| value >> bit & 1 == 1).count();
            assert!(is_fair(heads), "{what}: bit {bit} is set {heads} times");
        }
    }

    #[test]
    fn keys_use_all_bits_and_do_not_reveal_the_next() {
        let mut keys = Keys::new(&SECRET);
        let drawn: Vec<u32> = (0..=MANY).map(|_| keys.draw(|_| false)).collect();
        let pairs = drawn.windows(2).map(|pair| (pair[0], pair[1]));
        assert_random("keys", &drawn[1..].iter().copied());
        assert_random("bits that change", &pairs.clone().map(|(a, b)| a ^ b));
        assert_random(
            "differences",
            &pairs.clone().map(|(a, b)| b.wrapping_sub(a)),
        );
        // No bit predicts another bit of the next key.
        for turn in 1..32 {
            let turned = pairs.clone().map(|(a, b)| a.rotate_left(turn) ^ b);
            assert_random("bits compared with other bits", &turned);
        }
    }

    #[test]
    fn a_key_is_not_drawn_while_in_use_or_quarantined() {
        let mut ahead = Generator::new(&SECRET);
        let [in_use, retired, free] = [(); 3].map(|()| ahead.u32());
        let mut keys = Keys::new(&SECRET);
        keys.retire(retired);
        for other in 1..QUARANTINE as u32 {
            keys.retire(other);
        }
        assert_eq!(keys.draw(|key| key == in_use), free);

        let mut keys = Keys::new(&SECRET);
        keys.retire(retired);
        for other in 1..=QUARANTINE as u32 {
            keys.retire(other);
        }
        assert_eq!(keys.draw(|key| key == in_use), retired);
    }

    #[test]
    fn different_secrets_give_different_keys() {
        let mut keys = [SECRET, SecretKey::new([8; 32])].map(|secret| Keys::new(&secret));
        let [first, second] = keys
            .each_mut()
            .map(|keys| [(); 8].map(|()| keys.draw(|_| false)));
        assert!(first.iter().all(|key| !second.contains(key)));
    }
}
