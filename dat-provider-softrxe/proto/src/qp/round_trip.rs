//! The round trip time of a connection over the wire, as far as the retransmission timeout needs it.
//!
//! The configured timeout suits a local network. On a path whose round trip is longer, every packet would be sent again before its answer can
//! arrive, and the window halved each time. The peer then answers the repetition of what it has answered already. After such an answer the
//! timeout is doubled until a round trip is measured with a packet that was sent once (Karn's algorithm): the answer to one that was
//! sent twice does not tell which of the two it answers. Without such answers nothing is measured: most timeouts follow a loss. Nor is it
//! if the answer comes sooner after the timeout than the timeout was long: then the path is short, and the first answer was lost.

use std::time::Duration;

use super::send_window::SendWindow;
use super::timeout_lengths::{LONGEST, retransmission};
use crate::psn::Psn;
use crate::time::Time;

/// Limit of the doublings that are kept: 1.6 s from the usual 50 ms on.
const MAX_DOUBLINGS: u32 = 5;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    /// The timeout is longer than the configured one.
    slow: bool,
    /// A round trip is to be measured.
    measures: bool,
    /// The last timeout, and the length of the first one in a row, unless an answer has shown already whether it was too short.
    repeated: Option<(Time, Duration)>,
    /// Timeouts that were too short, since the last measurement.
    doublings: u32,
    /// The first timeout that the measurements ask for.
    first: Duration,
    /// A packet that was sent once, and when.
    timed: Option<(Psn, Time)>,
    /// The window before the first timeout that was too short, and how long that one was.
    before: Option<(SendWindow, Duration)>,
}

impl RoundTrip {
    /// Returns the timeout after `retries` timeouts in a row.
    pub(super) fn timeout(&self, configured: Duration, retries: u32) -> Duration {
        if !self.slow {
            return retransmission(configured, retries);
        }
        retransmission(configured.max(self.first), self.doublings + retries)
    }

    /// Records that the packet before `next` was sent for the first time.
    #[inline]
    pub(super) fn sent(&mut self, next: Psn, now: Time) {
        if self.measures && self.timed.is_none() {
            self.timed = Some((next.minus(1), now));
        }
    }

    /// Records a timeout of length `waited`, after `retries` others in a row, at which the window was `window`.
    pub(super) fn timed_out(
        &mut self,
        window: SendWindow,
        now: Time,
        waited: Duration,
        retries: u32,
    ) {
        if retries == 0 && !self.measures {
            self.before = Some((window, waited));
        }
        // The path may have become shorter.
        self.measures |= self.slow;
        let first = self.repeated.filter(|_| retries > 0);
        self.repeated = Some((now, first.map_or(waited, |(_, first)| first)));
        self.timed = None;
    }

    /// Records an answer to what was answered already, after progress: if there was a timeout before, it was too short, or an answer was
    /// lost. An answer to a repetition takes a round trip. If all timeouts in a row were too short, the answer to the first packet came after
    /// the last one, and that to its repetition after the first one comes later by the length of the first one. If the answer
    /// comes sooner, the round trip is shorter than that.
    pub(super) fn answered_again(&mut self, now: Time) {
        let Some((timeout, first)) = self.repeated.take() else {
            return;
        };
        if now.since(timeout) >= first {
            self.slow = true;
            self.measures = true;
            self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        }
    }

    /// Records that the peer had no receive: the packet is sent again, after a pause.
    pub(super) const fn not_ready(&mut self) {
        self.timed = None;
    }

    /// Records that the peer reported a loss: the window stays small, and packets in flight are sent again.
    pub(super) const fn lost(&mut self) {
        self.before = None;
        self.timed = None;
    }

    /// Records that everything before `to` was answered. Returns the window to restore if the timeouts were shorter than the round trip, so
    /// nothing shows that a packet was lost.
    #[inline]
    pub(super) fn answered(
        &mut self,
        to: Psn,
        now: Time,
        configured: Duration,
    ) -> Option<SendWindow> {
        match self.timed {
            Some((psn, sent)) if psn.is_before(to) => self.measured(now.since(sent), configured),
            _ => None,
        }
    }

    #[cold]
    fn measured(&mut self, took: Duration, configured: Duration) -> Option<SendWindow> {
        // Where packets are lost too, a longer timeout costs more than some that are too short. One short round trip does not make the timeout
        // short at once: round trips vary.
        self.first = (took * 3 / 2).max(self.first / 2).min(LONGEST);
        self.slow = self.first > configured;
        self.measures = false;
        self.repeated = None;
        self.doublings = 0;
        self.timed = None;
        let (window, waited) = self.before.take()?;
        (took >= waited).then_some(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(50);

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    /// Sends the packet before `next` at `sent` and takes its answer at `answered`.
    fn trip(of: &mut RoundTrip, next: u32, sent: u64, answered: u64) -> Option<u32> {
        of.sent(Psn::new(next), at(sent));
        let window = of.answered(Psn::new(next), at(answered), FIRST);
        window.map(|window| window.size())
    }

    /// A timeout that was too short.
    fn too_short(of: &mut RoundTrip, waited: Duration) {
        of.timed_out(SendWindow::new(100), at(0), waited, 0);
        of.answered_again(Time::ZERO + waited);
    }

    #[test]
    fn a_timeout_that_was_too_short_is_doubled_until_a_round_trip_is_measured() {
        let mut of = RoundTrip::default();
        assert_eq!(trip(&mut of, 1, 0, 40), None);
        of.answered_again(at(60));
        assert_eq!(of.timeout(FIRST, 0), FIRST);
        assert_eq!(of.timeout(FIRST, 2), 4 * FIRST);
        too_short(&mut of, FIRST);
        too_short(&mut of, 2 * FIRST);
        of.answered_again(at(60));
        assert_eq!(of.timeout(FIRST, 0), 4 * FIRST);
        // A packet that is sent again tells nothing.
        of.sent(Psn::new(2), at(0));
        of.timed_out(SendWindow::new(100), at(200), 4 * FIRST, 0);
        assert!(of.answered(Psn::new(2), at(210), FIRST).is_none());
        assert_eq!(of.timeout(FIRST, 0), 4 * FIRST);
        assert_eq!(trip(&mut of, 3, 300, 500), Some(16));
        assert_eq!(of.timeout(FIRST, 0), Duration::from_millis(300));
        assert_eq!(of.timeout(FIRST, 1), Duration::from_millis(600));
        // The path is short again.
        for _ in 0..4 {
            too_short(&mut of, FIRST);
            assert_eq!(trip(&mut of, 4, 600, 601), None);
        }
        assert_eq!(of.timeout(FIRST, 0), FIRST);
    }

    #[test]
    fn a_timeout_after_a_loss_changes_nothing() {
        let mut of = RoundTrip::default();
        of.timed_out(SendWindow::new(100), at(50), FIRST, 0);
        of.timed_out(SendWindow::new(100), at(150), 2 * FIRST, 1);
        assert_eq!(of.timeout(FIRST, 0), FIRST);
        assert_eq!(trip(&mut of, 1, 0, 200), None);
        assert_eq!(of.timeout(FIRST, 0), FIRST);
    }

    #[test]
    fn a_repetition_that_is_answered_soon_tells_of_a_short_path() {
        let mut of = RoundTrip::default();
        of.timed_out(SendWindow::new(100), at(50), FIRST, 0);
        of.answered_again(at(51));
        of.answered_again(at(100));
        assert_eq!(of.timeout(FIRST, 0), FIRST);
    }

    #[test]
    fn an_answer_that_takes_less_than_the_timeout_was_lost_before() {
        let mut of = RoundTrip::default();
        of.timed_out(SendWindow::new(100), at(50), FIRST, 0);
        of.answered_again(at(99));
        assert_eq!(of.timeout(FIRST, 0), FIRST);
        of.timed_out(SendWindow::new(100), at(250), FIRST, 0);
        of.timed_out(SendWindow::new(100), at(350), 2 * FIRST, 1);
        of.answered_again(at(399));
        assert_eq!(of.timeout(FIRST, 0), FIRST);
        // A round trip of 151 ms: the repetition after 50 ms is answered after 201 ms.
        of.timed_out(SendWindow::new(100), at(1050), FIRST, 0);
        of.timed_out(SendWindow::new(100), at(1150), 2 * FIRST, 1);
        of.answered_again(at(1201));
        assert_eq!(of.timeout(FIRST, 0), 2 * FIRST);
    }

    #[test]
    fn the_window_stays_small_after_a_loss() {
        let mut of = RoundTrip::default();
        too_short(&mut of, FIRST);
        of.lost();
        assert_eq!(trip(&mut of, 1, 0, 200), None);
        too_short(&mut of, FIRST);
        of.sent(Psn::new(2), at(200));
        of.lost();
        // The first answer was lost.
        assert_eq!(trip(&mut of, 2, 300, 349), None);
    }

    #[test]
    fn the_longest_timeout_is_kept() {
        let mut of = RoundTrip::default();
        for _ in 0..20 {
            too_short(&mut of, FIRST);
        }
        assert_eq!(of.timeout(FIRST, 0), 32 * FIRST);
        assert_eq!(of.timeout(FIRST, 1), LONGEST);
        trip(&mut of, 1, 0, 5000);
        assert_eq!(of.timeout(FIRST, 0), LONGEST);
        let long = Duration::from_secs(7);
        assert_eq!(of.timeout(long, 3), long);
    }
}
