//! How payloads are copied into a ring, and how long that takes. Pure.
//!
//! A store needs its line from the processor that read it last. Where the two share no cache, that takes ten times as long as a copy should.
//! Then stores that go past the caches are quicker, although the reader has to get the bytes out of memory.
//!
//! The peer is told the time, as it chooses between such copies and copies out of this process's memory (`pull_choice`), and sees only its own
//! part of them.

/// Bytes that are copied before the first measurement: memory that is used for the first time is slower.
const FILL: u64 = 2 << 20;
/// One of so many copies is measured, after the first ones.
const EVERY: u32 = 8;
/// Measurements of which the shortest counts: in one of them another program may have had the processor.
const RECENT: usize = 4;
/// Nanoseconds for a MiB from which on copies go past the caches: 4 GiB/s. Between processors with a common cache a copy takes a third of that.
const SLOW: u32 = 250_000;
/// Bytes that go past the caches before the usual way is measured again.
const PAST_CACHES: u64 = 64 << 20;

/// The measurement and the choice for one channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RingCopies {
    /// The processor is one on which copies past the caches are quicker at times.
    may_pass: bool,
    /// Bytes before the first measurement.
    fill: u64,
    /// Bytes that still go past the caches.
    past_caches: u64,
    copies: u32,
    /// Measurements since the way has changed, the last ones in nanoseconds for a MiB.
    measured: u32,
    recent: [u32; RECENT],
}

impl RingCopies {
    /// Starts with usual copies. `may_pass`: they may become copies past the caches.
    pub(crate) const fn new(may_pass: bool) -> Self {
        Self {
            may_pass,
            fill: FILL,
            past_caches: 0,
            copies: 0,
            measured: 0,
            recent: [u32::MAX; RECENT],
        }
    }

    /// Returns whether long payloads are to be copied past the caches.
    #[inline]
    pub(crate) const fn pass_caches(&self) -> bool {
        self.past_caches != 0
    }

    /// Returns whether the time of the next copy of a long payload is of use.
    pub(crate) const fn measures(&self) -> bool {
        let begins = self.measured < RECENT as u32;
        self.fill == 0 && (begins || self.copies.is_multiple_of(EVERY))
    }

    /// Records a copy of a long payload of `bytes`, which took `nanos` if that was [measured](Self::measures). Returns the time for a MiB, not 0, that the peer is to
    /// know.
    pub(crate) fn took(&mut self, bytes: usize, nanos: Option<u64>) -> Option<u32> {
        let length = bytes as u64;
        self.copies = self.copies.wrapping_add(1);
        self.fill = self.fill.saturating_sub(length);
        if self.pass_caches() {
            self.past_caches = self.past_caches.saturating_sub(length);
            if self.past_caches == 0 {
                self.change();
                return None;
            }
        }
        let for_a_mib = (nanos? << 20) / length.max(1);
        self.recent[self.measured as usize % RECENT] =
            u32::try_from(for_a_mib).unwrap_or(u32::MAX).max(1);
        self.measured = self.measured.saturating_add(1);
        let best = self.recent.into_iter().min();
        let is_known = self.measured >= RECENT as u32;
        if self.may_pass && !self.pass_caches() && is_known && best > Some(SLOW) {
            self.past_caches = PAST_CACHES;
            self.change();
        }
        best
    }

    const fn change(&mut self) {
        self.measured = 0;
        self.recent = [u32::MAX; RECENT];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 32 << 10;
    const QUICK: u64 = 3_000;
    /// 256 us for a MiB.
    const SLOW_COPY: u64 = 8_000;

    /// Makes copies up to the next that is measured, and that one, which takes `nanos`.
    fn next(copies: &mut RingCopies, nanos: u64) -> Option<u32> {
        while !copies.measures() {
            assert_eq!(copies.took(BYTES, None), None);
        }
        copies.took(BYTES, Some(nanos))
    }

    #[test]
    fn the_shortest_of_the_last_measurements_is_told() {
        let mut copies = RingCopies::new(false);
        let mut told = [3_000, 1_000, 4_000, 2_500, 3_500, 3_000, 9_000, 9_000].into_iter();
        for expected in [96, 32, 32, 32, 32, 80, 80, 96].map(|micros| micros * 1_000) {
            assert_eq!(next(&mut copies, told.next().unwrap()), Some(expected));
        }
    }

    #[test]
    fn a_time_is_neither_0_nor_too_large() {
        let mut copies = RingCopies::new(false);
        assert_eq!(next(&mut copies, 0), Some(1));
        let mut copies = RingCopies::new(false);
        copies.fill = 0;
        assert_eq!(copies.took(0, Some(u64::MAX >> 20)), Some(u32::MAX));
    }

    #[test]
    fn new_memory_is_not_measured() {
        let mut copies = RingCopies::new(true);
        for _ in 0..FILL / BYTES as u64 {
            assert!(!copies.measures());
            copies.took(BYTES, None);
        }
        assert!(copies.measures());
    }

    #[test]
    fn slow_copies_go_past_the_caches_for_some_time() {
        let mut copies = RingCopies::new(true);
        for _ in 0..2 {
            for nanos in [SLOW_COPY, QUICK, SLOW_COPY, SLOW_COPY, SLOW_COPY, SLOW_COPY] {
                assert!(!copies.pass_caches());
                next(&mut copies, nanos);
            }
            assert!(copies.pass_caches(), "the last four were slow");
            let mut past = 0;
            while copies.pass_caches() {
                let nanos = copies.measures().then_some(QUICK);
                copies.took(BYTES, nanos);
                past += BYTES as u64;
            }
            assert_eq!(past, PAST_CACHES);
            assert!(copies.measures());
            for _ in 0..RECENT {
                next(&mut copies, QUICK);
            }
        }
    }

    #[test]
    fn slow_copies_stay_usual_where_the_processor_is_of_another_kind() {
        let mut copies = RingCopies::new(false);
        for _ in 0..100 {
            next(&mut copies, SLOW_COPY);
            assert!(!copies.pass_caches());
        }
    }
}
