//! Requests of peers with a key that does not grant the access: by mistake, or guessed.
//!
//! Each ends the peer's connection, is counted and deserves a warning; of many, one a second is logged.

use std::time::Duration;

use crate::memory::AccessError;
use crate::time::Time;

/// Shortest time between two warnings.
const PAUSE: Duration = Duration::from_secs(1);

/// Limits the rate of warnings.
#[derive(Debug, Default)]
pub(crate) struct WrongKeyLog {
    suppressed_until: Option<Time>,
    suppressed: u64,
}

impl WrongKeyLog {
    /// Records a wrong key. Returns the number of suppressed warnings since the last one, if another one is due.
    pub(crate) fn record(&mut self, now: Time) -> Option<u64> {
        if self.suppressed_until.is_some_and(|end| now < end) {
            self.suppressed += 1;
            return None;
        }
        self.suppressed_until = Some(now + PAUSE);
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Returns what is wrong with the key, without the key itself, which may be valid elsewhere. `None`: the key is right, the
/// fault is another.
pub(crate) const fn key_fault(error: &AccessError) -> Option<&'static str> {
    match error {
        AccessError::Key(_) => Some("it does not exist"),
        AccessError::Scope(_) => Some("it belongs to another protection domain or queue pair"),
        AccessError::Bounds { .. } => Some("it does not grant the whole range"),
        AccessError::Right { .. } => Some("it does not grant the right"),
        AccessError::Window(_) => Some("it is not that of a window that the peer may invalidate"),
        AccessError::Alignment(_) | AccessError::Fault { .. } | AccessError::Withdrawn { .. } => {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_a_second_says_how_many_were_left_out() {
        let mut wrong_key_log = WrongKeyLog::default();
        let mut reported = Vec::new();
        for tenth in 0..35 {
            let now = Time::ZERO + Duration::from_millis(100) * tenth;
            reported.extend(
                wrong_key_log
                    .record(now)
                    .map(|suppressed| (tenth, suppressed)),
            );
        }
        assert_eq!(reported, [(0, 0), (10, 9), (20, 9), (30, 9)]);
    }
}
