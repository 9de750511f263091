//! How long this process takes to copy long payloads into a ring. Pure.
//!
//! The peer chooses between such copies and copies out of this process's memory (`pull_choice`), but sees only its own part of them.

/// One of so many copies is measured.
const EVERY: u32 = 8;
/// Measurements of which the shortest counts: in one of them another program may have had the processor.
const RECENT: usize = 4;

/// The measurement for one channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CopyTime {
    copies: u32,
    /// The last measurements, in nanoseconds for a MiB.
    recent: [u32; RECENT],
}

impl CopyTime {
    /// Has measured nothing yet.
    pub(crate) const fn new() -> Self {
        Self {
            copies: 0,
            recent: [u32::MAX; RECENT],
        }
    }

    /// Returns whether the next copy is to be measured.
    pub(crate) const fn measures(&self) -> bool {
        self.copies.is_multiple_of(EVERY)
    }

    /// Records that `bytes` were copied, in `nanos` if that was [measured](Self::measures). Returns the time for a MiB, not 0, that the peer is to
    /// know.
    pub(crate) fn took(&mut self, bytes: usize, nanos: Option<u64>) -> Option<u32> {
        let copies = self.copies;
        self.copies = copies.wrapping_add(1);
        let for_a_mib = (nanos? << 20) / bytes.max(1) as u64;
        self.recent[(copies / EVERY) as usize % RECENT] =
            u32::try_from(for_a_mib).unwrap_or(u32::MAX).max(1);
        self.recent.into_iter().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 32 << 10;

    /// Makes copies up to the next that is measured, and that one, which takes `nanos`.
    fn next(time: &mut CopyTime, nanos: u64) -> Option<u32> {
        while !time.measures() {
            assert_eq!(time.took(BYTES, None), None);
        }
        time.took(BYTES, Some(nanos))
    }

    #[test]
    fn the_shortest_of_the_last_measurements_is_told() {
        let mut time = CopyTime::new();
        let mut told = [3_000, 1_000, 4_000, 2_500, 3_500, 3_000, 9_000, 9_000].into_iter();
        for expected in [96, 32, 32, 32, 32, 80, 80, 96].map(|micros| micros * 1_000) {
            assert_eq!(next(&mut time, told.next().unwrap()), Some(expected));
        }
    }

    #[test]
    fn a_time_is_neither_0_nor_too_large() {
        let mut time = CopyTime::new();
        assert_eq!(time.took(0, Some(u64::MAX >> 20)), Some(u32::MAX));
        assert_eq!(next(&mut time, 0), Some(1));
    }
}
