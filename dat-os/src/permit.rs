//! A one-token semaphore on a futex, for which one thread waits.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::sleep::{self, Slept};

const NONE: u32 = 0;
const GIVEN: u32 = 1;
/// A thread sleeps until the permit is given.
const WANTED: u32 = 2;

/// A permit that any thread gives, possibly before the wait, and one thread at a time takes. Giving it twice has the effect of
/// giving it once.
#[derive(Debug, Default)]
pub struct Permit(AtomicU32);

impl Permit {
    /// Ends the current or the next [`Permit::wait`]. Makes a system call only if a thread sleeps.
    pub fn give(&self) {
        if self.0.swap(GIVEN, Ordering::SeqCst) == WANTED {
            sleep::wake(&self.0, 1);
        }
    }

    /// Takes the permit if it was given; returns true if it was.
    pub fn take(&self) -> bool {
        self.0.swap(NONE, Ordering::SeqCst) == GIVEN
    }

    /// Sleeps until the permit is given and takes it ([`Slept::Woken`]), or until `end`; `None` means no limit.
    pub fn wait(&self, end: Option<Instant>) -> Slept {
        loop {
            let wanted = self
                .0
                .compare_exchange(NONE, WANTED, Ordering::SeqCst, Ordering::SeqCst);
            if wanted.is_err() && self.take() {
                return Slept::Woken;
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let slept = match left {
                Some(Duration::ZERO) => Slept::TimedOut,
                left => sleep::on_word(&self.0, WANTED, left),
            };
            // A cancelled thread does not take a permit that was given meanwhile: it stays for the next wait.
            if slept == Slept::Cancelled {
                let _ = self
                    .0
                    .compare_exchange(WANTED, NONE, Ordering::SeqCst, Ordering::SeqCst);
                return slept;
            }
            if self.take() {
                return Slept::Woken;
            }
            if slept != Slept::Woken {
                return slept;
            }
        }
    }
}
