//! How long a waiter polls before it sleeps, learnt from its former waits. Pure.

use std::time::Duration;

/// Spin budget of a waiter: how long it polls before it sleeps in the kernel. To wake a sleeper on a halted processor takes
/// some 30 us, so spinning pays where the wait ends within about that time. The budget shrinks to zero where spinning never helps.
#[derive(Clone, Copy, Debug)]
pub struct Spin {
    budget: Duration,
    max: Duration,
}

/// Longest wake-up from the same processor. After such a wake-up, spinning would have kept the peer from running.
const LOCAL_WAKE_UP: Duration = Duration::from_micros(12);
/// A wait of up to this many budgets may have been long only because both ends slept.
const BOTH_SLEPT: u32 = 3;
/// First budget after zero.
const MIN_BUDGET: Duration = Duration::from_micros(2);

impl Spin {
    /// Returns a budget of `max`, or of zero if there is one of `processors` only.
    #[must_use]
    pub const fn new(max: Duration, processors: usize) -> Self {
        let max = if processors == 1 { Duration::ZERO } else { max };
        Self { budget: max, max }
    }

    /// Returns how long the next wait polls.
    #[must_use]
    pub const fn budget(self) -> Duration {
        self.budget
    }

    /// Returns true if the budget cannot grow, so that a [`hit`](Self::hit) changes nothing.
    #[must_use]
    pub fn is_full(self) -> bool {
        self.budget == self.max
    }

    /// Records that the wait ended while the waiter spun.
    pub fn hit(&mut self) {
        self.grow();
    }

    /// Records that the wait ended after spinning: `waited` after it began, of which the waiter spun for `spun`.
    pub fn missed(&mut self, spun: Duration, waited: Duration) {
        if waited <= self.max * BOTH_SLEPT && waited.saturating_sub(spun) > LOCAL_WAKE_UP {
            // A longer spin would have ended the wait, or would have if the peer spun as well: two sleepers wake each other late.
            self.grow();
        } else {
            self.budget /= 2;
            if self.budget < MIN_BUDGET / 2 {
                self.budget = Duration::ZERO;
            }
        }
    }

    fn grow(&mut self) {
        self.budget = (self.budget * 2).clamp(MIN_BUDGET.min(self.max), self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn the_spin_budget_shrinks_where_spinning_never_helps_and_grows_where_it_would() {
        let mut spin = Spin::new(us(50), 2);
        for _ in 0..10 {
            spin.missed(spin.budget(), us(5000));
        }
        assert_eq!(spin.budget(), us(0));
        // Woken on the same processor: the peer ran only once this thread slept.
        spin.missed(us(0), us(4));
        assert_eq!(spin.budget(), us(0));
        // Woken from another processor: soon, or as soon as a peer that sleeps as well can.
        spin.missed(us(0), us(35));
        assert_eq!(spin.budget(), us(2));
        spin.missed(us(2), us(100));
        assert_eq!(spin.budget(), us(4));
        for _ in 0..10 {
            assert!(!spin.is_full() || spin.budget() == us(50));
            spin.hit();
        }
        assert_eq!(spin.budget(), us(50));
        assert!(spin.is_full());
    }

    #[test]
    fn there_is_no_spinning_on_one_processor() {
        let mut spin = Spin::new(us(50), 1);
        spin.hit();
        spin.missed(us(0), us(20));
        assert_eq!(spin.budget(), us(0));
    }
}
