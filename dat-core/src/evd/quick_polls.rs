//! How many times a wait polls before it becomes the waiter of its EVD, which costs as much as several polls. Pure.
//!
//! What a peer sends back at once is found meanwhile. Where the polls find nothing again and again, for example because both ends share one
//! processor, most waits make only one.

/// Polls of a wait that expects an event soon. They take some microseconds.
const POLLS: u32 = 32;
/// Waits in a row whose polls found nothing, after which waits rest from them.
const MISSES: u8 = 8;
/// Waits that make one poll then.
const REST: u8 = 16;

/// What former waits have found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct QuickPolls {
    misses: u8,
    rest: u8,
}

impl QuickPolls {
    /// Returns true if a wait is to poll again after poll number `attempt`, the first of which is 0.
    pub(super) const fn again(self, attempt: u32) -> bool {
        self.rest == 0 && attempt + 1 < POLLS
    }

    /// Records that a poll after the first one has found an event.
    pub(super) const fn hit(&mut self) {
        self.misses = 0;
    }

    /// Records that all polls of a wait found nothing.
    pub(super) const fn missed(&mut self) {
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        self.misses += 1;
        if self.misses >= MISSES {
            self.misses = MISSES - 1;
            self.rest = REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of polls of a wait that finds nothing.
    fn wait(quick: &mut QuickPolls) -> u32 {
        let polls = (0..).find(|attempt| !quick.again(*attempt)).map(|n| n + 1);
        quick.missed();
        polls.unwrap_or(0)
    }

    #[test]
    fn waits_rest_from_polls_that_find_nothing_and_try_again() {
        let mut quick = QuickPolls::default();
        for _ in 0..MISSES {
            assert_eq!(wait(&mut quick), POLLS);
        }
        for _ in 0..3 {
            for _ in 0..REST {
                assert_eq!(wait(&mut quick), 1);
            }
            assert_eq!(wait(&mut quick), POLLS);
        }
        for _ in 0..REST {
            quick.missed();
        }
        quick.hit();
        for _ in 0..MISSES {
            assert_eq!(wait(&mut quick), POLLS);
        }
        assert_eq!(wait(&mut quick), 1);
    }
}
