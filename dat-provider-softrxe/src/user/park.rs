//! Where an EVD or CNO sleeps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_core::transport::Parked;
use parking_lot::{Condvar, Mutex};

/// A permit that is waited for.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    permit: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    /// Ends the present or the next sleep.
    pub(crate) fn ring(&self) {
        *self.permit.lock() = true;
        self.rung.notify_all();
    }

    /// Sleeps until the permit is there, and takes it.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) -> Parked {
        let end = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut permit = self.permit.lock();
        while !*permit {
            match end {
                None => self.rung.wait(&mut permit),
                Some(end) => {
                    if self.rung.wait_until(&mut permit, end).timed_out() && !*permit {
                        return Parked::TimedOut;
                    }
                }
            }
        }
        *permit = false;
        Parked::Woken
    }
}

/// See [`Transport::Parker`](dat_core::transport::Transport::Parker).
#[derive(Debug, Default)]
pub struct Parker(pub(crate) Arc<Bell>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_sleep_leaves_a_permit_for_one() {
        let bell = Bell::default();
        bell.ring();
        assert_eq!(bell.sleep(None), Parked::Woken);
        assert_eq!(bell.sleep(Some(Duration::from_millis(1))), Parked::TimedOut);
    }
}
