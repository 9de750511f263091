//! How long a process waits for a holder of the port that it can join.

use std::time::Duration;

/// Time for which the port may be taken without a trusted holder, as between two holders.
pub(super) const HANDOVER_TIME: Duration = Duration::from_secs(1);
/// The same where an engine of this user has the address: it takes the port over, but it may have no processor.
const BUSY_HANDOVER_TIME: Duration = Duration::from_secs(15);
/// Time of the last looks for engines, in which none was found. One look says little: an engine that opens or closes has no name for a moment.
const WITHOUT_ENGINES: Duration = Duration::from_millis(500);
/// What counts of the time between two attempts, at most. In the rest this process was stopped, or had no processor; so the others may have had none.
const MAX_ROUND: Duration = Duration::from_millis(100);

/// The time that has counted so far.
#[derive(Debug, Default)]
pub(super) struct Patience {
    waited: Duration,
    without_engines: Duration,
}

impl Patience {
    /// Counts the time `round` of an attempt in vain. Returns whether to make another one. `engines_have` looks whether an engine of this
    /// user has the address.
    pub(super) fn lasts(&mut self, round: Duration, engines_have: impl FnOnce() -> bool) -> bool {
        let round = round.min(MAX_ROUND);
        self.waited += round;
        if self.waited < HANDOVER_TIME - WITHOUT_ENGINES {
            return true;
        }
        self.without_engines += round;
        if engines_have() {
            self.without_engines = Duration::ZERO;
        }
        self.waited < HANDOVER_TIME
            || self.waited < BUSY_HANDOVER_TIME && self.without_engines < WITHOUT_ENGINES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(32);

    /// Returns how much time of rounds passes until the patience ends; `engines_have` is asked with that time.
    fn ends_after(engines_have: impl Fn(Duration) -> bool) -> Duration {
        let (mut patience, mut time) = (Patience::default(), ROUND);
        while patience.lasts(ROUND, || engines_have(time)) {
            time += ROUND;
        }
        time
    }

    #[test]
    fn a_port_without_engines_is_waited_for_a_second() {
        let time = ends_after(|_| false);
        assert!(time.abs_diff(HANDOVER_TIME) <= ROUND, "{time:?}");
    }

    #[test]
    fn engines_that_have_the_port_are_waited_for_longer() {
        let time = ends_after(|_| true);
        assert!(time.abs_diff(BUSY_HANDOVER_TIME) <= ROUND, "{time:?}");
    }

    /// Many processes that open and close: at times none has a name.
    #[test]
    fn a_moment_without_engines_ends_nothing() {
        let time = ends_after(|time| time.subsec_millis() > 400);
        assert!(time.abs_diff(BUSY_HANDOVER_TIME) <= ROUND, "{time:?}");
    }

    #[test]
    fn a_process_that_was_stopped_tries_again() {
        let mut patience = Patience::default();
        let hour = Duration::from_secs(3600);
        assert!(patience.lasts(ROUND, || false) && patience.lasts(hour, || false));
        for _ in 0..100 {
            assert!(patience.lasts(hour, || true));
        }
        assert!(patience.lasts(hour, || false));
    }
}
