//! Values of options. A refusal says what is allowed; clap puts the option and the value before it.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::measure::protocol::MAX_SIZE;

/// Longest time in seconds: a day.
const LONGEST: f64 = 86_400.0;

/// Returns the parser of whole numbers in a range.
pub(super) fn number<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync,
{
    move |text| {
        let value = text.parse().ok().filter(|value| range.contains(value));
        value.ok_or_else(|| {
            let (low, high) = (range.start(), range.end());
            format!("it must be a whole number from {low} to {high}")
        })
    }
}

/// Returns the parser of a number of seconds, from `least` to a day.
pub(super) fn seconds(
    least: f64,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    move |text| {
        let value = text.parse().ok();
        let value = value.filter(|s| (least..=LONGEST).contains(s));
        value.map(Duration::from_secs_f64).ok_or_else(|| {
            format!("it must be a number of seconds from {least} to {LONGEST}, e.g. 0.5")
        })
    }
}

/// Reads a number of bytes.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let bytes = digits
        .parse::<usize>()
        .ok()
        .and_then(|n| n.checked_mul(unit));
    bytes
        .filter(|bytes| (1..=MAX_SIZE).contains(bytes))
        .ok_or_else(|| format!("it must be 1 to {MAX_SIZE} bytes, e.g. 64, 4K or 1M"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_nonsense_is_refused() {
        assert_eq!(size("1"), Ok(1));
        assert_eq!(size("4K"), Ok(4096));
        assert_eq!(size("8m"), Ok(8 << 20));
        for wrong in ["", "K", "0", "-1", "1.5", "65M", "99999999999999999999M"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        let read = seconds(0.01);
        assert_eq!(read("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "0", "-1", "NaN", "inf", "86401"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds(0.0)("0"), Ok(Duration::ZERO));
        let read = number(1..=1024_u32);
        assert_eq!(read("1024"), Ok(1024));
        for wrong in ["", "0", "-1", "1025", "1.5", "99999999999999999999"] {
            let refused = read(wrong);
            let wants = "it must be a whole number from 1 to 1024";
            assert_eq!(refused, Err(wants.into()), "{wrong}");
        }
    }
}
