//! Time as a number that the driver takes from its clock.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// Nanoseconds since an epoch that the driver chooses once. The engine never reads a clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(u64);

/// How much later than it was due a deadline is handled after a stop of the process. A busy machine delays it less.
const STOPPED: Duration = Duration::from_secs(1);

impl Time {
    /// The epoch.
    pub const ZERO: Self = Self(0);

    /// Returns the time `nanos` after the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns true if less than `span` has passed since `earlier`. It takes a subtraction and a comparison if `span` is a constant.
    #[inline]
    #[must_use]
    pub const fn is_within(self, span: Duration, earlier: Self) -> bool {
        let nanos = span.as_secs().saturating_mul(1_000_000_000);
        let nanos = nanos.saturating_add(span.subsec_nanos() as u64);
        self.0.saturating_sub(earlier.0) < nanos
    }

    /// Returns true if a deadline is handled at `self` that was due at `due`, so long before that this process was stopped meanwhile. No
    /// peer could reach it then.
    #[must_use]
    pub(crate) const fn is_after_stop(self, due: Self) -> bool {
        !self.is_within(STOPPED, due)
    }

    /// Returns the time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Whether the last deadline did not count as a silence of the peer, as this process was stopped meanwhile. The next one counts in any case:
/// a process that is stopped again and again finds a dead peer, too.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Spared(bool);

impl Spared {
    /// Returns whether the deadline that was due at `due`, and is handled at `now`, counts as a silence of the peer.
    pub(crate) const fn counts(&mut self, now: Time, due: Time) -> bool {
        self.0 = !self.0 && now.is_after_stop(due);
        !self.0
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    #[inline]
    fn add(self, span: Duration) -> Self {
        let nanos = span.as_secs().saturating_mul(1_000_000_000);
        let nanos = nanos.saturating_add(span.subsec_nanos().into());
        Self(self.0.saturating_add(nanos))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}
