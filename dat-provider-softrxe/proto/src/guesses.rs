//! Peers that name a key which does not grant what they ask for: mistakes, or guesses.
//!
//! Each costs the peer its connection, is counted, and is worth a warning; many are worth one a second.

use std::time::Duration;

use crate::memory::AccessError;
use crate::time::Time;

/// Between warnings, at least.
const PAUSE: Duration = Duration::from_secs(1);

/// Decides which warnings are given.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    quiet_until: Option<Time>,
    unsaid: u64,
}

impl Guesses {
    /// Notes a guess. Returns how many there were since the last warning if another one is due.
    pub(crate) fn note(&mut self, now: Time) -> Option<u64> {
        if self.quiet_until.is_some_and(|end| now < end) {
            self.unsaid += 1;
            return None;
        }
        self.quiet_until = Some(now + PAUSE);
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// What is wrong with the key, without the key: it may be a live one. `None`: the key is right, something else is wrong.
pub(crate) const fn what_is_wrong(error: &AccessError) -> Option<&'static str> {
    match error {
        AccessError::Key(_) => Some("it names nothing"),
        AccessError::Scope(_) => Some("it belongs to another protection domain or queue pair"),
        AccessError::Bounds { .. } => Some("it does not grant the whole range"),
        AccessError::Right { .. } => Some("it does not grant the right"),
        AccessError::Window(_) => Some("it names no window that the peer may close"),
        AccessError::Alignment(_) | AccessError::Fault { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_a_second_says_how_many_were_left_out() {
        let mut guesses = Guesses::default();
        let mut said = Vec::new();
        for tenth in 0..35 {
            let now = Time::ZERO + Duration::from_millis(100) * tenth;
            said.extend(guesses.note(now).map(|unsaid| (tenth, unsaid)));
        }
        assert_eq!(said, [(0, 0), (10, 9), (20, 9), (30, 9)]);
    }
}
