//! Numbers for keys: all 32 bits are random, so that a guess hits a live key with 1 in 2^32 for each that there is, whatever keys the
//! guesser has.
//!
//! A key is looked up as a whole in a table. The usual alternative, an index and a generation, shows how many keys there are and which
//! comes next; a cipher would hide that, but costs each packet more than the look-up.

use std::collections::VecDeque;

use softrxe_proto::{Generator, SecretKey};

/// Keys that were given back do not come again before so many others were given back.
const REST: usize = 4096;

/// Draws keys.
#[derive(Debug)]
pub(super) struct Keys {
    random: Generator,
    /// Given back, oldest first.
    resting: VecDeque<u32>,
}

impl Keys {
    /// The keys that follow from `secret`.
    pub(super) fn new(secret: &SecretKey) -> Self {
        Self {
            random: Generator::new(secret),
            resting: VecDeque::with_capacity(REST),
        }
    }

    /// A key that is not in use, as `in_use` says, and was not for long. Never 0, which means "no key" to DAT consumers.
    pub(super) fn draw(&mut self, in_use: impl Fn(u32) -> bool) -> u32 {
        loop {
            let key = self.random.u32();
            if key != 0 && !in_use(key) && !self.resting.contains(&key) {
                return key;
            }
        }
    }

    /// `key` is not in use any more.
    pub(super) fn retire(&mut self, key: u32) {
        if self.resting.len() == REST {
            self.resting.pop_front();
        }
        self.resting.push_back(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: SecretKey = SecretKey::new([7; 32]);
    const MANY: usize = 1 << 14;

    /// `MANY` coins land heads half of the time, give or take six standard deviations.
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
    fn keys_use_all_bits_and_do_not_tell_of_the_next() {
        let mut keys = Keys::new(&SECRET);
        let drawn: Vec<u32> = (0..=MANY).map(|_| keys.draw(|_| false)).collect();
        let pairs = drawn.windows(2).map(|pair| (pair[0], pair[1]));
        assert_random("keys", &drawn[1..].iter().copied());
        assert_random("bits that change", &pairs.clone().map(|(a, b)| a ^ b));
        assert_random(
            "differences",
            &pairs.clone().map(|(a, b)| b.wrapping_sub(a)),
        );
        // One bit tells nothing of another one of the next key.
        for turn in 1..32 {
            let turned = pairs.clone().map(|(a, b)| a.rotate_left(turn) ^ b);
            assert_random("bits that change places", &turned);
        }
    }

    #[test]
    fn a_key_is_not_drawn_while_it_is_in_use_nor_soon_afterwards() {
        let mut ahead = Generator::new(&SECRET);
        let [in_use, resting, free] = [(); 3].map(|()| ahead.u32());
        let mut keys = Keys::new(&SECRET);
        keys.retire(resting);
        for other in 1..REST as u32 {
            keys.retire(other);
        }
        assert_eq!(keys.draw(|key| key == in_use), free);

        let mut keys = Keys::new(&SECRET);
        keys.retire(resting);
        for other in 1..=REST as u32 {
            keys.retire(other);
        }
        assert_eq!(keys.draw(|key| key == in_use), resting);
    }

    #[test]
    fn another_secret_gives_other_keys() {
        let mut keys = [SECRET, SecretKey::new([8; 32])].map(|secret| Keys::new(&secret));
        let [mine, others] = keys
            .each_mut()
            .map(|keys| [(); 8].map(|()| keys.draw(|_| false)));
        assert!(mine.iter().all(|key| !others.contains(key)));
    }
}
