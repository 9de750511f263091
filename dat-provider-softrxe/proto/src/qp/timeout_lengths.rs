//! Lengths of the timeouts of the reliable connection: RNR codes and retransmission. `retransmission` starts the timer and handles its end.

use std::time::Duration;

/// Longest retransmission timeout after doubling.
pub(super) const LONGEST: Duration = Duration::from_secs(2);

/// Wait time of an RNR NAK's code (IBTA 9.7.5.2.8), in units of 10 us; code 0 is the longest.
const RNR: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// Returns the wait time of an RNR NAK's code.
#[must_use]
pub fn rnr_wait(code: u8) -> Duration {
    Duration::from_micros(10 * u64::from(RNR[usize::from(code & 31)]))
}

/// Returns the retransmission timeout after `count` consecutive timeouts.
pub(crate) fn retransmission(first: Duration, count: u32) -> Duration {
    if count == 0 {
        return first;
    }
    (first * (1 << count.min(8))).min(LONGEST.max(first))
}

/// Returns the number of our repetitions that take as long as `retries` repetitions every `each`. Ours are more frequent.
pub(crate) fn repetitions(first: Duration, retries: u8, each: Duration) -> u8 {
    let allowed = each * (u32::from(retries) + 1);
    let mut waited = Duration::ZERO;
    for count in 0..7 {
        waited += retransmission(first, u32::from(count));
        if waited >= allowed {
            return count.max(retries);
        }
    }
    7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rnr_codes_grow_except_zero() {
        assert_eq!(rnr_wait(0), Duration::from_micros(655_360));
        assert_eq!(rnr_wait(12), Duration::from_micros(640));
        assert_eq!(rnr_wait(31), Duration::from_micros(491_520));
        for code in 1..31 {
            assert!(rnr_wait(code) < rnr_wait(code + 1));
        }
    }

    #[test]
    fn retransmission_doubles_up_to_two_seconds() {
        let first = Duration::from_millis(50);
        assert_eq!(retransmission(first, 0), first);
        assert_eq!(retransmission(first, 3), first * 8);
        assert_eq!(retransmission(first, 60), LONGEST);
    }
}
