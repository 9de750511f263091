//! The permit that an EVD or CNO waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dat_core::transport::Parked;
use dat_os::eventfd::EventFd;
use dat_os::sleep::{self, Slept};
use parking_lot::Mutex;

/// A permit that ends a sleep. The sleeper waits on a futex, which a signal interrupts, or on descriptors.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    permit: Mutex<Permit>,
    /// Number of rings; the futex word.
    rings: AtomicU32,
}

#[derive(Debug, Default)]
struct Permit {
    given: bool,
    /// Wakes the sleeper that waits on descriptors.
    wake: Option<Arc<EventFd>>,
    /// Number of threads in [`Bell::sleep`].
    sleepers: u32,
}

impl Bell {
    /// Ends the present or the next sleep.
    pub(crate) fn ring(&self) {
        let mut permit = self.permit.lock();
        permit.given = true;
        match &permit.wake {
            Some(wake) => wake.signal(),
            None if permit.sleepers > 0 => {
                self.rings.fetch_add(1, Ordering::Release);
                sleep::wake(&self.rings, i32::MAX);
            }
            None => {}
        }
    }

    /// Takes the permit; returns whether it was given.
    pub(crate) fn take(&self) -> bool {
        std::mem::take(&mut self.permit.lock().given)
    }

    /// Returns whether the permit is given.
    pub(crate) fn is_given(&self) -> bool {
        self.permit.lock().given
    }

    /// Makes the next ring wake `wake`. Returns `false` if the permit is given already.
    pub(crate) fn listen(&self, wake: &Arc<EventFd>) -> bool {
        let mut permit = self.permit.lock();
        if !permit.given {
            permit.wake = Some(Arc::clone(wake));
        }
        !permit.given
    }

    /// Undoes [`listen`](Self::listen).
    pub(crate) fn unlisten(&self) {
        self.permit.lock().wake = None;
    }

    /// Sleeps until the permit is given, and takes it.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) -> Parked {
        let end = timeout.and_then(|t| Instant::now().checked_add(t));
        self.permit.lock().sleepers += 1;
        let slept = self.sleep_until(end);
        self.permit.lock().sleepers -= 1;
        slept
    }

    fn sleep_until(&self, end: Option<Instant>) -> Parked {
        loop {
            let rings = self.rings.load(Ordering::Acquire);
            if self.take() {
                return Parked::Woken;
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Parked::TimedOut;
            }
            match sleep::on_word(&self.rings, rings, left) {
                // A permit that was given meanwhile is for the next sleep.
                Slept::Cancelled => return Parked::Cancelled,
                Slept::Interrupted => {
                    return if self.take() {
                        Parked::Woken
                    } else {
                        Parked::Interrupted
                    };
                }
                Slept::Woken | Slept::TimedOut => {}
            }
        }
    }
}

/// The sleeping place of an EVD or CNO ([`Transport::Parker`](dat_core::transport::Transport::Parker)).
#[derive(Debug, Default)]
pub struct Parker(pub(crate) Arc<Bell>);

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use dat_os::sleep::on_readable;

    use super::*;

    #[test]
    fn a_ring_before_the_sleep_ends_one_sleep() {
        let bell = Bell::default();
        bell.ring();
        assert_eq!(bell.sleep(None), Parked::Woken);
        assert_eq!(bell.sleep(Some(Duration::from_millis(1))), Parked::TimedOut);
    }

    #[test]
    fn a_ring_wakes_a_sleeper_on_descriptors() {
        let (bell, wake) = (Bell::default(), Arc::new(EventFd::new().unwrap()));
        assert!(bell.listen(&wake));
        std::thread::scope(|scope| {
            scope.spawn(|| bell.ring());
            assert_eq!(on_readable([wake.as_raw_fd()], None), Slept::Woken);
        });
        bell.unlisten();
        assert!(bell.take());
        assert!(!bell.take());
        bell.ring();
        assert!(!bell.listen(&wake), "the permit is given already");
    }
}
