//! Inputs made of other inputs by a seeded generator: the same seed gives the same inputs.

/// Longest input.
const LONGEST: usize = 8192;
/// Bytes of values at common limits.
const EDGES: &[u8] = &[0, 1, 0x7f, 0x80, 0xff, 0xfe, 0x20, 0x60, 0x61];

/// Endless generator of inputs from `seeds`.
#[derive(Debug)]
pub struct Mutator {
    random: fastrand::Rng,
    seeds: Vec<Vec<u8>>,
}

impl Mutator {
    /// Creates a generator with `seeds`, which may be empty.
    #[must_use]
    pub fn new(seed: u64, seeds: Vec<Vec<u8>>) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            seeds,
        }
    }

    /// Returns the next input: a seed with a few changes, or random bytes.
    pub fn input(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        let mut out = match random.choice(&self.seeds) {
            Some(seed) if random.u8(..8) > 0 => seed.clone(),
            _ => {
                let length = random.usize(1..1500);
                (0..length).map(|_| random.u8(..)).collect()
            }
        };
        for _ in 0..random.usize(..8) {
            self.change(&mut out);
        }
        out.truncate(LONGEST);
        out
    }

    fn change(&mut self, out: &mut Vec<u8>) {
        let random = &mut self.random;
        let at = random.usize(..=out.len());
        let length = random.usize(..64).min(out.len() - at);
        match random.u8(..7) {
            0 if at < out.len() => out[at] ^= 1 << random.u8(..8),
            1 if at < out.len() => out[at] = EDGES[random.usize(..EDGES.len())],
            2 if at < out.len() => out[at] = random.u8(..),
            3 => drop(out.drain(at..at + length)),
            4 => {
                let part = out[at..at + length].to_vec();
                let to = random.usize(..=out.len());
                out.splice(to..to, part);
            }
            5 => {
                let new: Vec<u8> = (0..random.usize(1..16)).map(|_| random.u8(..)).collect();
                out.splice(at..at, new);
            }
            _ => {
                // The rest is that of another seed.
                if let Some(other) = random.choice(&self.seeds) {
                    let from = random.usize(..=other.len());
                    out.truncate(at);
                    out.extend(&other[from..]);
                }
            }
        }
    }
}
