//! Where an EVD or CNO sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dat_core::transport::Parked;
use dat_os::sleep::{self, Slept};
use parking_lot::Mutex;

use super::net::wake::Wake;

/// A permit that is waited for: on a futex, which a signal ends, or by one who sleeps on descriptors.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    permit: Mutex<Permit>,
    /// Counts rings.
    rung: AtomicU32,
}

#[derive(Debug, Default)]
struct Permit {
    given: bool,
    /// Wakes the one who sleeps on descriptors.
    wake: Option<Arc<Wake>>,
    /// Threads in [`Bell::sleep`].
    sleepers: u32,
}

impl Bell {
    /// Ends the present or the next sleep.
    pub(crate) fn ring(&self) {
        let mut permit = self.permit.lock();
        permit.given = true;
        match &permit.wake {
            Some(wake) => wake.ring(),
            None if permit.sleepers > 0 => {
                self.rung.fetch_add(1, Ordering::Release);
                sleep::wake(&self.rung, i32::MAX);
            }
            None => {}
        }
    }

    /// Takes the permit if it is there.
    pub(crate) fn take(&self) -> bool {
        std::mem::take(&mut self.permit.lock().given)
    }

    /// From now on `wake` is rung. `false`: the permit is there already.
    pub(crate) fn listen(&self, wake: &Arc<Wake>) -> bool {
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

    /// Sleeps until the permit is there, and takes it.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) -> Parked {
        let end = timeout.and_then(|t| Instant::now().checked_add(t));
        self.permit.lock().sleepers += 1;
        let slept = self.sleep_until(end);
        self.permit.lock().sleepers -= 1;
        slept
    }

    fn sleep_until(&self, end: Option<Instant>) -> Parked {
        loop {
            let rung = self.rung.load(Ordering::Acquire);
            if self.take() {
                return Parked::Woken;
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Parked::TimedOut;
            }
            match sleep::on_word(&self.rung, rung, left) {
                // What was given meanwhile is for the next sleep.
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

/// See [`Transport::Parker`](dat_core::transport::Transport::Parker).
#[derive(Debug, Default)]
pub struct Parker(pub(crate) Arc<Bell>);

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::super::net::wake::sleep;
    use super::*;

    #[test]
    fn a_ring_before_the_sleep_leaves_a_permit_for_one() {
        let bell = Bell::default();
        bell.ring();
        assert_eq!(bell.sleep(None), Parked::Woken);
        assert_eq!(bell.sleep(Some(Duration::from_millis(1))), Parked::TimedOut);
    }

    #[test]
    fn one_who_sleeps_on_descriptors_hears_it_there() {
        let (bell, wake) = (Bell::default(), Arc::new(Wake::new().unwrap()));
        assert!(bell.listen(&wake));
        std::thread::scope(|scope| {
            scope.spawn(|| bell.ring());
            assert_eq!(sleep([wake.as_raw_fd()], None), Slept::Woken);
        });
        bell.unlisten();
        assert!(bell.take());
        assert!(!bell.take());
        bell.ring();
        assert!(!bell.listen(&wake), "the permit is there already");
    }
}
